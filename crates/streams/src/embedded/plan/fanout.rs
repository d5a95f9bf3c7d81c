//! Decisions about sessions, deliveries and small values.

use towpath_model::stream::content_type::Mode;
use towpath_model::stream::envelope;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::super::index::Index;
use super::super::planned::PlannedFeed;
use super::super::queue::{Delivery, MetaValue};
use super::super::reader::ReadPlan;
use super::super::record::{AdvanceRecord, CreateRecord, Record, SubscribeRecord, Wrapped};
use super::super::session::{NOT_STARTED, Sub};
use super::super::stream::{Stream, time};
use super::{Decided, NotMade, Plan, head_of};
use crate::limits::{ENVELOPE_BYTES_MAX, FAN_OUT_BYTES, META_ENTRIES_MAX, SUBSCRIPTIONS_MAX};
use crate::{Beyond, Error, FanOut, FanOutMode, FannedOut, Head, Messages, Retention, Subscribe, Subscribed};

/// Why a change must wait for a fan-out: see [`Plan::deliver_rest`].
pub(in crate::embedded) const TOO_FAR_BEHIND: &str =
    "too many messages are waiting to be delivered in one commit; try again later";

impl<'a> Plan<'a> {
    fn feed(&mut self, source: &Stream) -> &mut PlannedFeed {
        let index = self.index;
        self.feeds.entry(source.id).or_insert_with(|| PlannedFeed::of(index, source))
    }

    /// The tail of a stream with what this commit appends.
    fn tail(&self, stream: &Stream) -> u64 {
        self.streams.get(&stream.id).map_or(stream.tail, |planned| planned.tail)
    }

    /// Delivers what was just appended to a source, leaves it for later, or skips it.
    pub(super) fn deliver(
        &mut self,
        source: &Stream,
        written: &Messages,
        fan_out: FanOut,
    ) -> (usize, FanOutMode) {
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
            // Envelopes need all bytes behind the cursor; only the last ones are at hand.
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
        let (delivery, at) = (self.next_delivery, self.now);
        self.next_delivery += 1;
        let feed = self.feed(source);
        let from = std::mem::replace(&mut feed.cursor, to);
        feed.next_start = feed.next_start.filter(|start| *start > to);
        let wrapped = wrapped.zip(feed.envelopes.as_mut()).map(|(messages, (stream, tail))| {
            let start = *tail;
            *tail += messages.data.len() as u64;
            Wrapped { stream: *stream, start, messages }
        });
        let source = source.id;
        let advance = AdvanceRecord { delivery, at, source, from, to, skip, wrapped, payload };
        self.write(Record::Advance(Box::new(advance)));
    }

    /// Advances the cursor of a source, if it is where the delivery begins.
    pub(super) fn deliver_step(&mut self, name: &StreamName, step: &Delivery) -> Decided<FannedOut> {
        self.check_free(name)?;
        // An expired source still delivers until it is removed.
        let source = match self.index.named(name) {
            Some(source) if source.deleted => return Err(Error::Deleted(name.clone()).into()),
            Some(source) if source.id == step.id => source,
            _ => return Err(Error::NotFound(name.clone()).into()),
        };
        let tail = self.tail(source);
        let feed = *self.feed(source);
        let wants = feed.wrapped > 0;
        // Another delivery came first, or the subscribers have changed since this one was read:
        // the next step sees the present state.
        let fits = feed.cursor == step.from
            && step.to <= tail
            && (!wants || (step.wrapped.is_some() && feed.next_start.is_none_or(|start| step.to <= start)));
        let is_due = fits && feed.subscribers() > 0 && step.from < step.to;
        if is_due {
            let wrapped = step.wrapped.clone().filter(|_| wants);
            self.write_advance(source, step.to, false, wrapped, None);
        }
        let bytes = if is_due { step.to - step.from } else { 0 };
        let feed = *self.feed(source);
        let lag_bytes = if feed.subscribers() == 0 { 0 } else { tail - feed.cursor };
        Ok(FannedOut { subscribers: feed.subscribers(), bytes, lag_bytes })
    }

