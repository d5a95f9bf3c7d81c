//! Sessions on another server of the protocol, over HTTP.
//!
//! Sources, subscriptions and cursors are here; the streams that clients read are there. A
//! message is appended to each session's stream by an idempotent producer, so that the server
//! refuses a repeated delivery instead of writing it twice:
//!
//! - `Producer-Id` is the source, in this life;
//! - `Producer-Epoch` is the source's offset behind the message;
//! - `Producer-Seq` is always 0.
//!
//! A new epoch may begin at any time with 0, an old one is refused, and the same one is a
//! duplicate. That is deduplication by source and offset in terms that every server of the
//! protocol knows, and it never refuses a session that joined late or missed something.
//!
//! A session that cannot be reached while others can gets a durable backlog with its own offset.
//! It is retried on its own, and the others go on.

mod backlog;
mod client;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use towpath_model::fanout::Mode;
use towpath_model::stream::content_type::{self, ContentType};
use towpath_model::stream::envelope;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_streams::{Answer, Append, Batch, Beyond, Error, FanOut, Store, StreamId, Subscription};

use super::PublishOutcome;
use super::session_streams::{Delivered, NewStream, SessionHead, SessionStreams};
use super::settings::FanOutSettings;
use crate::limits;
use backlog::{Backlogs, Ended};
use client::{Client, Reply};

pub(super) use client::url;

#[derive(Clone)]
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    client: Client,
    batch: usize,
    backlogs: Backlogs,
    /// One delivery of a source at a time: that keeps the messages in order.
    turns: Mutex<HashMap<StreamName, Arc<tokio::sync::Mutex<()>>>>,
}

/// Messages of one source to send.
struct Load<'a> {
    source: &'a StreamName,
    life: StreamId,
    content_type: &'a ContentType,
    batch: &'a Batch,
}

/// How far the delivery to one session came.
enum Reached {
    All,
    Gone,
    /// It has everything up to here.
    Only(Offset),
}

impl Remote {
    pub(super) fn new(store: Arc<dyn Store>, url: &str, settings: &FanOutSettings) -> Result<Remote, Error> {
        let client = Client::new(url, settings.sessions_bearer.clone(), settings.delivery_wait_max)?;
        let backlogs = Backlogs::open(store.clone());
        let turns = Mutex::default();
        let remote = Remote(Arc::new(Inner { store, client, batch: settings.batch, backlogs, turns }));
        tokio::spawn(remote.clone().follow_up());
        Ok(remote)
    }

    fn turn(&self, source: &StreamName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= limits::TURNS_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(source.clone()).or_default().clone()
    }

    async fn deliver_page(&self, source: &StreamName) -> Result<Delivered, Error> {
        let store = &self.0.store;
        let turn = self.turn(source);
        let _turn = turn.lock().await;
        let state = store.fan_out_state(source)?;
        if state.lag_bytes() == 0 {
            return Ok(Delivered { successes: state.subscribers, failures: 0, lag_bytes: 0 });
        }
        let page = store.read(source, Start::At(state.cursor), limits::FANOUT_PAGE_BYTES).await?;
        let load =
            Load { source, life: page.head.id, content_type: &page.head.content_type, batch: &page.batch };
        let (mut successes, mut failed, mut after) = (0, vec![], None::<StreamName>);
        loop {
            let found = store.subscribers(source, after.as_ref().map(|name| &*name.id), self.0.batch)?;
            let Some((last, _)) = found.last() else { break };
            after = Some(last.clone());
            let targets = found.into_iter().filter(|(session, _)| !self.0.backlogs.holds(source, session));
            let sends = targets.map(|(session, subscription)| self.send_to(&load, session, subscription));
            let mut sends = futures_util::stream::iter(sends).buffer_unordered(self.0.batch);
            while let Some((session, reached)) = sends.next().await {
                match reached {
                    Reached::All => successes += 1,
                    Reached::Gone => self.end_session(&session).await,
                    Reached::Only(offset) => failed.push((session, offset)),
                }
            }
        }
        let failures = failed.len();
        if successes == 0 && failures > 0 {
            // The server is down, not a session: everything waits, and nothing gets a backlog.
            return Ok(Delivered { successes, failures, lag_bytes: state.lag_bytes() });
        }
        for (session, offset) in failed {
            self.0.backlogs.set(source, &session, offset.max(state.cursor)).await?;
        }
        let moved = store.fan_out_until(source.clone(), page.batch.end()).await?;
        Ok(Delivered { successes, failures, lag_bytes: moved.lag_bytes })
    }

