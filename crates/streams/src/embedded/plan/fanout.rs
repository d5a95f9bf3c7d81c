//! Decisions about sessions, deliveries and small values.

use towpath_model::stream::content_type::Mode;
use towpath_model::stream::envelope;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::super::index::Index;
use super::super::moved::MovedFeed;
use super::super::queue::{MetaChange, Step};
use super::super::reader::Route;
use super::super::record::{self, Advance, Birth, Record, Wrapped};
use super::super::session::{LATE, Sub};
use super::super::stream::{Stream, time};
use super::{Decided, Plan, head_of};
use crate::limits::{ENVELOPE_BYTES_MAX, FAN_OUT_BYTES, META_ENTRIES_MAX, SUBSCRIPTIONS_MAX};
use crate::{
    Append, Beyond, Error, FanOut, FanOutMode, FannedOut, Head, Messages, Published, Retention, Subscribe,
    Subscribed,
};

/// Why a change waits for a fan-out: see [`Plan::deliver_rest`].
pub(in crate::embedded) const BEHIND: &str =
    "more waits to be delivered than fits into one commit; try again later";

impl<'a> Plan<'a> {
    fn feed(&mut self, source: &Stream) -> &mut MovedFeed {
        let index = self.index;
        self.feeds.entry(source.id).or_insert_with(|| MovedFeed::of(index, source))
    }

    /// Where a stream ends with what this commit has added.
    fn tail(&self, stream: &Stream) -> u64 {
        self.moved.get(&stream.id).map_or(stream.tail, |moved| moved.tail)
    }

