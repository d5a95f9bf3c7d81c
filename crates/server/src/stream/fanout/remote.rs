//! Sessions on another server that speaks the protocol, over HTTP.
//!
//! Sources, subscriptions and cursors stay here; the streams that clients read are there. A
//! message is appended to each session's stream as a producer of the protocol, so that a
//! repeated delivery is refused there instead of written twice:
//!
//! - `Producer-Id` is the source, in this life;
//! - `Producer-Epoch` is the source's offset behind the message;
//! - `Producer-Seq` is always 0.
//!
//! A new epoch may begin at any time with 0, an old one is refused, and the same one is a
//! duplicate. That is deduplication by source and offset in the words every server knows,
//! and neither a late joiner nor one who missed something is ever refused.
//!
//! A session that cannot be reached while others can is put aside, durably, with its own
//! offset; it is tried again by itself, and the others go on.

mod behind;
mod client;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::envelope;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_streams::{
    Answer, Append, Batch, Beyond, Error, FanOut, FanOutMode, Store, StreamId, Subscription,
};

use super::core::{Core, Delivered, NewStream, Seen, Sent};
use super::settings::FanOutSettings;
use crate::limits;
use behind::{Behind, Ended};
use client::{Client, Reply};

pub(super) use client::url;

#[derive(Clone)]
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    client: Client,
    batch: usize,
    behind: Behind,
    /// One delivery of a source at a time, so that messages keep their order.
    turns: Mutex<HashMap<StreamName, Arc<tokio::sync::Mutex<()>>>>,
}

/// Messages of one source on their way.
struct Load<'a> {
    source: &'a StreamName,
    life: StreamId,
    content_type: &'a ContentType,
    batch: &'a Batch,
}

/// How far one session came.
enum Reached {
    All,
    Gone,
    /// It has everything up to here.
    Only(Offset),
}