    /// Sends one session its part of `load`, in order.
    async fn send_to(
        &self,
        load: &Load<'_>,
        session: StreamName,
        subscription: Subscription,
    ) -> (StreamName, Reached) {
        let mut reached = subscription.start.max(load.batch.start());
        for (end, body) in load.bodies(&subscription) {
            match self.0.client.append(&session, load, end, body).await {
                Reply::Fine => reached = end,
                Reply::Gone => return (session, Reached::Gone),
                Reply::Failed(why) => {
                    tracing::debug!(session = %session, why, "cannot reach a session");
                    return (session, Reached::Only(reached));
                }
            }
        }
        (session, Reached::All)
    }

    /// The session's stream no longer exists on the other server, so the session ends here.
    async fn end_session(&self, session: &StreamName) {
        match self.0.store.delete(session.clone()).await {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(%error, session = %session, "cannot remove a session whose stream is gone");
            }
        }
    }

    /// Retries sessions with a backlog, for as long as this is in use.
    async fn follow_up(self) {
        let weak = Arc::downgrade(&self.0);
        drop(self);
        loop {
            tokio::time::sleep(limits::FOLLOW_UP_EVERY).await;
            let Some(inner) = weak.upgrade() else { return };
            let remote = Remote(inner);
            let due = remote.0.backlogs.due();
            remote.follow_up_on(due).await;
        }
    }

    async fn follow_up_on(&self, due: Vec<(StreamName, StreamName)>) {
        futures_util::stream::iter(due)
            .for_each_concurrent(limits::DRAINS_MAX, |(source, session)| async move {
                if let Err(error) = self.catch_up(&source, &session).await {
                    tracing::warn!(%error, session = %session, "cannot deliver the backlog of a session; it is tried again");
                    self.0.backlogs.retry_later(&source, &session);
                }
            })
            .await;
    }

    /// Delivers the backlog of a session up to the source's cursor; the session then gets its
    /// messages with the others again. What it missed before it unsubscribed comes first, because
    /// the server there refuses what is older than the newest message it has.
    async fn catch_up(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        let (store, backlogs) = (&self.0.store, &self.0.backlogs);
        let turn = backlogs.turn(source, session);
        let Ok(_turn) = turn.try_lock() else { return Ok(()) };
        let Some(mut from) = backlogs.get(source, session).map(|backlog| backlog.from) else { return Ok(()) };
        loop {
            let Some(backlog) = backlogs.get(source, session) else { return Ok(()) };
            let Ok(state) = store.fan_out_state(source) else {
                return backlogs.remove(source, session).await;
            };
            let ended = backlog.ended.first().copied();
            if ended.is_none() && from >= state.cursor {
                let turn = self.turn(source);
                let _source_turn = turn.lock().await;
                if store.fan_out_state(source)?.cursor <= from {
                    return backlogs.finish(source, session).await;
                }
                continue;
            }
            let begin = ended.map_or(from, |ended| ended.from);
            let page = store.read(source, Start::At(begin), limits::FANOUT_PAGE_BYTES).await?;
            // Looked up after the read: the session may have left meanwhile.
            let Some(backlog) = backlogs.get(source, session) else { return Ok(()) };
            if backlog.ended.first().copied() != ended {
                continue;
            }
            let (until, subscription) = match ended {
                Some(ended) if ended.life != page.head.id => {
                    backlogs.delivered(source, session, ended.until).await?;
                    continue;
                }
                Some(ended) => (ended.until, ended.subscription(source)),
                None => match self.follows(source, session) {
                    Some(subscription) => (page.batch.end(), subscription),
                    None => return backlogs.finish(source, session).await,
                },
            };
            let batch = page.batch.between(begin, until);
            let (life, content_type) = (page.head.id, &page.head.content_type);
            let load = Load { source, life, content_type, batch: &batch };
            let (reached, failed) = match self.send_to(&load, session.clone(), subscription).await.1 {
                Reached::All => (batch.end(), false),
                Reached::Gone => {
                    self.end_session(session).await;
                    return backlogs.remove(source, session).await;
                }
                Reached::Only(offset) => (offset.max(begin), true),
            };
            match ended {
                Some(_) => backlogs.delivered(source, session, reached).await?,
                None if failed => backlogs.set(source, session, reached).await?,
                None => from = reached,
            }
            if failed {
                backlogs.retry_later(source, session);
                return Ok(());
            }
        }
    }

    fn follows(&self, source: &StreamName, session: &StreamName) -> Option<Subscription> {
        let known = self.0.store.session(session).ok()?;
        known.subscriptions.into_iter().find(|one| one.source == *source)
    }

    /// Gives a session that leaves a backlog of what it has yet to get. That has everything
    /// acknowledged by now; a message published at the same time may or may not be in it.
    async fn keep_for(&self, session: &StreamName, source: &StreamName) -> Result<(), Error> {
        let Some(subscription) = self.follows(source, session) else { return Ok(()) };
        let (life, state) = (self.0.store.head(source)?.id, self.0.store.fan_out_state(source)?);
        let backlog = self.0.backlogs.get(source, session);
        let from = backlog.map_or(state.cursor, |backlog| backlog.from).max(subscription.start);
        if from >= state.tail {
            return Ok(());
        }
        let ended = Ended { life, from, until: state.tail, envelope: subscription.envelope };
        self.0.backlogs.end(source, session, ended).await
    }

    /// Delivers everything that waits in a source, or answers that it cannot.
    async fn deliver_all(&self, source: &StreamName) -> Result<(), Error> {
        const WAITS: Error = Error::Busy(
            "sessions on another server have not received all of this stream yet; try again when they are reachable",
        );
        loop {
            let delivered = self.deliver_page(source).await?;
            match delivered.lag_bytes {
                0 => break,
                _ if delivered.failures > 0 => return Err(WAITS),
                _ => {}
            }
        }
        let sessions = self.0.backlogs.of(source).into_iter().map(|session| (source.clone(), session));
        self.follow_up_on(sessions.collect()).await;
        if self.0.backlogs.of(source).is_empty() { Ok(()) } else { Err(WAITS) }
    }
}

