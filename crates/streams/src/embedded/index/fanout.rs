//! Sessions and their sources in the index.
//!
//! A delivery advances the cursor of a source and adds one entry to its feed. A session pulls
//! entries, that is, makes views of them, when it is read, when its subscriptions change, or when
//! a feed is full. The numbers of the deliveries decide the order, so the result does
//! not depend on when a session pulls, and a crash changes nothing.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::{Index, Location, Observer, Phase, grow};
use crate::embedded::feed::{Feed, Part};
use crate::embedded::pieces::Pieces;
use crate::embedded::record::{AdvanceRecord, SubscribeRecord, Wrapped};
use crate::embedded::session::{NOT_STARTED, Sub};
use crate::embedded::stream::Stream;
use crate::{FanOutState, Head, Messages};

impl Index {
    /// The tail of a stream, with what a session has yet to pull.
    pub(in crate::embedded) fn tail_of(&self, stream: &Stream) -> u64 {
        stream.tail + self.pending(stream)
    }

    /// What is known of a stream.
    pub(in crate::embedded) fn head(&self, stream: &Stream) -> Head {
        Head { tail: Offset::new(self.tail_of(stream)), ..stream.head() }
    }

    /// Bytes that were delivered to a session and that it has not pulled yet.
    pub(in crate::embedded) fn pending(&self, stream: &Stream) -> u64 {
        let Some(session) = stream.session() else { return 0 };
        let pending = |sub: &Sub| self.feed(sub.feed).map_or(0, |feed| feed.pending(sub.next));
        session.subs.iter().map(pending).sum()
    }

    fn feed(&self, id: u64) -> Option<&Feed> {
        self.get(id)?.feed()
    }

    fn feed_mut(&mut self, id: u64) -> Option<&mut Feed> {
        self.get_mut(id)?.feed_mut()
    }

    /// Makes views of everything that was delivered to a session.
    pub(in crate::embedded) fn pull(&mut self, id: u64) {
        let parts = self.to_pull(id);
        let Some(stream) = self.get_mut(id).filter(|_| !parts.is_empty()) else { return };
        let mut tail = stream.tail;
        if let Some(session) = stream.session_mut() {
            for part in parts {
                tail = session.add_view(tail, part);
            }
        }
        stream.tail = tail;
        self.sessions.pulls += 1;
    }

    /// What was delivered to a session since it pulled last, in order.
    fn to_pull(&self, id: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let Some(session) = self.get(id).and_then(Stream::session) else { return parts };
        let alone = session.subs.len() == 1;
        for sub in &session.subs {
            if let Some(feed) = self.feed(sub.feed) {
                feed.parts_after(sub.feed, sub.next, alone, &mut parts);
            }
        }
        parts.sort_unstable_by_key(|part| part.delivery);
        parts
    }

    /// Subscribers of a source, without and with envelopes.
    pub(in crate::embedded) fn subscribers(&self, source: &Stream) -> (usize, usize) {
        let Some(feed) = source.feed() else { return (0, 0) };
        let envelopes = feed.envelopes.and_then(|stream| self.feed(stream));
        (feed.sessions.len(), envelopes.map_or(0, |feed| feed.sessions.len()))
    }

    /// How far the fan-out of a source has come.
    pub(in crate::embedded) fn fan_out_state(&self, source: &Stream) -> FanOutState {
        let (bare, wrapped) = self.subscribers(source);
        let cursor = source.feed().map_or(source.tail, |feed| feed.cursor);
        let tail = Offset::new(source.tail);
        FanOutState { subscribers: bare + wrapped, cursor: Offset::new(cursor).min(tail), tail }
    }

    /// Updates whether sessions wait for messages of a source.
    pub(super) fn note_lag(&mut self, source: u64) {
        let lags = |stream: &Stream| !stream.deleted && self.fan_out_state(stream).lag_bytes() > 0;
        let lags = self.get(source).is_some_and(lags);
        match lags {
            true => drop(self.lagging.insert(source)),
            false => drop(self.lagging.remove(&source)),
        }
        if let Some(feed) = self.feed_mut(source) {
            feed.lags = lags;
        }
    }

    /// Sources whose sessions wait for something.
    pub(in crate::embedded) fn lagging_sources(&self, limit: usize) -> Vec<(StreamName, FanOutState)> {
        let sources = self.lagging.iter().filter_map(|id| self.get(*id)).take(limit);
        sources.map(|source| (source.name.clone(), self.fan_out_state(source))).collect()
    }

