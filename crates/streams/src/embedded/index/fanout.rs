//! Sessions and their sources in the index.
//!
//! Delivering moves a source's cursor and writes one entry into its feed. A session takes
//! entries in (`settle`) when somebody looks at it, when it changes what it follows, or when
//! a feed has become long. The order of all deliveries decides what comes where, so the
//! result is the same whenever that happens, also after a crash.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::{Hear, Index, Place, grow};
use crate::embedded::feed::{Feed, Part};
use crate::embedded::pieces::Pieces;
use crate::embedded::record::{Advance, Subscribe, Wrapped};
use crate::embedded::session::{LATE, Sub};
use crate::embedded::stream::Stream;
use crate::{FanOutState, Head, Messages};

impl Index {
    /// A stream's tail with what a session has not taken in yet.
    pub(in crate::embedded) fn tail_of(&self, stream: &Stream) -> u64 {
        stream.tail + self.pending(stream)
    }

    /// What is known of a stream.
    pub(in crate::embedded) fn head(&self, stream: &Stream) -> Head {
        Head { tail: Offset::new(self.tail_of(stream)), ..stream.head() }
    }

    /// Bytes that were delivered to a session and not taken in yet.
    pub(in crate::embedded) fn pending(&self, stream: &Stream) -> u64 {
        let Some(session) = stream.session() else { return 0 };
        let pending = |sub: &Sub| self.feed(sub.feed).map_or(0, |feed| feed.pending(sub.reached));
        session.subs.iter().map(pending).sum()
    }

    fn feed(&self, id: u64) -> Option<&Feed> {
        self.get(id)?.feed()
    }

    fn feed_mut(&mut self, id: u64) -> Option<&mut Feed> {
        self.get_mut(id)?.feed_mut()
    }

    /// Has a session take in everything that was delivered to it.
    pub(in crate::embedded) fn settle(&mut self, id: u64) {
        let parts = self.unsettled(id);
        let Some(stream) = self.get_mut(id).filter(|_| !parts.is_empty()) else { return };
        let mut tail = stream.tail;
        if let Some(session) = stream.session_mut() {
            for part in parts {
                tail = session.take_in(tail, part);
            }
        }
        stream.tail = tail;
        self.sessions.settled += 1;
    }

    /// What was delivered to a session since it last took something in, in order.
    fn unsettled(&self, id: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let Some(session) = self.get(id).and_then(Stream::session) else { return parts };
        let alone = session.subs.len() == 1;
        for sub in &session.subs {
            if let Some(feed) = self.feed(sub.feed) {
                feed.after(sub.feed, sub.reached, alone, &mut parts);
            }
        }
        parts.sort_unstable_by_key(|part| part.order);
        parts
    }

    /// Subscribers of a source, with and without envelopes.
    pub(in crate::embedded) fn subscribers(&self, source: &Stream) -> (usize, usize) {
        let Some(feed) = source.feed() else { return (0, 0) };
        let twin = feed.twin.and_then(|twin| self.feed(twin));
        (feed.sessions.len(), twin.map_or(0, |twin| twin.sessions.len()))
    }

    /// How far a source's deliveries have come.
    pub(in crate::embedded) fn fan_out_state(&self, source: &Stream) -> FanOutState {
        let (bare, wrapped) = self.subscribers(source);
        let cursor = source.feed().map_or(source.tail, |feed| feed.cursor);
        let tail = Offset::new(source.tail);
        FanOutState { subscribers: bare + wrapped, cursor: Offset::new(cursor).min(tail), tail }
    }

    /// Notes whether a source's subscribers wait for something.
    pub(super) fn note_lag(&mut self, source: u64) {
        let lags = |stream: &Stream| !stream.deleted && self.fan_out_state(stream).lag_bytes() > 0;
        let lags = self.get(source).is_some_and(lags);
        match lags {
            true => drop(self.behind.insert(source)),
            false => drop(self.behind.remove(&source)),
        }
        if let Some(feed) = self.feed_mut(source) {
            feed.lags = lags;
        }
    }

