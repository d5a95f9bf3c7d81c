//! What makes a stream a session's: its subscriptions, and the views it is made of.

use super::feed::Part;

/// The part of a session that its stream does not hold.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The number of the last change of its subscriptions. A change with this number or a lower
    /// one is a replay and has no effect.
    pub(super) changed: u64,
    pub(super) subs: Vec<Sub>,
    /// Sorted by their starts; each ends where the next begins, the last at the tail.
    pub(super) views: Vec<View>,
    /// The feeds it needs, and from which offset on; made when the store is opened.
    pub(super) holds: Vec<(u64, u64)>,
}

/// A subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sub {
    pub(super) source: u64,
    /// The stream that is viewed: the source, or its envelope stream.
    pub(super) feed: u64,
    /// The tail of the source when it began.
    pub(super) start: u64,
    /// When it began.
    pub(super) since: u64,
    /// The offset in its feed that it pulls next, or [`NOT_STARTED`].
    pub(super) next: u64,
}

/// The fan-out cursor has not reached the start of the subscription yet.
pub(super) const NOT_STARTED: u64 = u64::MAX;

/// Bytes of a session that are bytes of another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// The session's offset of the first byte.
    pub(super) start: u64,
    pub(super) feed: u64,
    /// The feed's offset of the first byte.
    pub(super) from: u64,
}

impl Session {
    pub(super) fn sub(&self, source: u64) -> Option<&Sub> {
        self.subs.iter().find(|sub| sub.source == source)
    }

    /// Adds a part of a feed at the tail, and answers the new tail.
    pub(super) fn add_view(&mut self, tail: u64, part: Part) -> u64 {
        let continues = |view: &View| view.feed == part.feed && view.from + (tail - view.start) == part.from;
        if !self.views.last().is_some_and(continues) {
            // Most sessions follow one source and have one view: reserve no more.
            if self.views.is_empty() {
                self.views.reserve_exact(1);
            }
            self.views.push(View { start: tail, feed: part.feed, from: part.from });
        }
        for sub in self.subs.iter_mut().filter(|sub| sub.feed == part.feed) {
            sub.next = part.to;
        }
        tail + (part.to - part.from)
    }

    /// Drops views that end before `start`.
    pub(super) fn drop_before(&mut self, start: u64, tail: u64) {
        let dropped = match start >= tail {
            true => self.views.len(),
            false => self.views.partition_point(|view| view.start <= start).saturating_sub(1),
        };
        self.views.drain(..dropped);
    }

    /// The feeds it needs, and from which offset on.
    pub(super) fn needs(&self) -> Vec<(u64, u64)> {
        let mut needs: Vec<(u64, u64)> = Vec::new();
        let subs = self.subs.iter().map(|sub| (sub.feed, if sub.next == NOT_STARTED { 0 } else { sub.next }));
        for (feed, from) in self.views.iter().map(|view| (view.feed, view.from)).chain(subs) {
            match needs.iter_mut().find(|(of, _)| *of == feed) {
                Some((_, least)) => *least = from.min(*least),
                None => needs.push((feed, from)),
            }
        }
        needs
    }
}