    /// Delivers what the subscribers of a source wait for, before one of them leaves or the
    /// source ends: a session gets everything acknowledged while it followed.
    ///
    /// Envelopes need the bytes, and a commit reads at most one step of them. With more than
    /// that the answer is [`TOO_FAR_BEHIND`]; the caller delivers step by step and asks again.
    pub(super) fn deliver_rest(&mut self, source: &Stream) -> Decided<()> {
        let is_planned = self.streams.contains_key(&source.id) || self.feeds.contains_key(&source.id);
        if !is_planned && source.feed().is_none() {
            return Ok(());
        }
        let (feed, tail) = (*self.feed(source), self.tail(source));
        if feed.subscribers() == 0 || feed.cursor == tail {
            return Ok(());
        }
        if feed.wrapped == 0 {
            self.write_advance(source, tail, false, None, None);
            return Ok(());
        }
        // What this commit appends is not on the disk yet.
        if is_planned {
            return Err(NotMade::NextCommit);
        }
        if tail - feed.cursor > FAN_OUT_BYTES as u64 {
            return Err(Error::Busy(TOO_FAR_BEHIND).into());
        }
        if let Err(error) = self.wrap_rest(source, feed.cursor) {
            // These bytes can never be read. They must not keep a session or a source alive.
            tracing::error!(%error, source = %source.name, "cannot read messages waiting for sessions");
        }
        Ok(())
    }

    /// Delivers everything from `cursor` on in envelopes, in one step up to each subscriber's start.
    fn wrap_rest(&mut self, source: &Stream, cursor: u64) -> Result<(), Error> {
        let batch = ReadPlan::held(self.index, source, cursor, FAN_OUT_BYTES)?.read(FAN_OUT_BYTES)?;
        let mut stops = envelope_starts(self.index, source);
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
        self.check_free(&subscribe.session)?;
        self.check_free(&subscribe.source)?;
        let source = self.usable(&subscribe.source)?;
        let existing = self.index.named(&subscribe.session);
        let session = existing.filter(|existing| self.is_usable(existing));
        if session.is_some_and(|session| self.changed.contains(&session.id)) {
            return Err(NotMade::NextCommit);
        }
        if let Err(why) = can_follow(subscribe, session, source) {
            let (session, source_name) = (subscribe.session.clone(), subscribe.source.clone());
            return Err(Error::CannotFollow { session, source_name, why }.into());
        }
        if let Some(session) = session
            && let Some(sub) = session.session().and_then(|it| it.sub(source.id))
        {
            let start = Offset::new(sub.start);
            self.write(Record::Touch { uses: vec![(session.id, self.now)] });
            let head = self.renewed(session);
            return Ok(Subscribed { is_new_session: false, is_new: false, head, start });
        }
        if let Some(existing) = existing.filter(|_| session.is_none()) {
            self.end_expired(existing)?;
        }
        Ok(self.write_subscribe(subscribe, session, source))
    }

    fn write_subscribe(
        &mut self,
        subscribe: &Subscribe,
        session: Option<&Stream>,
        source: &Stream,
    ) -> Subscribed {
        let (at, start) = (self.now, self.tail(source));
        let create = session.is_none().then(|| self.session_stream(subscribe, source));
        let head: Head = match (&create, session) {
            (Some(create), _) => head_of(create),
            (None, Some(session)) => self.renewed(session),
            (None, None) => unreachable!("a session exists or is created"),
        };
        let (feed, cursor, next) = self.join_feed(subscribe, source, start);
        self.last_change += 1;
        let change = self.last_change;
        let session = head.id.0;
        self.changed.insert(session);
        let is_new_session = create.is_some();
        let source = source.id;
        let record = SubscribeRecord { change, at, session, create, source, start, feed, next, cursor };
        self.write(Record::Subscribe(Box::new(record)));
        Subscribed { is_new_session, is_new: true, head, start: Offset::new(start) }
    }

    /// What is known of a session that this commit uses: it lives longer from now on.
    fn renewed(&self, session: &Stream) -> Head {
        let head = self.index.head(session);
        let ends_at = head.ends_at.max(session.expiry.ends_at(time(self.now)));
        Head { ends_at, ..head }
    }