    /// Sources whose subscribers wait for something.
    pub(in crate::embedded) fn lagging(&self, limit: usize) -> Vec<(StreamName, FanOutState)> {
        let sources = self.behind.iter().filter_map(|id| self.get(*id)).take(limit);
        sources.map(|source| (source.name.clone(), self.fan_out_state(source))).collect()
    }

    /// Notes that a session's stream is followed live from now on.
    pub(in crate::embedded) fn follow_session(&mut self, id: u64) {
        let subs = self.get(id).and_then(Stream::session).map(|session| session.subs.clone());
        for sub in subs.into_iter().flatten() {
            if let Some(feed) = self.feed_mut(sub.feed).filter(|feed| !feed.followed.contains(&id)) {
                feed.followed.push(id);
            }
        }
    }

    pub(super) fn subscribe(&mut self, subscribe: &Subscribe, place: Place) {
        let Subscribe { change, at, session: id, source, start, feed, reached, .. } = *subscribe;
        self.last_change = self.last_change.max(change);
        if let Some(birth) = &subscribe.birth
            && self.get(id).is_none()
        {
            self.create(birth, place);
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
                session.subs.push(Sub { source, feed, start, since: at, reached });
            }
        }
        // A checkpoint may have had the session and not the feed: then it is linked here.
        let Some(Sub { feed, reached, .. }) = session.sub(source).copied() else { return };
        if let Some(feed) = self.feed_mut(feed).filter(|feed| !feed.sessions.contains(&id)) {
            feed.sessions.insert(id);
            if reached == LATE {
                feed.late.push(id);
            }
            if is_followed {
                feed.followed.push(id);
            }
        }
        self.hold_anew(id);
        self.note_lag(source);
    }

    /// Makes a source one that can be followed, and its twin. False if it is gone: that
    /// happens while a log is replayed that ends it later.
    fn make_feed(&mut self, subscribe: &Subscribe) -> bool {
        let Subscribe { source: id, feed: viewed, at, start, .. } = *subscribe;
        let Some(source) = self.get_mut(id) else { return false };
        let feed =
            source.more().feed.get_or_insert_with(|| Box::new(Feed { cursor: start, ..Feed::default() }));
        if let Some(cursor) = subscribe.cursor {
            feed.cursor = feed.cursor.max(cursor);
        }
        if viewed == id {
            return true;
        }
        feed.twin = Some(viewed);
        let (project, content_type) = (source.name.project.clone(), source.content_type.clone());
        if self.get(viewed).is_none() {
            let mut twin = nameless(viewed, StreamName { project, id: "".into() }, content_type, at);
            twin.more().feed = Some(Box::new(Feed { twin_of: Some(id), ..Feed::default() }));
            self.insert(twin);
        }
        true
    }

    pub(super) fn unsubscribe(&mut self, change: u64, id: u64, source: u64) {
        self.last_change = self.last_change.max(change);
        if self.get(id).and_then(Stream::session).is_none_or(|session| session.changed >= change) {
            return;
        }
        self.settle(id);
        self.leave(id, source);
        if let Some(session) = self.get_mut(id).and_then(Stream::session_mut) {
            session.changed = change;
        }
        self.hold_anew(id);
        self.note_lag(source);
    }

    /// Forgets one subscription of a session.
    fn leave(&mut self, id: u64, source: u64) {
        let Some(session) = self.get_mut(id).and_then(Stream::session_mut) else { return };
        let Some(position) = session.subs.iter().position(|sub| sub.source == source) else { return };
        let sub = session.subs.remove(position);
        if let Some(feed) = self.feed_mut(sub.feed) {
            feed.sessions.remove(&id);
            feed.followed.retain(|followed| *followed != id);
            feed.late.retain(|late| *late != id);
        }
    }

    pub(super) fn advance(&mut self, advance: &Advance, place: Place, heard: &mut impl Hear) {
        let Advance { order, source: id, from, to, skip, .. } = *advance;
        self.next_order = self.next_order.max(order + 1);
        if let Some(wrapped) = &advance.wrapped {
            self.wrap(advance, wrapped, place);
        }
        if let Some(feed) = self.feed_mut(id).filter(|feed| feed.cursor == from) {
            feed.cursor = to;
            if !skip {
                feed.push(order, from, to);
            }
        }
        self.note_lag(id);
        if skip {
            return;
        }
        self.tell(id, advance.payload.as_ref(), heard);
        if let Some(wrapped) = &advance.wrapped {
            self.tell(wrapped.twin, Some(&wrapped.messages), heard);
        }
    }

    /// A source's twin grows, and those who waited for that begin.
    fn wrap(&mut self, advance: &Advance, wrapped: &Wrapped, place: Place) {
        let Wrapped { twin: id, start, messages } = wrapped;
        let end = start + messages.data.len() as u64;
        let Some(twin) = self.get_mut(*id) else { return };
        if twin.tail == *start && !messages.is_empty() {
            grow(twin, messages, place, advance.at);
            if let Some(feed) = twin.feed_mut() {
                feed.push(advance.order, *start, end);
                feed.cursor = end;
            }
        }
        let Some(feed) = twin.feed_mut().filter(|feed| !feed.late.is_empty()) else { return };
        for session in std::mem::take(&mut feed.late) {
            let sub = self.get_mut(session).and_then(Stream::session_mut);
            let sub = sub.and_then(|session| session.subs.iter_mut().find(|sub| sub.feed == *id));
            match sub.filter(|sub| sub.reached == LATE) {
                // A fan-out never goes beyond a start that somebody waits at.
                Some(sub) if sub.start <= advance.to => {
                    sub.reached = end;
                    self.hold_anew(session);
                }
                Some(_) => self.feed_mut(*id).into_iter().for_each(|feed| feed.late.push(session)),
                None => {}
            }
        }
    }

    /// Hands a delivery to those who follow their session live, and to a watcher.
    fn tell(&mut self, id: u64, messages: Option<&Messages>, heard: &mut impl Hear) {
        let Some(feed) = self.feed_mut(id) else { return };
        let is_crowded = feed.is_crowded();
        let mut followed = std::mem::take(&mut feed.followed);
        followed.retain(|session| {
            let start = match self.get(*session) {
                Some(stream) if stream.live.strong_count() > 0 => stream.tail,
                _ => return false,
            };
            self.settle(*session);
            let Some(stream) = self.get(*session) else { return false };
            // What was delivered before, or is not at hand, is read from the disk.
            let whole = messages.filter(|it| start + it.data.len() as u64 == stream.tail);
            if stream.tail > start {
                heard.delivered(stream, start, whole);
            }
            true
        });
        if let Some(feed) = self.feed_mut(id) {
            feed.followed = followed;
        }
        let Some(stream) = self.get(id) else { return };
        if heard.hears_sessions(&stream.name.project) {
            let sessions = stream.feed().into_iter().flat_map(|feed| &feed.sessions);
            for session in sessions.filter_map(|session| self.get(*session)) {
                heard.announce(session, self.tail_of(session));
            }
        }
        if is_crowded && !self.keeps_feeds && !self.is_replaying {
            self.sweep(id);
        }
    }

    /// Has every session take in what a feed remembers, which it then forgets.
    fn sweep(&mut self, id: u64) {
        let sessions: Vec<u64> = self.feed(id).into_iter().flat_map(|feed| &feed.sessions).copied().collect();
        sessions.into_iter().for_each(|session| self.settle(session));
        if let Some(feed) = self.feed_mut(id) {
            feed.log.clear();
        }
    }

    /// What follows a stream that ends follows it no more. What it follows, neither.
    pub(super) fn end_fan_out(&mut self, id: u64) {
        let Some(stream) = self.get(id) else { return };
        let sources: Vec<u64> =
            stream.session().into_iter().flat_map(|it| &it.subs).map(|sub| sub.source).collect();
        self.sessions.subscriptions_removed += sources.len() as u64;
        for source in sources {
            self.leave(id, source);
            self.note_lag(source);
        }
        let Some(feed) = self.feed(id) else { return };
        let twin = feed.twin;
        let mut sessions: Vec<u64> = feed.sessions.iter().copied().collect();
        sessions.extend(twin.and_then(|twin| self.feed(twin)).into_iter().flat_map(|it| &it.sessions));
        self.sessions.subscriptions_removed += sessions.len() as u64;
        for session in sessions {
            self.settle(session);
            self.leave(session, id);
            self.hold_anew(session);
        }
        self.behind.remove(&id);
        if let Some(twin) = twin {
            if let Some(feed) = self.feed_mut(twin) {
                feed.twin_of = None;
            }
            self.remove_if_unused(twin);
        }
    }

    /// A session's views begin later: forgets what lies before.
    pub(super) fn trim_session(&mut self, id: u64) {
        self.settle(id);
        let Some(stream) = self.get_mut(id) else { return };
        let start = stream.start;
        let tail = stream.tail.max(start);
        if let Some(session) = stream.session_mut() {
            session.forget_before(start, tail);
            // What lies before may have been missing, while a log is replayed that drops it.
            stream.tail = tail;
            self.hold_anew(id);
        }
    }

    /// Says anew which bytes of which feed a session needs.
    fn hold_anew(&mut self, id: u64) {
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

    /// A session needs a part of a feed no more.
    pub(super) fn release(&mut self, id: u64, from: u64) {
        let Some(stream) = self.get_mut(id) else { return };
        if let Some(feed) = stream.feed_mut() {
            feed.release(from);
        }
        // While a log is replayed, others may come who need it: `settle_all` looks again.
        if !self.is_replaying {
            self.get_mut(id).into_iter().for_each(Stream::drop_trimmed);
            self.remove_if_unused(id);
        }
    }

    /// Links sessions and sources, once a checkpoint is read.
    pub(in crate::embedded) fn link_sessions(&mut self) {
        let sessions: Vec<u64> =
            self.all().filter(|stream| stream.session().is_some()).map(|stream| stream.id).collect();
        self.sessions.sessions = sessions.len();
        for id in sessions {
            let subs = self.get(id).and_then(Stream::session).map(|session| session.subs.clone());
            for sub in subs.into_iter().flatten() {
                if let Some(feed) = self.feed_mut(sub.feed) {
                    feed.sessions.insert(id);
                    if sub.reached == LATE {
                        feed.late.push(id);
                    }
                }
            }
            self.hold_anew(id);
        }
        // A hidden stream that only sessions read has no name any more.
        let hidden: Vec<u64> =
            self.all().filter(|it| it.deleted && it.forks == 0).map(|stream| stream.id).collect();
        hidden.into_iter().for_each(|id| self.forget_name(id));
    }

    /// Ends subscriptions to what has ended while a checkpoint was being written, and has
    /// everybody take in what was delivered, once the log is replayed.
    pub(in crate::embedded) fn settle_all(&mut self) {
        let sessions: Vec<u64> =
            self.all().filter(|stream| stream.session().is_some()).map(|stream| stream.id).collect();
        for id in &sessions {
            self.settle(*id);
            self.hold_anew(*id);
        }
        // Who waits for a source holds what was trimmed of it: that is known before anything is dropped.
        let sources: Vec<u64> =
            self.all().filter(|stream| stream.feed().is_some()).map(|stream| stream.id).collect();
        sources.iter().for_each(|id| self.note_lag(*id));
        self.is_replaying = false;
        for id in sessions {
            let session = self.get(id).and_then(Stream::session);
            let sources: Vec<u64> =
                session.into_iter().flat_map(|it| &it.subs).map(|sub| sub.source).collect();
            for source in sources {
                if self.get(source).is_none_or(|source| source.deleted) {
                    self.leave(id, source);
                    self.hold_anew(id);
                }
            }
        }
        for id in sources {
            let twin_of = self.feed(id).and_then(|feed| feed.twin_of);
            let is_orphan = twin_of.is_some_and(|of| self.get(of).is_none_or(|source| source.deleted));
            let Some(stream) = self.get_mut(id) else { continue };
            stream.drop_trimmed();
            if let Some(feed) = stream.feed_mut() {
                feed.log.clear();
                feed.twin_of = feed.twin_of.filter(|_| !is_orphan);
            }
            self.note_lag(id);
        }
    }
}

/// A stream nobody can name.
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
