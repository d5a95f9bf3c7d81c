//! Fan-out: a message published once reaches every session that follows its stream.
//!
//! The source stream is the queue. A publish is durable in its source first; then it is
//! delivered with the publish (inline) or from the source's durable cursor by the worker
//! (queued, circuit-open). Crash, overload and outage are all the same thing: lag.

mod core;
mod counts;
mod remote;
mod settings;
mod worker;

use std::sync::Arc;

use tokio::sync::Notify;
use towpath_model::circuit::{Batch, State};
use towpath_model::fanout::{Mode, Standing, mode};
use towpath_model::stream::name::StreamName;
use towpath_streams::{
    Append, Appended, Beyond, Circuits, Error, FanOut, FanOutMode, FanOutState, Session, Store, Subscribe,
    Subscribed,
};

use crate::limits;
use crate::metrics::Metrics;
use core::{Core, Local, NewStream};
use counts::{Counts, Lag};
use remote::Remote;
pub use settings::FanOutSettings;

/// Sessions and their fan-out. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FanOuts(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    core: Arc<dyn Core>,
    settings: FanOutSettings,
    circuits: Circuits,
    counts: Counts,
    /// Something waits that did not before.
    news: Notify,
}

/// What a publish answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published {
    pub(crate) appended: Appended,
    pub(crate) subscribers: usize,
    pub(crate) successes: usize,
    pub(crate) failures: usize,
    pub(crate) mode: Mode,
}

/// Which request brought a message. Both fan out; they are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// `POST /v1/{project}/publish/{stream}`
    Publish,
    /// `POST /v1/{project}/stream/{stream}`
    Append,
}

/// Registers what fan-outs count, without any.
pub(super) fn describe(metrics: &Metrics) {
    Counts::new(metrics);
}