    /// Marks a session as followed live in the feeds of its sources.
    pub(in crate::embedded) fn follow_session(&mut self, id: u64) {
        let subs = self.get(id).and_then(Stream::session).map(|session| session.subs.clone());
        for sub in subs.into_iter().flatten() {
            if let Some(feed) = self.feed_mut(sub.feed).filter(|feed| !feed.followed.contains(&id)) {
                feed.followed.push(id);
            }
        }
    }

    pub(super) fn subscribe(&mut self, subscribe: &SubscribeRecord, location: Location) {
        let SubscribeRecord { change, at, session: id, source, start, feed, next, .. } = *subscribe;
        self.last_change = self.last_change.max(change);
        if let Some(create) = &subscribe.create
            && self.get(id).is_none()
        {
            self.create(create, location);
            if let Some(stream) = self.get_mut(id) {
                stream.more().session = Some(Box::default());
            }
            self.sessions.sessions += 1;
            self.sessions.created += 1;
        }
        if !self.make_feed(subscribe) {
            return;
        }
        let Some(stream) = self.get_mut(id) else { return };
        stream.used_at.fetch_max(at, Ordering::Relaxed);
        stream.saved_at.fetch_max(at, Ordering::Relaxed);
        let is_followed = stream.live.strong_count() > 0;
        let Some(session) = stream.session_mut() else { return };
        if session.changed < change {
            session.changed = change;
            if session.sub(source).is_none() {
                session.subs.push(Sub { source, feed, start, since: at, next });
            }
        }
        // A checkpoint may hold the session and not the feed: then they are linked here.
        let Some(Sub { feed, next, .. }) = session.sub(source).copied() else { return };
        if let Some(feed) = self.feed_mut(feed).filter(|feed| !feed.sessions.contains(&id)) {
            feed.sessions.insert(id);
            if next == NOT_STARTED {
                feed.not_started.push(id);
            }
            if is_followed {
                feed.followed.push(id);
            }
        }
        self.update_holds(id);
        self.note_lag(source);
    }

    /// Gives a source its feed, and its envelope stream if that is what the session views. False
    /// if the source does not exist: the replayed log deletes it later.
    fn make_feed(&mut self, subscribe: &SubscribeRecord) -> bool {
        let SubscribeRecord { source: id, feed: viewed, at, start, .. } = *subscribe;
        let Some(source) = self.get_mut(id) else { return false };
        let feed =
            source.more().feed.get_or_insert_with(|| Box::new(Feed { cursor: start, ..Feed::default() }));
        if let Some(cursor) = subscribe.cursor {
            feed.cursor = feed.cursor.max(cursor);
        }
        if viewed == id {
            return true;
        }
        feed.envelopes = Some(viewed);
        let (project, content_type) = (source.name.project.clone(), source.content_type.clone());
        if self.get(viewed).is_none() {
            let mut stream = nameless(viewed, StreamName { project, id: "".into() }, content_type, at);
            stream.more().feed = Some(Box::new(Feed { envelopes_of: Some(id), ..Feed::default() }));
            self.insert(stream);
        }
        true
    }

    pub(super) fn unsubscribe(&mut self, change: u64, id: u64, source: u64) {
        self.last_change = self.last_change.max(change);
        if self.get(id).and_then(Stream::session).is_none_or(|session| session.changed >= change) {
            return;
        }
        self.pull(id);
        self.unlink(id, source);
        if let Some(session) = self.get_mut(id).and_then(Stream::session_mut) {
            session.changed = change;
        }
        self.update_holds(id);
        self.note_lag(source);
    }

    /// Removes one subscription of a session.
    fn unlink(&mut self, id: u64, source: u64) {
        let Some(session) = self.get_mut(id).and_then(Stream::session_mut) else { return };
        let Some(position) = session.subs.iter().position(|sub| sub.source == source) else { return };
        let sub = session.subs.remove(position);
        if let Some(feed) = self.feed_mut(sub.feed) {
            feed.sessions.remove(&id);
            feed.followed.retain(|followed| *followed != id);
            feed.not_started.retain(|session| *session != id);
        }
    }

    pub(super) fn advance(
        &mut self,
        advance: &AdvanceRecord,
        location: Location,
        observer: &mut impl Observer,
    ) {
        let AdvanceRecord { delivery, source: id, from, to, skip, .. } = *advance;
        self.next_delivery = self.next_delivery.max(delivery + 1);
        if let Some(wrapped) = &advance.wrapped {
            self.grow_envelopes(advance, wrapped, location);
        }
        if let Some(feed) = self.feed_mut(id).filter(|feed| feed.cursor == from) {
            feed.cursor = to;
            if !skip {
                feed.push(delivery, from, to);
            }
        }
        self.note_lag(id);
        if skip {
            return;
        }
        self.notify(id, advance.payload.as_ref(), observer);
        if let Some(wrapped) = &advance.wrapped {
            self.notify(wrapped.stream, Some(&wrapped.messages), observer);
        }
    }