    pub(super) fn publish(
        &mut self,
        name: &StreamName,
        append: &Append,
        fan_out: FanOut,
    ) -> Decided<Published> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        let appended = self.usable(name).and_then(|source| Ok((source, self.append_to(source, append)?)));
        Decided::Now(appended.map(|(source, appended)| {
            let nothing = Messages::default();
            let written = if appended.is_duplicate { &nothing } else { &append.messages };
            let (subscribers, mode) = match source.feed().is_some() || self.feeds.contains_key(&source.id) {
                true => self.deliver(source, written, fan_out),
                false => (0, FanOutMode::Inline),
            };
            Published { appended, subscribers, mode }
        }))
    }

    /// Delivers what was just appended, or leaves it for later, or leaves it out.
    fn deliver(&mut self, source: &Stream, written: &Messages, fan_out: FanOut) -> (usize, FanOutMode) {
        let to = self.tail(source);
        let start = to - written.data.len() as u64;
        let feed = *self.feed(source);
        let subscribers = feed.subscribers();
        if subscribers == 0 || feed.cursor == to {
            return (subscribers, FanOutMode::Inline);
        }
        let is_next = feed.cursor == start;
        if subscribers > fan_out.inline_max {
            if fan_out.beyond == Beyond::Queue || !is_next {
                return (subscribers, FanOutMode::Queued);
            }
            self.write_advance(source, to, true, None, None);
            return (subscribers, FanOutMode::Skipped);
        }
        let payload = is_next.then(|| written.clone());
        let wrapped = match feed.wrapped {
            0 => None,
            // Envelopes need the bytes, and here are only the last ones.
            _ if !is_next || is_too_much(source, written) => {
                return (subscribers, FanOutMode::Queued);
            }
            _ => Some(wrap(source, start, written)),
        };
        self.write_advance(source, to, false, wrapped, payload);
        (subscribers, FanOutMode::Inline)
    }

    fn write_advance(
        &mut self,
        source: &Stream,
        to: u64,
        skip: bool,
        wrapped: Option<Messages>,
        payload: Option<Messages>,
    ) {
        let (order, at) = (self.next_order, self.now);
        self.next_order += 1;
        let feed = self.feed(source);
        let from = std::mem::replace(&mut feed.cursor, to);
        feed.late = feed.late.filter(|late| *late > to);
        let wrapped = wrapped.zip(feed.twin.as_mut()).map(|(messages, (twin, tail))| {
            let start = *tail;
            *tail += messages.data.len() as u64;
            Wrapped { twin: *twin, start, messages }
        });
        let advance = Advance { order, at, source: source.id, from, to, skip, wrapped, payload };
        self.write(Record::Advance(Box::new(advance)));
    }

    /// Moves a source's deliveries on, if they are where the step begins.
    pub(super) fn advance(&mut self, name: &StreamName, step: &Step) -> Decided<FannedOut> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        // One that has expired delivers what waits as long as nobody has removed it.
        let source = match self.index.named(name) {
            Some(source) if source.deleted => return Decided::Now(Err(Error::Deleted(name.clone()))),
            Some(source) if source.id == step.id => source,
            _ => return Decided::Now(Err(Error::NotFound(name.clone()))),
        };
        let tail = self.tail(source);
        let feed = *self.feed(source);
        let wants = feed.wrapped > 0;
        // Somebody was faster, or it was read for others than are there now: the next step
        // does better.
        let fits = feed.cursor == step.from
            && step.to <= tail
            && (!wants || (step.wrapped.is_some() && feed.late.is_none_or(|late| step.to <= late)));
        let is_due = fits && feed.subscribers() > 0 && step.from < step.to;
        if is_due {
            let wrapped = step.wrapped.clone().filter(|_| wants);
            self.write_advance(source, step.to, false, wrapped, None);
        }
        let bytes = if is_due { step.to - step.from } else { 0 };
        let feed = *self.feed(source);
        let lag_bytes = if feed.subscribers() == 0 { 0 } else { tail - feed.cursor };
        Decided::Now(Ok(FannedOut { subscribers: feed.subscribers(), bytes, lag_bytes }))
    }

    /// Delivers what a source's subscribers wait for, before one of them leaves or the source
    /// ends: what was acknowledged while a session followed reaches it.
    ///
    /// Envelopes need the bytes, and a commit reads one step's worth at most: with more than
    /// that the answer is [`BEHIND`], and the caller delivers first and asks again.
    pub(super) fn deliver_rest(&mut self, source: &Stream) -> Decided<()> {
        let is_moved = self.moved.contains_key(&source.id) || self.feeds.contains_key(&source.id);
        if !is_moved && source.feed().is_none() {
            return Decided::Now(Ok(()));
        }
        let (feed, tail) = (*self.feed(source), self.tail(source));
        if feed.subscribers() == 0 || feed.cursor == tail {
            return Decided::Now(Ok(()));
        }
        if feed.wrapped == 0 {
            self.write_advance(source, tail, false, None, None);
            return Decided::Now(Ok(()));
        }
        // What this commit adds is not on the disk yet.
        if is_moved {
            return Decided::Later;
        }
        if tail - feed.cursor > FAN_OUT_BYTES as u64 {
            return Decided::Now(Err(Error::Busy(BEHIND)));
        }
        if let Err(error) = self.wrap_rest(source, feed.cursor) {
            // Nobody will ever be able to read it: that must not keep a session or a source.
            tracing::error!(%error, source = %source.name, "messages that waited for sessions cannot be read");
        }
        Decided::Now(Ok(()))
    }

    /// Delivers everything from `cursor` on in envelopes, with a stop wherever a subscriber begins.
    fn wrap_rest(&mut self, source: &Stream, cursor: u64) -> Result<(), Error> {
        let route = Route::plan_held(self.index, source, cursor, FAN_OUT_BYTES)?;
        let batch = route.fetch(FAN_OUT_BYTES)?;
        let mut stops = late_starts(self.index, source);
        stops.push(source.tail);
        let mut from = cursor;
        for stop in stops {
            let part = batch.between(Offset::new(from), Offset::new(stop));
            let wrapped =
                wrap(source, from, &Messages { data: part.data().clone(), ends: part.ends().to_vec() });
            if stop > from {
                self.write_advance(source, stop, false, Some(wrapped), None);
            }
            from = from.max(stop);
        }
        Ok(())
    }

    pub(super) fn subscribe(&mut self, subscribe: &Subscribe) -> Decided<Subscribed> {
        if self.must_wait(&subscribe.session) || self.must_wait(&subscribe.source) {
            return Decided::Later;
        }
        let source = match self.usable(&subscribe.source) {
            Ok(source) => source,
            Err(error) => return Decided::Now(Err(error)),
        };
        let there = self.index.named(&subscribe.session);
        let session = there.filter(|there| self.is_usable(there));
        if session.is_some_and(|session| self.changed.contains(&session.id)) {
            return Decided::Later;
        }
        if let Err(why) = can_follow(subscribe, session, source) {
            let (session, source_name) = (subscribe.session.clone(), subscribe.source.clone());
            return Decided::Now(Err(Error::CannotFollow { session, source_name, why }));
        }
        if let Some(session) = session
            && let Some(sub) = session.session().and_then(|it| it.sub(source.id))
        {
            let start = Offset::new(sub.start);
            self.write(Record::Touch { uses: vec![(session.id, self.now)] });
            let head = self.renewed(session);
            return Decided::Now(Ok(Subscribed { is_new_session: false, is_new: false, head, start }));
        }
        if let Some(there) = there.filter(|_| session.is_none()) {
            // It has expired, and nobody has noticed yet. Sessions have no forks.
            if there.deleted || there.forks > 0 {
                let what = "life: it was deleted and its forks need it";
                return Decided::Now(Err(Error::Conflict { name: there.name.clone(), what }));
            }
            match self.deliver_rest(there) {
                Decided::Now(Ok(())) => {}
                Decided::Now(Err(error)) => return Decided::Now(Err(error)),
                Decided::Later => return Decided::Later,
            }
            if !self.fix_chain(there) {
                return Decided::Later;
            }
            self.leave_all(there);
            self.write(Record::Delete { ids: vec![there.id], by_age: true });
        }
        Decided::Now(Ok(self.write_subscribe(subscribe, session, source)))
    }

    fn write_subscribe(
        &mut self,
        subscribe: &Subscribe,
        session: Option<&Stream>,
        source: &Stream,
    ) -> Subscribed {
        let (at, start) = (self.now, self.tail(source));
        let birth = session.is_none().then(|| self.birth_of(subscribe, source));
        let head: Head = match (&birth, session) {
            (Some(birth), _) => head_of(birth),
            (None, Some(session)) => self.renewed(session),
            (None, None) => unreachable!("a session is there or begins"),
        };
        let (feed, cursor, reached) = self.join_feed(subscribe, source, start);
        self.last_change += 1;
        let change = self.last_change;
        let session = head.id.0;
        self.changed.insert(session);
        let is_new_session = birth.is_some();
        let source = source.id;
        let record = record::Subscribe { change, at, session, birth, source, start, feed, reached, cursor };
        self.write(Record::Subscribe(Box::new(record)));
        Subscribed { is_new_session, is_new: true, head, start: Offset::new(start) }
    }

    /// What is known of a session that this commit uses: it lives longer from now on.
    fn renewed(&self, session: &Stream) -> Head {
        let head = self.index.head(session);
        let ends_at = head.ends_at.max(session.expiry.ends_at(time(self.now)));
        Head { ends_at, ..head }
    }

    fn birth_of(&mut self, subscribe: &Subscribe, source: &Stream) -> Birth {
        let id = self.next_id;
        self.next_id += 1;
        self.names.insert(subscribe.session.clone());
        Birth {
            id,
            at: self.now,
            name: subscribe.session.clone(),
            content_type: source.content_type.clone(),
            expiry: Expiry::Sliding { seconds: subscribe.ttl_seconds },
            closed: false,
            retention: Retention::default(),
            fork: None,
            messages: Messages::default(),
        }
    }

    /// The feed a new subscriber views, where its cursor jumps if it is the first, and where
    /// in the feed the subscriber begins.
    fn join_feed(&mut self, subscribe: &Subscribe, source: &Stream, start: u64) -> (u64, Option<u64>, u64) {
        let new_twin = self.next_id;
        let feed = self.feed(source);
        let cursor = (feed.subscribers() == 0).then_some(start);
        feed.cursor = cursor.unwrap_or(feed.cursor);
        if !subscribe.envelope {
            feed.bare += 1;
            return (source.id, cursor, start);
        }
        feed.wrapped += 1;
        let (twin, tail) = *feed.twin.get_or_insert((new_twin, 0));
        let is_late = feed.cursor < start;
        if is_late {
            feed.late = Some(feed.late.map_or(start, |late| late.min(start)));
        }
        self.next_id += u64::from(twin == new_twin);
        (twin, cursor, if is_late { LATE } else { tail })
    }

    /// Ends a subscription, behind what waits for it if `deliver` says so.
    pub(super) fn unsubscribe(
        &mut self,
        session: &StreamName,
        source: &StreamName,
        deliver: bool,
    ) -> Decided<bool> {
        if self.must_wait(session) || self.must_wait(source) {
            return Decided::Later;
        }
        let stream = match self.usable(session) {
            Ok(stream) if stream.session().is_some() => stream,
            Ok(_) => return Decided::Now(Err(Error::NotFound(session.clone()))),
            Err(error) => return Decided::Now(Err(error)),
        };
        if self.changed.contains(&stream.id) {
            return Decided::Later;
        }
        // An expired source has ended already, for its subscribers too.
        let followed = self.index.named(source).and_then(|it| Some((it, stream.session()?.sub(it.id)?)));
        let Some((source, sub)) = followed else { return Decided::Now(Ok(false)) };
        if deliver {
            match self.deliver_rest(source) {
                Decided::Now(Ok(())) => {}
                Decided::Now(Err(error)) => return Decided::Now(Err(error)),
                Decided::Later => return Decided::Later,
            }
        }
        self.last_change += 1;
        let (change, session, source) = (self.last_change, stream.id, sub.source);
        self.changed.insert(stream.id);
        self.leave(sub);
        self.write(Record::Unsubscribe { change, session, source });
        Decided::Now(Ok(true))
    }

    /// A source loses a subscriber.
    fn leave(&mut self, sub: &Sub) {
        let Some(source) = self.index.get(sub.source) else { return };
        let feed = self.feed(source);
        *(if sub.feed == sub.source { &mut feed.bare } else { &mut feed.wrapped }) -= 1;
    }

    /// A stream ends: if it is a session's, its sources lose a subscriber.
    pub(super) fn leave_all(&mut self, stream: &'a Stream) {
        let subs = stream.session().into_iter().flat_map(|session| &session.subs);
        subs.for_each(|sub| self.leave(sub));
    }

    pub(super) fn set_meta(&mut self, change: MetaChange) -> Result<(), Error> {
        let MetaChange { namespace, key, value } = change;
        let key = (namespace, key);
        let is_new =
            value.is_some() && !self.index.metas.contains_key(&key) && !self.new_metas.contains(&key);
        if is_new {
            if self.index.metas.len() + self.new_metas.len() >= META_ENTRIES_MAX {
                return Err(Error::TooLarge(format!("there are {META_ENTRIES_MAX} small values already")));
            }
            self.new_metas.insert(key.clone());
        }
        let (namespace, key) = key;
        self.write(Record::Meta { namespace, key, value });
        Ok(())
    }
}