impl FanOuts {
    /// Sessions here, or on the server that the settings name.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        settings: FanOutSettings,
        circuits: Circuits,
        metrics: &Metrics,
    ) -> Result<FanOuts, Error> {
        let core: Arc<dyn Core> = match &settings.sessions_url {
            None => Arc::new(Local(store.clone())),
            Some(url) => Arc::new(Remote::new(store.clone(), url, &settings)?),
        };
        let counts = Counts::new(metrics);
        let inner = Arc::new(Inner { store, core, settings, circuits, counts, news: Notify::new() });
        let weak = Arc::downgrade(&inner);
        metrics.on_scrape(move || {
            if let Some(inner) = weak.upgrade() {
                inner.counts.refresh(inner.store.session_counts(), &inner.lag());
            }
        });
        Ok(FanOuts(inner))
    }

    /// Appends to a stream and delivers to the sessions that follow it. What becomes of the
    /// delivery never fails the publish.
    pub(crate) async fn publish(
        &self,
        source: StreamName,
        append: Append,
        door: Door,
    ) -> Result<Published, Error> {
        let published = self.send(source, append).await;
        match &published {
            Ok(published) => self.0.counts.published(published.mode, door),
            Err(error) => self.0.counts.refused(word(error)),
        }
        published
    }

    async fn send(&self, source: StreamName, append: Append) -> Result<Published, Error> {
        let inner = &*self.0;
        let wanted = mode(inner.standing(&source), inner.settings.limits);
        let fan_out = match wanted {
            Mode::Inline | Mode::Skipped => settings::as_fan_out(inner.settings.limits),
            Mode::Queued | Mode::CircuitOpen => FanOut { inline_max: 0, beyond: Beyond::Queue },
        };
        let sent = inner.core.append(source.clone(), append, fan_out).await?;
        let mode = match sent.mode {
            FanOutMode::Inline => Mode::Inline,
            FanOutMode::Skipped => Mode::Skipped,
            FanOutMode::Queued if wanted == Mode::CircuitOpen => Mode::CircuitOpen,
            FanOutMode::Queued => Mode::Queued,
        };
        if mode == Mode::Inline && sent.subscribers > 0 {
            inner.note(&source, Batch { successes: sent.successes, failures: sent.failures });
        }
        if mode != Mode::Inline || sent.failures > 0 {
            inner.news.notify_one();
        }
        let (subscribers, successes, failures) = (sent.subscribers, sent.successes, sent.failures);
        Ok(Published { appended: sent.appended, subscribers, successes, failures, mode })
    }

    /// A stream grew by another way than [`publish`](Self::publish).
    pub(crate) fn grew(&self, source: &StreamName) {
        if self.0.store.fan_out_state(source).is_ok_and(|state| state.lag_bytes() > 0) {
            self.0.news.notify_one();
        }
    }

    /// Lets a session follow a stream. Nothing of a session is left if that fails.
    pub(crate) async fn subscribe(
        &self,
        session: StreamName,
        source: StreamName,
        envelope: bool,
    ) -> Result<Subscribed, Error> {
        let inner = &*self.0;
        let head = inner.store.head(&source)?;
        let ttl_seconds = inner.settings.session_ttl_seconds;
        let new = NewStream { content_type: head.content_type, ttl_seconds };
        let is_new = inner.core.put(&session, new).await?;
        let wish = Subscribe { session: session.clone(), source, ttl_seconds, envelope };
        let subscribed = inner.store.subscribe(wish).await;
        match &subscribed {
            Ok(_) => inner.counts.subscription("subscribe"),
            Err(_) if is_new => {
                if let Err(error) = inner.core.delete(&session).await {
                    tracing::warn!(%error, session = %session, "a session that failed to begin is left over");
                }
            }
            Err(_) => {}
        }
        subscribed
    }

    /// False if it did not follow.
    pub(crate) async fn unsubscribe(&self, session: StreamName, source: StreamName) -> Result<bool, Error> {
        let was = self.0.core.unsubscribe(session, source).await?;
        if was {
            self.0.counts.subscription("unsubscribe");
        }
        Ok(was)
    }

    /// Sees to it that nobody misses what a source holds that is about to be deleted.
    pub(crate) async fn finish(&self, source: &StreamName) -> Result<(), Error> {
        self.0.core.finish(source).await
    }

    /// A session, and where its stream is.
    pub(crate) async fn session(&self, session: &StreamName) -> Result<(Session, core::Seen), Error> {
        let found = self.0.store.session(session)?;
        Ok((found, self.0.core.head(session).await?))
    }

    /// Lets a session live longer.
    pub(crate) async fn touch(&self, session: &StreamName) -> Result<Session, Error> {
        self.0.store.session(session)?;
        self.0.core.touch(session).await?;
        self.0.counts.touched();
        self.0.store.session(session)
    }

    pub(crate) async fn delete(&self, session: &StreamName) -> Result<(), Error> {
        self.0.store.session(session)?;
        self.0.core.delete(session).await
    }

    /// Streams that sessions follow, and how far behind each is.
    pub(crate) fn sources(&self, project: &str, after: Option<&str>, limit: usize) -> Vec<Source> {
        let found = self.0.store.sources(project, after, limit);
        let source = |(name, state)| Source { circuit: self.0.circuits.state(&name), name, state };
        found.into_iter().map(source).collect()
    }

    /// Where a session's stream is read.
    pub(crate) fn path(&self, session: &StreamName) -> String {
        match &self.0.settings.sessions_url {
            None => session.path(),
            Some(url) => remote::url(url, session),
        }
    }
}

/// A stream that sessions follow.
pub(crate) struct Source {
    pub(crate) name: StreamName,
    pub(crate) state: FanOutState,
    pub(crate) circuit: State,
}

impl Inner {
    fn standing(&self, source: &StreamName) -> Standing {
        let state = self.store.fan_out_state(source).ok();
        Standing {
            subscribers: state.map_or(0, |state| state.subscribers),
            is_behind: state.is_some_and(|state| state.lag_bytes() > 0),
            // The worker probes; a publish does not wait for one.
            circuit_admits: self.circuits.state(source) == State::Closed,
        }
    }

    fn note(&self, source: &StreamName, batch: Batch) {
        self.circuits.note(source, batch, self.settings.circuit);
        self.counts.delivered(batch.successes, batch.failures);
    }

    fn lag(&self) -> Lag {
        let lagging = self.store.lagging(limits::LAGGING_MAX);
        Lag {
            sources: lagging.len(),
            bytes: lagging.iter().map(|(_, state)| state.lag_bytes()).sum(),
            open_circuits: self.circuits.open_count(),
        }
    }
}

/// Why a publish was refused, as a label.
fn word(error: &Error) -> &'static str {
    match error {
        Error::NotFound(_) | Error::Deleted(_) => "not_found",
        Error::Refused { .. } | Error::Conflict { .. } => "conflict",
        Error::ReadOnly(_) => "forbidden",
        Error::TooLarge(_) => "too_large",
        Error::Busy(_) | Error::DiskFull | Error::Poisoned(_) | Error::ShutDown => "unavailable",
        _ => "internal",
    }
}