    /// Appends to the envelope stream of a source, and starts subscribers that waited for that.
    fn grow_envelopes(&mut self, advance: &AdvanceRecord, wrapped: &Wrapped, location: Location) {
        let Wrapped { stream: id, start, messages } = wrapped;
        let end = start + messages.data.len() as u64;
        let Some(stream) = self.get_mut(*id) else { return };
        if stream.tail == *start && !messages.is_empty() {
            grow(stream, messages, location, advance.at);
            if let Some(feed) = stream.feed_mut() {
                feed.push(advance.delivery, *start, end);
                feed.cursor = end;
            }
        }
        let Some(feed) = stream.feed_mut().filter(|feed| !feed.not_started.is_empty()) else { return };
        for session in std::mem::take(&mut feed.not_started) {
            let sub = self.get_mut(session).and_then(Stream::session_mut);
            let sub = sub.and_then(|session| session.subs.iter_mut().find(|sub| sub.feed == *id));
            match sub.filter(|sub| sub.next == NOT_STARTED) {
                // A delivery never goes beyond the start of a subscriber.
                Some(sub) if sub.start <= advance.to => {
                    sub.next = end;
                    self.update_holds(session);
                }
                Some(_) => self.feed_mut(*id).into_iter().for_each(|feed| feed.not_started.push(session)),
                None => {}
            }
        }
    }

    /// Notifies the watcher and the live followers of sessions of a delivery.
    fn notify(&mut self, id: u64, messages: Option<&Messages>, observer: &mut impl Observer) {
        let Some(feed) = self.feed_mut(id) else { return };
        let is_full = feed.is_full();
        let mut followed = std::mem::take(&mut feed.followed);
        followed.retain(|session| {
            let start = match self.get(*session) {
                Some(stream) if stream.live.strong_count() > 0 => stream.tail,
                _ => return false,
            };
            self.pull(*session);
            let Some(stream) = self.get(*session) else { return false };
            // Earlier deliveries, and bytes that are not in memory, are read from the disk.
            let whole = messages.filter(|it| start + it.data.len() as u64 == stream.tail);
            if stream.tail > start {
                observer.delivered(stream, start, whole);
            }
            true
        });
        if let Some(feed) = self.feed_mut(id) {
            feed.followed = followed;
        }
        let Some(stream) = self.get(id) else { return };
        if observer.wants_sessions(&stream.name.project) {
            let sessions = stream.feed().into_iter().flat_map(|feed| &feed.sessions);
            for session in sessions.filter_map(|session| self.get(*session)) {
                observer.changed(session, self.tail_of(session));
            }
        }
        if is_full && self.phase == Phase::Serving {
            self.empty_feed(id);
        }
    }

    /// Has every session pull the entries of a feed, and drops them.
    fn empty_feed(&mut self, id: u64) {
        let sessions: Vec<u64> = self.feed(id).into_iter().flat_map(|feed| &feed.sessions).copied().collect();
        sessions.into_iter().for_each(|session| self.pull(session));
        if let Some(feed) = self.feed_mut(id) {
            feed.entries.clear();
        }
    }

    /// Ends all subscriptions of and to a stream that ends.
    pub(super) fn end_fan_out(&mut self, id: u64) {
        let Some(stream) = self.get(id) else { return };
        let sources: Vec<u64> =
            stream.session().into_iter().flat_map(|it| &it.subs).map(|sub| sub.source).collect();
        self.sessions.subscriptions_removed += sources.len() as u64;
        for source in sources {
            self.unlink(id, source);
            self.note_lag(source);
        }
        let Some(feed) = self.feed(id) else { return };
        let envelopes = feed.envelopes;
        let mut sessions: Vec<u64> = feed.sessions.iter().copied().collect();
        let wrapped = envelopes.and_then(|stream| self.feed(stream));
        sessions.extend(wrapped.into_iter().flat_map(|feed| &feed.sessions));
        self.sessions.subscriptions_removed += sessions.len() as u64;
        for session in sessions {
            self.pull(session);
            self.unlink(session, id);
            self.update_holds(session);
        }
        self.lagging.remove(&id);
        if let Some(envelopes) = envelopes {
            if let Some(feed) = self.feed_mut(envelopes) {
                feed.envelopes_of = None;
            }
            self.remove_if_unused(envelopes);
        }
    }