/// Whether a session, if it is there, can follow a source.
fn can_follow(subscribe: &Subscribe, session: Option<&Stream>, source: &Stream) -> Result<(), &'static str> {
    if source.session().is_some() {
        return Err("it is a session's stream itself; subscribe to that session's sources");
    }
    if subscribe.envelope && source.content_type.mode() != Mode::Json {
        return Err("envelopes need a JSON source; subscribe without an envelope");
    }
    let Some(stream) = session else { return Ok(()) };
    let Some(session) = stream.session() else {
        return Err("there is an ordinary stream of that name; choose another session id");
    };
    if stream.content_type != source.content_type {
        return Err("their content types differ; use another session for this source");
    }
    match session.sub(source.id) {
        Some(sub) if (sub.feed != sub.source) != subscribe.envelope => {
            Err("it follows it already, the other way as to envelopes; unsubscribe first")
        }
        None if session.subs.len() >= SUBSCRIPTIONS_MAX => {
            Err("it follows as many streams as a session may; use another session")
        }
        _ => Ok(()),
    }
}

/// Where subscribers with envelopes begin whom the cursor has yet to reach, in order.
pub(in crate::embedded) fn late_starts(index: &Index, source: &Stream) -> Vec<u64> {
    let twin = source.feed().and_then(|feed| index.get(feed.twin?)?.feed());
    let start = |session: &u64| Some(index.get(*session)?.session()?.sub(source.id)?.start);
    let mut starts: Vec<u64> = twin.into_iter().flat_map(|twin| &twin.late).filter_map(start).collect();
    starts.sort_unstable();
    starts
}

fn wrap(source: &Stream, start: u64, messages: &Messages) -> Messages {
    let run = envelope::wrap(&source.name.id, Offset::new(start), &messages.data, &messages.ends);
    Messages { data: run.data.into(), ends: run.ends }
}

/// Whether the envelopes would make a commit too large.
fn is_too_much(source: &Stream, messages: &Messages) -> bool {
    let each = envelope::OVERHEAD_BYTES + 6 * source.name.id.len();
    messages.data.len() + messages.ends.len() * each > ENVELOPE_BYTES_MAX
}