impl Load<'_> {
    /// The messages for one subscriber: the source's offset after each, and the body to send.
    fn bodies(&self, subscription: &Subscription) -> Vec<(Offset, Bytes)> {
        let start = self.batch.start();
        let ends = self.batch.ends().iter().map(|end| start.plus(u64::from(*end)));
        let is_json = self.content_type.mode() == content_type::Mode::Json;
        let run = (is_json && subscription.envelope)
            .then(|| envelope::wrap(&self.source.id, start, self.batch.data(), self.batch.ends()));
        let stored = match run {
            Some(run) => Batch::new(start, run.data.into(), run.ends),
            None => self.batch.after(start),
        };
        let bodies = stored.messages().map(|message| if is_json { alone(&message) } else { message });
        ends.zip(bodies).filter(|(end, _)| *end > subscription.start).collect()
    }
}

/// A stored value, which ends in a comma, as a body. In an array, because the receiver removes
/// one level of arrays.
fn alone(stored: &Bytes) -> Bytes {
    let value = stored.strip_suffix(b",").unwrap_or(stored);
    [b"[", value, b"]"].concat().into()
}

impl SessionStreams for Remote {
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, SessionHead> {
        Box::pin(self.0.client.head(session))
    }

    fn create<'a>(&'a self, session: &'a StreamName, new: NewStream) -> Answer<'a, bool> {
        Box::pin(async move {
            let is_new = self.0.client.create(session, new).await?;
            match is_new {
                true => self.0.backlogs.remove_session(session).await?,
                false => self.0.client.touch(session).await?,
            }
            Ok(is_new)
        })
    }

    fn publish(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, PublishOutcome> {
        Box::pin(async move {
            let store = &self.0.store;
            let state = store.fan_out_state(&source);
            let is_few = state.is_ok_and(|state| state.subscribers <= fan_out.inline_max);
            let beyond = if is_few { Beyond::Queue } else { fan_out.beyond };
            let wait = FanOut { inline_max: 0, beyond };
            let published = store.publish(source.clone(), append, wait).await?;
            let mut outcome = PublishOutcome::new(&published, 0);
            let is_new = !published.appended.is_duplicate;
            if outcome.mode == Mode::Queued && is_few && fan_out.inline_max > 0 && is_new {
                // A separate task: it continues when the publisher disconnects.
                let remote = self.clone();
                let delivery = tokio::spawn(async move { remote.deliver_page(&source).await });
                outcome.mode = Mode::Inline;
                match delivery.await {
                    Ok(Ok(delivered)) => {
                        (outcome.successes, outcome.failures) = (delivered.successes, delivered.failures);
                    }
                    _ => outcome.failures = published.subscribers,
                }
            }
            Ok(outcome)
        })
    }

    fn deliver(&self, source: StreamName) -> Answer<'_, Delivered> {
        Box::pin(async move { self.deliver_page(&source).await })
    }

    /// Here first: while the server there is down, the session must not expire because of that.
    fn touch<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async move {
            self.0.store.touch(session)?;
            let touched = self.0.client.touch(session).await;
            if let Err(Error::NotFound(_)) = &touched {
                self.end_session(session).await;
            }
            touched
        })
    }

    /// The backlog comes first: after a crash in between, the session still follows and gets it.
    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool> {
        Box::pin(async move {
            self.keep_for(&session, &source).await?;
            self.0.store.leave(session, source).await
        })
    }

    fn finish<'a>(&'a self, source: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.0.store.fan_out_state(source) {
                Ok(_) => self.deliver_all(source).await,
                // There is nothing to deliver; the deletion will report the error.
                Err(_) => Ok(()),
            }
        })
    }

    fn delete<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async move {
            self.0.client.delete(session).await?;
            self.0.backlogs.remove_session(session).await?;
            match self.0.store.delete(session.clone()).await {
                Err(Error::NotFound(_)) => Ok(()),
                other => other,
            }
        })
    }
}