    /// Drops the views of a session before its start.
    pub(super) fn trim_session(&mut self, id: u64) {
        self.pull(id);
        let Some(stream) = self.get_mut(id) else { return };
        let start = stream.start;
        let tail = stream.tail.max(start);
        if let Some(session) = stream.session_mut() {
            session.drop_before(start, tail);
            // In a replay, views may be missing that this trim drops.
            stream.tail = tail;
            self.update_holds(id);
        }
    }

    /// Updates which bytes of which streams a session needs.
    fn update_holds(&mut self, id: u64) {
        let Some(session) = self.get(id).and_then(Stream::session) else { return };
        let mut needs = session.needs();
        needs.retain(|(feed, _)| self.feed(*feed).is_some());
        let Some(session) = self.get_mut(id).and_then(Stream::session_mut) else { return };
        let old = std::mem::replace(&mut session.holds, needs.clone());
        for (feed, from) in &needs {
            if let Some(feed) = self.feed_mut(*feed) {
                feed.hold(*from);
            }
        }
        old.into_iter().for_each(|(feed, from)| self.release(feed, from));
    }

    /// Ends a hold of a session.
    pub(super) fn release(&mut self, id: u64, from: u64) {
        let Some(stream) = self.get_mut(id) else { return };
        if let Some(feed) = stream.feed_mut() {
            feed.release(from);
        }
        // In a replay, a later record may need the bytes: `finish_sessions` looks again.
        if self.phase != Phase::Replaying {
            self.get_mut(id).into_iter().for_each(Stream::drop_trimmed);
            self.remove_if_unused(id);
        }
    }

    /// Links sessions and sources once a checkpoint is read.
    pub(super) fn link_sessions(&mut self) {
        let sessions: Vec<u64> =
            self.all().filter(|stream| stream.session().is_some()).map(|stream| stream.id).collect();
        self.sessions.sessions = sessions.len();
        for id in sessions {
            let subs = self.get(id).and_then(Stream::session).map(|session| session.subs.clone());
            for sub in subs.into_iter().flatten() {
                if let Some(feed) = self.feed_mut(sub.feed) {
                    feed.sessions.insert(id);
                    if sub.next == NOT_STARTED {
                        feed.not_started.push(id);
                    }
                }
            }
            self.update_holds(id);
        }
        // A hidden stream that only sessions view has no name.
        let hidden: Vec<u64> =
            self.all().filter(|it| it.deleted && it.forks == 0).map(|stream| stream.id).collect();
        hidden.into_iter().for_each(|id| self.forget_name(id));
    }

    /// Once the log is replayed: has every session pull what was delivered to it, and ends
    /// subscriptions to sources that ended while the checkpoint was being written.
    pub(super) fn finish_sessions(&mut self) {
        let sessions: Vec<u64> =
            self.all().filter(|stream| stream.session().is_some()).map(|stream| stream.id).collect();
        for id in &sessions {
            self.pull(*id);
            self.update_holds(*id);
        }
        // Sessions that wait for a source hold trimmed bytes of it: note that before any are dropped.
        let sources: Vec<u64> =
            self.all().filter(|stream| stream.feed().is_some()).map(|stream| stream.id).collect();
        sources.iter().for_each(|id| self.note_lag(*id));
        self.phase = Phase::Serving;
        for id in sessions {
            let session = self.get(id).and_then(Stream::session);
            let sources: Vec<u64> =
                session.into_iter().flat_map(|it| &it.subs).map(|sub| sub.source).collect();
            for source in sources {
                if self.get(source).is_none_or(|source| source.deleted) {
                    self.unlink(id, source);
                    self.update_holds(id);
                }
            }
        }
        for id in sources {
            let envelopes_of = self.feed(id).and_then(|feed| feed.envelopes_of);
            let is_orphan = envelopes_of.is_some_and(|of| self.get(of).is_none_or(|source| source.deleted));
            let Some(stream) = self.get_mut(id) else { continue };
            stream.drop_trimmed();
            if let Some(feed) = stream.feed_mut() {
                feed.entries.clear();
                feed.envelopes_of = feed.envelopes_of.filter(|_| !is_orphan);
            }
            self.note_lag(id);
        }
    }
}

/// A stream without a name: it cannot be read directly.
fn nameless(id: u64, name: StreamName, content_type: ContentType, at: u64) -> Stream {
    Stream {
        id,
        name,
        content_type,
        expiry: Expiry::Never,
        created_at: at,
        used_at: AtomicU64::new(at),
        saved_at: AtomicU64::new(at),
        start: 0,
        tail: 0,
        closed: false,
        deleted: true,
        forks: 0,
        pieces: Pieces::default(),
        more: None,
        live: Weak::new(),
    }
}