impl Remote {
    pub(super) fn new(store: Arc<dyn Store>, url: &str, settings: &FanOutSettings) -> Result<Remote, Error> {
        let client = Client::new(url, settings.sessions_bearer.clone(), settings.delivery_wait_max)?;
        let behind = Behind::open(store.clone());
        let turns = Mutex::default();
        let remote = Remote(Arc::new(Inner { store, client, batch: settings.batch, behind, turns }));
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
            let targets = found.into_iter().filter(|(session, _)| !self.0.behind.holds(source, session));
            let sends = targets.map(|(session, subscription)| self.send_to(&load, session, subscription));
            let mut sends = futures_util::stream::iter(sends).buffer_unordered(self.0.batch);
            while let Some((session, reached)) = sends.next().await {
                match reached {
                    Reached::All => successes += 1,
                    Reached::Gone => self.forget(&session).await,
                    Reached::Only(offset) => failed.push((session, offset)),
                }
            }
        }
        let failures = failed.len();
        if successes == 0 && failures > 0 {
            // The server, not a session: nothing is put aside, everything waits.
            return Ok(Delivered { successes, failures, lag_bytes: state.lag_bytes() });
        }
        for (session, offset) in failed {
            self.0.behind.put_aside(source, &session, offset.max(state.cursor)).await?;
        }
        let moved = store.fan_out_until(source.clone(), page.batch.end()).await?;
        Ok(Delivered { successes, failures, lag_bytes: moved.lag_bytes })
    }

    /// Sends one session whatever of `load` is for it, in order.
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
                    tracing::debug!(session = %session, why, "a session could not be reached");
                    return (session, Reached::Only(reached));
                }
            }
        }
        (session, Reached::All)
    }

    /// The stream of a session is gone there: so is the session.
    async fn forget(&self, session: &StreamName) {
        match self.0.store.delete(session.clone()).await {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(%error, session = %session, "a session that is gone is still listed");
            }
        }
    }

    /// Tries again, for as long as anybody uses this, what was put aside.
    async fn follow_up(self) {
        let weak = Arc::downgrade(&self.0);
        drop(self);
        loop {
            tokio::time::sleep(limits::FOLLOW_UP_EVERY).await;
            let Some(inner) = weak.upgrade() else { return };
            let remote = Remote(inner);
            let due = remote.0.behind.due();
            remote.follow_up_on(due).await;
        }
    }

    async fn follow_up_on(&self, due: Vec<(StreamName, StreamName)>) {
        futures_util::stream::iter(due)
            .for_each_concurrent(limits::DRAINS_MAX, |(source, session)| async move {
                if let Err(error) = self.catch_up(&source, &session).await {
                    tracing::warn!(%error, session = %session, "a session stays behind");
                    self.0.behind.rest(&source, &session);
                }
            })
            .await;
    }

    /// Brings one session from its own offset to its source's cursor, and back among the others.
    /// What it left behind when it unsubscribed comes first: the server there refuses what is
    /// older than the newest it has.
    async fn catch_up(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        let (store, behind) = (&self.0.store, &self.0.behind);
        let alone = behind.alone(source, session);
        let Ok(_alone) = alone.try_lock() else { return Ok(()) };
        let Some(mut from) = behind.place(source, session).map(|place| place.from) else { return Ok(()) };
        loop {
            let Some(place) = behind.place(source, session) else { return Ok(()) };
            let Ok(state) = store.fan_out_state(source) else {
                return behind.drop_all(source, session).await;
            };
            let ended = place.ended.first().copied();
            if ended.is_none() && from >= state.cursor {
                let turn = self.turn(source);
                let _turn = turn.lock().await;
                if store.fan_out_state(source)?.cursor <= from {
                    return behind.take_back(source, session).await;
                }
                continue;
            }
            let begin = ended.map_or(from, |ended| ended.from);
            let page = store.read(source, Start::At(begin), limits::FANOUT_PAGE_BYTES).await?;
            // Looked up behind the read: whatever was read was there before it leaves.
            let Some(place) = behind.place(source, session) else { return Ok(()) };
            if place.ended.first().copied() != ended {
                continue;
            }
            let (until, subscription) = match ended {
                Some(ended) if ended.life != page.head.id => {
                    behind.delivered(source, session, ended.until).await?;
                    continue;
                }
                Some(ended) => (ended.until, ended.subscription(source)),
                None => match self.follows(source, session) {
                    Some(subscription) => (page.batch.end(), subscription),
                    None => return behind.take_back(source, session).await,
                },
            };
            let batch = page.batch.between(begin, until);
            let (life, content_type) = (page.head.id, &page.head.content_type);
            let load = Load { source, life, content_type, batch: &batch };
            let (reached, failed) = match self.send_to(&load, session.clone(), subscription).await.1 {
                Reached::All => (batch.end(), false),
                Reached::Gone => {
                    self.forget(session).await;
                    return behind.drop_all(source, session).await;
                }
                Reached::Only(offset) => (offset.max(begin), true),
            };
            match ended {
                Some(_) => behind.delivered(source, session, reached).await?,
                None if failed => behind.put_aside(source, session, reached).await?,
                None => from = reached,
            }
            if failed {
                behind.rest(source, session);
                return Ok(());
            }
        }
    }

    fn follows(&self, source: &StreamName, session: &StreamName) -> Option<Subscription> {
        let known = self.0.store.session(session).ok()?;
        known.subscriptions.into_iter().find(|one| one.source == *source)
    }

    /// Puts aside what a session that leaves is still to get. Everything acknowledged by now is
    /// in it; what is published at the same time may or may not be.
    async fn keep_for(&self, session: &StreamName, source: &StreamName) -> Result<(), Error> {
        let Some(subscription) = self.follows(source, session) else { return Ok(()) };
        let (life, state) = (self.0.store.head(source)?.id, self.0.store.fan_out_state(source)?);
        let place = self.0.behind.place(source, session);
        let from = place.map_or(state.cursor, |place| place.from).max(subscription.start);
        if from >= state.tail {
            return Ok(());
        }
        let ended = Ended { life, from, until: state.tail, envelope: subscription.envelope };
        self.0.behind.leaves(source, session, ended).await
    }

    /// Delivers everything that waits in a source, or says that it cannot.
    async fn deliver_all(&self, source: &StreamName) -> Result<(), Error> {
        const WAITS: Error = Error::Busy(
            "sessions on another server have not got all of this stream yet; try again when they are reachable",
        );
        loop {
            let delivered = self.deliver_page(source).await?;
            match delivered.lag_bytes {
                0 => break,
                _ if delivered.failures > 0 => return Err(WAITS),
                _ => {}
            }
        }
        let behind = self.0.behind.of(source).into_iter().map(|session| (source.clone(), session));
        self.follow_up_on(behind.collect()).await;
        if self.0.behind.of(source).is_empty() { Ok(()) } else { Err(WAITS) }
    }
}

