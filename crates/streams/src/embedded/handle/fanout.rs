//! Sessions and their sources, as callers use them.

use bytes::Bytes;
use towpath_model::stream::envelope;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::super::plan::{TOO_FAR_BEHIND, usable};
use super::super::planned::PlannedFeed;
use super::super::queue::{Change, Delivery, MetaValue};
use super::super::reader::ReadPlan;
use super::super::session::Sub;
use super::super::stream::{Stream, time};
use super::{Embedded, Index};
use crate::limits::{DELIVER_TRIES_MAX, FAN_OUT_BYTES, META_BYTES_MAX, META_KEY_BYTES_MAX, SLOTS_PER_LOCK};
use crate::{Answer, Error, FanOutState, FannedOut, Messages, Session, Subscription};

/// What a delivery needs to know of its source.
struct Due {
    id: u64,
    cursor: u64,
    tail: u64,
    /// Where to stop: the tail, or the start of a subscriber with envelopes.
    to: u64,
    has_wrapped: bool,
}

impl Embedded {
    pub(super) fn look_at_session(&self, name: &StreamName) -> Result<Session, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        let stream = usable(&index, name, shared.now())?;
        let session = stream.session().ok_or_else(|| Error::NotFound(name.clone()))?;
        let subscriptions = session.subs.iter().filter_map(|sub| subscription(&index, sub)).collect();
        Ok(Session { head: index.head(stream), subscriptions })
    }

    /// Delivers the next part of what waits. Reads it first if a subscriber wants envelopes.
    pub(super) async fn fan_out_step(
        &self,
        name: StreamName,
        until: Option<Offset>,
    ) -> Result<FannedOut, Error> {
        let mut due = self.due(&name)?;
        if let Some(until) = until {
            due.to = due.to.min(until.bytes()).max(due.cursor);
        }
        let (to, wrapped) = match due.has_wrapped && due.cursor < due.to {
            true => self.wrap_some(&name, &due).await?,
            false => (due.to, None),
        };
        let delivery = Box::new(Delivery { id: due.id, from: due.cursor, to, wrapped });
        self.submit(|reply| Change::Deliver { name, delivery, reply }).await
    }

    /// Asks for a change that first delivers what waits in a source. If that is too much for one
    /// commit, it is delivered step by step before the change is asked for again.
    pub(super) fn after_deliveries<'a, T: Send + 'a>(
        &'a self,
        source: StreamName,
        ask: impl Fn() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        let mut answer = ask();
        Box::pin(async move {
            for _ in 0..DELIVER_TRIES_MAX {
                match answer.await {
                    Err(Error::Busy(why)) if why == TOO_FAR_BEHIND => self.deliver_waiting(&source).await?,
                    answer => return answer,
                }
                answer = ask();
            }
            answer.await
        })
    }

    /// Delivers what waits now, not what is appended meanwhile.
    async fn deliver_waiting(&self, source: &StreamName) -> Result<(), Error> {
        let until = Offset::new(self.due(source)?.tail);
        while self.due(source)?.cursor < until.bytes() {
            self.fan_out_step(source.clone(), Some(until)).await?;
        }
        Ok(())
    }

    fn due(&self, name: &StreamName) -> Result<Due, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        // An expired source still delivers until it is removed.
        let source = match index.named(name) {
            Some(source) if source.deleted => return Err(Error::Deleted(name.clone())),
            Some(source) => source,
            None => return Err(Error::NotFound(name.clone())),
        };
        let feed = PlannedFeed::of(&index, source);
        let (id, tail) = (source.id, source.tail);
        let to = feed.next_start.unwrap_or(tail).min(tail);
        Ok(Due { id, cursor: feed.cursor, tail, to, has_wrapped: feed.wrapped > 0 })
    }

    /// The next messages of a source in envelopes, and where they end in it.
    async fn wrap_some(&self, name: &StreamName, due: &Due) -> Result<(u64, Option<Messages>), Error> {
        let from = Offset::new(due.cursor);
        let (plan, active) = {
            let index = self.inner.shared.index();
            let source = index.get(due.id).ok_or_else(|| Error::NotFound(name.clone()))?;
            let plan = ReadPlan::held(&index, source, due.cursor, FAN_OUT_BYTES)?;
            (plan, index.position.segment)
        };
        let batch = self.read_planned(plan, active, FAN_OUT_BYTES).await?;
        let part = batch.between(from, Offset::new(due.to));
        let run = envelope::wrap(&name.id, from, part.data(), part.ends());
        let wrapped = Messages { data: run.data.into(), ends: run.ends };
        Ok((part.end().bytes(), Some(wrapped)))
    }

    pub(super) fn list_sources(
        &self,
        project: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(StreamName, FanOutState)> {
        let mut found: Vec<(StreamName, FanOutState)> = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let index = self.inner.shared.index();
            let (streams, behind) = index.visit(from, SLOTS_PER_LOCK);
            let sources = streams.filter(|stream| {
                let is_wanted = *stream.name.project == *project && is_after(&stream.name, after);
                is_wanted && !stream.deleted && stream.feed().is_some()
            });
            found.extend(sources.map(|source| (source.name.clone(), index.fan_out_state(source))));
            next = behind;
        }
        found.retain(|(_, state)| state.subscribers > 0);
        found.sort_unstable_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        found.truncate(limit);
        found
    }

    pub(super) fn list_subscribers(
        &self,
        source: &StreamName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(StreamName, Subscription)>, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        let source = usable(&index, source, shared.now())?;
        let envelopes = source.feed().and_then(|feed| index.get(feed.envelopes?));
        let feeds = source.feed().into_iter().chain(envelopes.and_then(Stream::feed));
        let sessions = feeds.flat_map(|feed| &feed.sessions).filter_map(|id| index.get(*id));
        let mut found: Vec<&Stream> = sessions.filter(|session| is_after(&session.name, after)).collect();
        found.sort_unstable_by(|a, b| a.name.id.cmp(&b.name.id));
        let named = |session: &&Stream| {
            let sub = session.session()?.sub(source.id)?;
            Some((session.name.clone(), subscription(&index, sub)?))
        };
        Ok(found.iter().filter_map(named).take(limit).collect())
    }

    pub(super) fn set_meta(&self, namespace: &str, key: &str, value: Option<Bytes>) -> Answer<'_, ()> {
        let is_long = namespace.len() + key.len() > META_KEY_BYTES_MAX;
        if is_long || value.as_ref().is_some_and(|value| value.len() > META_BYTES_MAX) {
            let error = Error::TooLarge(format!(
                "a small value has at most {META_BYTES_MAX} bytes, its key {META_KEY_BYTES_MAX}"
            ));
            return Box::pin(async move { Err(error) });
        }
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        let value = Box::new(MetaValue { namespace, key, value });
        self.submit(|reply| Change::Meta { value, reply })
    }
}

fn is_after(name: &StreamName, after: Option<&str>) -> bool {
    after.is_none_or(|after| *name.id > *after)
}

fn subscription(index: &Index, sub: &Sub) -> Option<Subscription> {
    let source = index.get(sub.source)?.name.clone();
    let envelope = sub.feed != sub.source;
    Some(Subscription { source, start: Offset::new(sub.start), since: time(sub.since), envelope })
}