    /// The stream of a new session.
    fn session_stream(&mut self, subscribe: &Subscribe, source: &Stream) -> CreateRecord {
        self.names.insert(subscribe.session.clone());
        CreateRecord {
            id: self.new_id(),
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

    /// The feed that a new subscriber views, where the cursor jumps to if it is the first, and
    /// where in the feed the subscriber begins.
    fn join_feed(&mut self, subscribe: &Subscribe, source: &Stream, start: u64) -> (u64, Option<u64>, u64) {
        let new_id = self.next_id;
        let feed = self.feed(source);
        let cursor = (feed.subscribers() == 0).then_some(start);
        feed.cursor = cursor.unwrap_or(feed.cursor);
        if !subscribe.envelope {
            feed.bare += 1;
            return (source.id, cursor, start);
        }
        feed.wrapped += 1;
        let (envelopes, tail) = *feed.envelopes.get_or_insert((new_id, 0));
        let has_started = feed.cursor >= start;
        if !has_started {
            feed.next_start = Some(feed.next_start.map_or(start, |next| next.min(start)));
        }
        self.next_id += u64::from(envelopes == new_id);
        (envelopes, cursor, if has_started { tail } else { NOT_STARTED })
    }

    /// Ends a subscription; with `deliver`, after everything that waits for it is delivered.
    pub(super) fn unsubscribe(
        &mut self,
        session: &StreamName,
        source: &StreamName,
        deliver: bool,
    ) -> Decided<bool> {
        self.check_free(session)?;
        self.check_free(source)?;
        let stream = self.usable(session)?;
        let subs = stream.session().ok_or_else(|| Error::NotFound(session.clone()))?;
        if self.changed.contains(&stream.id) {
            return Err(NotMade::NextCommit);
        }
        // A source that has expired has ended, for its subscribers too.
        let followed = self.index.named(source).and_then(|source| Some((source, subs.sub(source.id)?)));
        let Some((source, sub)) = followed else { return Ok(false) };
        if deliver {
            self.deliver_rest(source)?;
        }
        self.last_change += 1;
        let (change, session, source) = (self.last_change, stream.id, sub.source);
        self.changed.insert(stream.id);
        self.unfollow(sub);
        self.write(Record::Unsubscribe { change, session, source });
        Ok(true)
    }

    /// A source loses a subscriber.
    fn unfollow(&mut self, sub: &Sub) {
        let Some(source) = self.index.get(sub.source) else { return };
        let feed = self.feed(source);
        *(if sub.feed == sub.source { &mut feed.bare } else { &mut feed.wrapped }) -= 1;
    }

    /// A stream ends: if it is a session's, its sources lose a subscriber.
    pub(super) fn unfollow_all(&mut self, stream: &'a Stream) {
        let subs = stream.session().into_iter().flat_map(|session| &session.subs);
        subs.for_each(|sub| self.unfollow(sub));
    }

    pub(super) fn set_meta(&mut self, meta: &MetaValue) -> Result<(), Error> {
        let MetaValue { namespace, key, value } = meta.clone();
        let key = (namespace, key);
        let is_new = !self.index.metas.contains_key(&key) && !self.new_metas.contains(&key);
        if is_new && value.is_some() {
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

/// Whether a session, which may not exist yet, can follow a source.
fn can_follow(subscribe: &Subscribe, session: Option<&Stream>, source: &Stream) -> Result<(), &'static str> {
    if source.session().is_some() {
        return Err("it is a session's stream; subscribe to that session's sources");
    }
    if subscribe.envelope && source.content_type.mode() != Mode::Json {
        return Err("envelopes require a JSON source; subscribe without an envelope");
    }
    let Some(stream) = session else { return Ok(()) };
    let Some(session) = stream.session() else {
        return Err("an ordinary stream has that name; choose another session id");
    };
    if stream.content_type != source.content_type {
        return Err("their content types differ; use another session for this source");
    }
    match session.sub(source.id) {
        Some(sub) if (sub.feed != sub.source) != subscribe.envelope => {
            Err("it already follows it with the other envelope setting; unsubscribe first")
        }
        None if session.subs.len() >= SUBSCRIPTIONS_MAX => {
            Err("the session has reached its limit of subscriptions; use another session")
        }
        _ => Ok(()),
    }
}

/// Starts of subscribers with envelopes that the cursor has not reached yet, in order.
pub(in crate::embedded) fn envelope_starts(index: &Index, source: &Stream) -> Vec<u64> {
    let envelopes = source.feed().and_then(|feed| index.get(feed.envelopes?)?.feed());
    let start = |session: &u64| Some(index.get(*session)?.session()?.sub(source.id)?.start);
    let waiting = envelopes.into_iter().flat_map(|feed| &feed.not_started);
    let mut starts: Vec<u64> = waiting.filter_map(start).collect();
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
