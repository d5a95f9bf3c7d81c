//! What a followed stream remembers of its deliveries.
//!
//! A delivery is a range of the stream and its place in the order of all deliveries. The
//! sessions that follow take ranges in when they are looked at, not when they are delivered:
//! so delivering costs the same for one session and for a hundred thousand.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::limits::{FEED_ENTRIES_MAX, FEED_ENTRIES_MIN};

/// The deliveries of a source, or of its twin, which holds the source's values in envelopes.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Everything before is delivered or left out: the durable fan-out cursor.
    pub(super) cursor: u64,
    /// A source's twin.
    pub(super) twin: Option<u64>,
    /// A twin's source, as long as that lives.
    pub(super) twin_of: Option<u64>,
    /// Bytes delivered in all.
    pub(super) total: u64,
    /// Deliveries that some session may not have taken in yet, oldest first.
    pub(super) log: VecDeque<Entry>,
    // What follows is made from the sessions when the store is opened.
    /// Sessions that follow.
    pub(super) sessions: HashSet<u64>,
    /// Those of them whose stream is followed live, and some whose is no more.
    pub(super) followed: Vec<u64>,
    /// Those of a twin's that begin where the cursor has not come yet.
    pub(super) late: Vec<u64>,
    /// Somebody waits for what is behind the cursor.
    pub(super) lags: bool,
    /// From where on sessions need the bytes, and how many do from there.
    pub(super) holds: BTreeMap<u64, u32>,
}

/// Deliveries of one stream with none of another in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The first one's place in the order of all deliveries.
    pub(super) first: u64,
    /// The last one's.
    pub(super) last: u64,
    /// The range.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Bytes delivered before it.
    pub(super) before: u64,
}

/// A part of a feed that a session takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) order: u64,
    pub(super) feed: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Feed {
    /// Remembers a delivery, if anybody follows.
    pub(super) fn push(&mut self, order: u64, from: u64, to: u64) {
        let before = self.total;
        self.total += to - from;
        if self.sessions.is_empty() {
            self.log.clear();
            return;
        }
        match self.log.back_mut().filter(|back| back.last + 1 == order && back.to == from) {
            Some(back) => (back.last, back.to) = (order, to),
            None => self.log.push_back(Entry { first: order, last: order, from, to, before }),
        }
    }

    /// Bytes delivered behind a place that a session has come to.
    pub(super) fn pending(&self, reached: u64) -> u64 {
        // Entries end in rising order; what is forgotten everybody has taken in.
        let next = self.log.partition_point(|entry| entry.to <= reached);
        match self.log.get(next) {
            Some(entry) => self.total - entry.before - reached.saturating_sub(entry.from),
            None => 0,
        }
    }

    /// Those bytes in the order of their delivery. One part if they follow each other and
    /// their order among other feeds does not matter, because there is `alone` this feed.
    pub(super) fn after(&self, id: u64, reached: u64, alone: bool, parts: &mut Vec<Part>) {
        let next = self.log.partition_point(|entry| entry.to <= reached);
        let (Some(first), Some(last)) = (self.log.get(next), self.log.back()) else { return };
        let from = first.from.max(reached);
        if alone && last.to - from == self.pending(reached) {
            parts.push(Part { order: first.first, feed: id, from, to: last.to });
            return;
        }
        let part = |entry: &Entry| Part {
            order: entry.first,
            feed: id,
            from: entry.from.max(reached),
            to: entry.to,
        };
        parts.extend(self.log.range(next..).map(part));
    }

    /// Whether it is time for the sessions to take in what is remembered.
    pub(super) fn is_crowded(&self) -> bool {
        self.log.len() >= (self.sessions.len() / 8).clamp(FEED_ENTRIES_MIN, FEED_ENTRIES_MAX)
    }

    pub(super) fn hold(&mut self, from: u64) {
        *self.holds.entry(from).or_default() += 1;
    }

    pub(super) fn release(&mut self, from: u64) {
        if let Some(count) = self.holds.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.holds.remove(&from);
            }
        }
    }

    /// From where on somebody needs the bytes.
    pub(super) fn held(&self) -> Option<u64> {
        let waiting = self.lags.then_some(self.cursor);
        self.holds.keys().next().copied().into_iter().chain(waiting).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However deliveries are joined and left out, a session gets every byte behind its
        /// place once, in order.
        #[test]
        fn parts_are_the_deliveries(
            steps in prop::collection::vec((1..9u64, any::<bool>(), any::<bool>()), 1..40),
            at: prop::sample::Index,
            alone: bool,
        ) {
            let mut feed = Feed::default();
            feed.sessions.insert(1);
            let (mut order, mut end, mut delivered) = (0, 0, Vec::new());
            let mut ends = vec![0];
            for (bytes, is_skipped, others) in steps {
                order += 1 + u64::from(others);
                if !is_skipped {
                    feed.push(order, end, end + bytes);
                    delivered.extend(end..end + bytes);
                }
                end += bytes;
                ends.push(end);
            }
            let reached = *at.get(&ends);
            let mut parts = Vec::new();
            feed.after(7, reached, alone, &mut parts);
            let taken: Vec<u64> = parts.iter().flat_map(|part| part.from..part.to).collect();
            let expected: Vec<u64> = delivered.into_iter().filter(|byte| *byte >= reached).collect();
            prop_assert_eq!(feed.pending(reached), expected.len() as u64);
            prop_assert_eq!(taken, expected);
            prop_assert!(parts.is_sorted_by_key(|part| part.order));
        }
    }
}
