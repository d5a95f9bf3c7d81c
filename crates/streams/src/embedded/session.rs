//! What makes a stream a session's: what it follows, and the views it is made of.

use super::feed::Part;

/// A session, as far as its stream does not say.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The last change of its subscriptions that is in here. Changes are numbered, so that
    /// one that is replayed has no effect twice.
    pub(super) changed: u64,
    pub(super) subs: Vec<Sub>,
    /// In the order of their starts; each ends where the next begins, the last at the tail.
    pub(super) views: Vec<View>,
    /// What it holds of which feed; made when the store is opened.
    pub(super) holds: Vec<(u64, u64)>,
}

/// A subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sub {
    pub(super) source: u64,
    /// The stream that is viewed: the source, or its twin for envelopes.
    pub(super) feed: u64,
    /// The source's tail when it began.
    pub(super) start: u64,
    /// When it began.
    pub(super) since: u64,
    /// How far it has come in its feed; [`LATE`] if the cursor has yet to come to its start.
    pub(super) reached: u64,
}

/// See [`Sub::reached`].
pub(super) const LATE: u64 = u64::MAX;

/// Bytes of a session that are bytes of another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// The session's offset of the first one.
    pub(super) start: u64,
    pub(super) feed: u64,
    /// The feed's offset of the first one.
    pub(super) from: u64,
}

impl Session {
    pub(super) fn sub(&self, source: u64) -> Option<&Sub> {
        self.subs.iter().find(|sub| sub.source == source)
    }

    /// Takes in a part of a feed at the tail, and answers the new tail.
    pub(super) fn take_in(&mut self, tail: u64, part: Part) -> u64 {
        let goes_on = |view: &View| view.feed == part.feed && view.from + (tail - view.start) == part.from;
        if !self.views.last().is_some_and(goes_on) {
            // Most sessions follow one source: the first view gets room for itself only.
            if self.views.is_empty() {
                self.views.reserve_exact(1);
            }
            self.views.push(View { start: tail, feed: part.feed, from: part.from });
        }
        for sub in self.subs.iter_mut().filter(|sub| sub.feed == part.feed) {
            sub.reached = part.to;
        }
        tail + (part.to - part.from)
    }

    /// Forgets views that lie wholly before `start`.
    pub(super) fn forget_before(&mut self, start: u64, tail: u64) {
        let kept = match start >= tail {
            true => self.views.len(),
            false => self.views.partition_point(|view| view.start <= start).saturating_sub(1),
        };
        self.views.drain(..kept);
    }

    /// From where on it needs which feed.
    pub(super) fn needs(&self) -> Vec<(u64, u64)> {
        let mut needs: Vec<(u64, u64)> = Vec::new();
        let subs = self.subs.iter().map(|sub| (sub.feed, if sub.reached == LATE { 0 } else { sub.reached }));
        for (feed, from) in self.views.iter().map(|view| (view.feed, view.from)).chain(subs) {
            match needs.iter_mut().find(|(of, _)| *of == feed) {
                Some((_, least)) => *least = from.min(*least),
                None => needs.push((feed, from)),
            }
        }
        needs
    }
}
