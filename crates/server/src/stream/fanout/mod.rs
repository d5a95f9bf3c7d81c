//! Fan-out: a message published once reaches every session that follows its stream.
//!
//! The source stream is the queue. A message is durable in its source first. It is delivered in
//! the same commit (inline), or later by the worker from the source's durable cursor (queued,
//! circuit-open). A crash, an overload and an outage have the same effect: lag.

mod counts;
mod remote;
mod session_streams;
mod settings;
mod worker;

use std::sync::Arc;

use tokio::sync::Notify;
use towpath_model::circuit::{Deliveries, State};
use towpath_model::fanout::{Mode, SourceFacts, mode};
use towpath_model::stream::name::StreamName;
use towpath_streams::{
    Append, Appended, Circuits, Error, FanOut, FanOutMode, FanOutState, Published, Session, Store, Subscribe,
    Subscribed,
};

use crate::limits;
use crate::metrics::Metrics;
use counts::{Counts, Lag};
use remote::Remote;
use session_streams::{Local, NewStream, SessionHead, SessionStreams};
pub use settings::FanOutSettings;

/// Sessions and their fan-out. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FanOuts(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    sessions: Arc<dyn SessionStreams>,
    settings: FanOutSettings,
    circuits: Circuits,
    counts: Counts,
    /// Wakes the worker: something waits that did not before.
    wake: Notify,
}

/// The result of a publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishOutcome {
    pub(crate) appended: Appended,
    pub(crate) subscribers: usize,
    pub(crate) successes: usize,
    pub(crate) failures: usize,
    pub(crate) mode: Mode,
}

impl PublishOutcome {
    fn new(published: &Published, successes: usize) -> PublishOutcome {
        let mode = match published.mode {
            FanOutMode::Inline => Mode::Inline,
            FanOutMode::Queued => Mode::Queued,
            FanOutMode::Skipped => Mode::Skipped,
        };
        let (appended, subscribers) = (published.appended, published.subscribers);
        PublishOutcome { appended, subscribers, successes, failures: 0, mode }
    }
}

/// The endpoint that a message came in by. Both publish; they are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `POST /v1/{project}/publish/{stream}`
    Publish,
    /// `POST /v1/{project}/stream/{stream}`
    Append,
}

/// Registers the metrics of fan-outs.
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
        let sessions: Arc<dyn SessionStreams> = match &settings.sessions_url {
            None => Arc::new(Local(store.clone())),
            Some(url) => Arc::new(Remote::new(store.clone(), url, &settings)?),
        };
        let counts = Counts::new(metrics);
        let inner = Arc::new(Inner { store, sessions, settings, circuits, counts, wake: Notify::new() });
        let weak = Arc::downgrade(&inner);
        metrics.on_scrape(move || {
            if let Some(inner) = weak.upgrade() {
                inner.counts.refresh(inner.store.session_counts(), &inner.lag());
            }
        });
        Ok(FanOuts(inner))
    }

    /// Appends to a stream and delivers to the sessions that follow it. A failed delivery never
    /// fails the publish.
    pub(crate) async fn publish(
        &self,
        source: StreamName,
        append: Append,
        endpoint: Endpoint,
    ) -> Result<PublishOutcome, Error> {
        let inner = &*self.0;
        let wanted = mode(inner.facts(&source), inner.settings.limits);
        let fan_out = match wanted {
            Mode::Inline | Mode::Skipped => settings::as_fan_out(inner.settings.limits),
            Mode::Queued | Mode::CircuitOpen => FanOut::LATER,
        };
        let published = inner.sessions.publish(source.clone(), append, fan_out).await;
        let mut outcome = published.inspect_err(|error| inner.counts.refused(word(error)))?;
        if outcome.mode == Mode::Queued && wanted == Mode::CircuitOpen {
            outcome.mode = Mode::CircuitOpen;
        }
        let PublishOutcome { subscribers, successes, failures, mode, .. } = outcome;
        if mode == Mode::Inline && subscribers > 0 {
            inner.record(&source, Deliveries { successes, failures });
        }
        if mode != Mode::Inline || failures > 0 {
            inner.wake.notify_one();
        }
        inner.counts.published(mode, endpoint);
        Ok(outcome)
    }

    /// A stream was appended to without [`publish`](Self::publish): the worker delivers.
    pub(crate) fn appended(&self, source: &StreamName) {
        if self.0.store.fan_out_state(source).is_ok_and(|state| state.lag_bytes() > 0) {
            self.0.wake.notify_one();
        }
    }

    /// Subscribes a session to a stream. If that fails, a new session is removed again.
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
        let is_new = inner.sessions.create(&session, new).await?;
        let subscribe = Subscribe { session: session.clone(), source, ttl_seconds, envelope };
        let subscribed = inner.store.subscribe(subscribe).await;
        match &subscribed {
            Ok(_) => inner.counts.subscription("subscribe"),
            Err(_) if is_new => {
                if let Err(error) = inner.sessions.delete(&session).await {
                    tracing::warn!(%error, session = %session, "cannot remove a session whose subscription failed");
                }
            }
            Err(_) => {}
        }
        subscribed
    }

    /// False if there was no subscription.
    pub(crate) async fn unsubscribe(&self, session: StreamName, source: StreamName) -> Result<bool, Error> {
        let was = self.0.sessions.unsubscribe(session, source).await?;
        if was {
            self.0.counts.subscription("unsubscribe");
        }
        Ok(was)
    }

    /// Delivers what waits in a source that is about to be deleted.
    pub(crate) async fn finish(&self, source: &StreamName) -> Result<(), Error> {
        self.0.sessions.finish(source).await
    }

    /// A session, and where its stream is.
    pub(crate) async fn session(&self, session: &StreamName) -> Result<(Session, SessionHead), Error> {
        let found = self.0.store.session(session)?;
        Ok((found, self.0.sessions.head(session).await?))
    }

    /// Renews the life of a session.
    pub(crate) async fn touch(&self, session: &StreamName) -> Result<Session, Error> {
        self.0.store.session(session)?;
        self.0.sessions.touch(session).await?;
        self.0.counts.touched();
        self.0.store.session(session)
    }

    pub(crate) async fn delete(&self, session: &StreamName) -> Result<(), Error> {
        self.0.store.session(session)?;
        self.0.sessions.delete(session).await
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
    fn facts(&self, source: &StreamName) -> SourceFacts {
        let state = self.store.fan_out_state(source).ok();
        SourceFacts {
            subscribers: state.map_or(0, |state| state.subscribers),
            is_behind: state.is_some_and(|state| state.lag_bytes() > 0),
            // The worker probes an open circuit; a publish does not wait for that.
            circuit_admits: self.circuits.state(source) == State::Closed,
        }
    }

    fn record(&self, source: &StreamName, deliveries: Deliveries) {
        self.circuits.record(source, deliveries, self.settings.circuit);
        self.counts.delivered(deliveries.successes, deliveries.failures);
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