impl Load<'_> {
    /// The messages for one subscriber: the source's offset behind each, and what is sent.
    fn bodies(&self, subscription: &Subscription) -> Vec<(Offset, Bytes)> {
        let start = self.batch.start();
        let ends = self.batch.ends().iter().map(|end| start.plus(u64::from(*end)));
        let is_json = self.content_type.mode() == Mode::Json;
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

/// A stored value, which ends in a comma, as a body. In an array, because one level of arrays
/// is taken away on arrival.
fn alone(stored: &Bytes) -> Bytes {
    let value = stored.strip_suffix(b",").unwrap_or(stored);
    [b"[", value, b"]"].concat().into()
}

impl Core for Remote {
    fn head<'a>(&'a self, session: &'a StreamName) -> Answer<'a, Seen> {
        Box::pin(self.0.client.head(session))
    }

    fn put<'a>(&'a self, session: &'a StreamName, new: NewStream) -> Answer<'a, bool> {
        Box::pin(async move {
            let is_new = self.0.client.put(session, new).await?;
            match is_new {
                true => self.0.behind.forget(session).await?,
                false => self.0.client.touch(session).await?,
            }
            Ok(is_new)
        })
    }

    fn append(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, Sent> {
        Box::pin(async move {
            let wait = FanOut { inline_max: 0, beyond: fan_out.beyond };
            let is_few = self
                .0
                .store
                .fan_out_state(&source)
                .is_ok_and(|state| state.subscribers <= fan_out.inline_max);
            let wait = if is_few { FanOut { beyond: Beyond::Queue, ..wait } } else { wait };
            let published = self.0.store.publish(source.clone(), append, wait).await?;
            let mut sent = Sent {
                appended: published.appended,
                subscribers: published.subscribers,
                mode: published.mode,
                successes: 0,
                failures: 0,
            };
            let is_new = !published.appended.is_duplicate;
            if published.mode == FanOutMode::Queued && is_few && fan_out.inline_max > 0 && is_new {
                // A task of its own: a publisher that leaves does not stop it half-way.
                let remote = self.clone();
                let delivery = tokio::spawn(async move { remote.deliver_page(&source).await });
                sent.mode = FanOutMode::Inline;
                match delivery.await {
                    Ok(Ok(delivered)) => {
                        (sent.successes, sent.failures) = (delivered.successes, delivered.failures);
                    }
                    _ => sent.failures = published.subscribers,
                }
            }
            Ok(sent)
        })
    }

    fn deliver(&self, source: StreamName) -> Answer<'_, Delivered> {
        Box::pin(async move { self.deliver_page(&source).await })
    }

    /// Here first: while the server there is away, the session must not end for lack of it.
    fn touch<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async move {
            self.0.store.touch(session)?;
            let touched = self.0.client.touch(session).await;
            if let Err(Error::NotFound(_)) = &touched {
                self.forget(session).await;
            }
            touched
        })
    }

    /// What waits is put aside first: a crash in between sends it to one who still follows.
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
                // Nothing that could be delivered; whoever deletes it hears so.
                Err(_) => Ok(()),
            }
        })
    }

    fn delete<'a>(&'a self, session: &'a StreamName) -> Answer<'a, ()> {
        Box::pin(async move {
            self.0.client.delete(session).await?;
            self.0.behind.forget(session).await?;
            match self.0.store.delete(session.clone()).await {
                Err(Error::NotFound(_)) => Ok(()),
                other => other,
            }
        })
    }
}
