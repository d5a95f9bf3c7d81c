//! The feed of a followed stream: its latest deliveries.
//!
//! A delivery is a range of the stream and a number; all deliveries of the store are numbered
//! in one order. Sessions pull ranges when they are read, not when they are delivered, so a
//! delivery costs the same for one session and for a hundred thousand.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::limits::{FEED_ENTRIES_MAX, FEED_ENTRIES_MIN};

/// The deliveries of a source, or of its envelope stream.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The durable fan-out cursor: everything before it is delivered or skipped.
    pub(super) cursor: u64,
    /// Of a source: its envelope stream.
    pub(super) envelopes: Option<u64>,
    /// Of an envelope stream: its source, as long as that exists.
    pub(super) envelopes_of: Option<u64>,
    /// Bytes delivered in all.
    pub(super) total: u64,
    /// Deliveries that some session may not have pulled yet, oldest first.
    pub(super) entries: VecDeque<Entry>,
    // The rest is made from the sessions when the store is opened.
    /// Sessions that follow.
    pub(super) sessions: HashSet<u64>,
    /// Those whose stream is followed live, and some whose stream no longer is.
    pub(super) followed: Vec<u64>,
    /// Of an envelope stream: sessions whose start the cursor has not reached yet.
    pub(super) not_started: Vec<u64>,
    /// Sessions wait for the messages behind the cursor.
    pub(super) lags: bool,
    /// Offsets from which on sessions need the bytes, and how many sessions hold each.
    pub(super) holds: BTreeMap<u64, u32>,
}

/// Deliveries of one stream with none of another in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of the first delivery.
    pub(super) first: u64,
    /// The number of the last one.
    pub(super) last: u64,
    /// The range.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Bytes delivered before it.
    pub(super) before: u64,
}

/// A part of a feed that a session pulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of its first delivery.
    pub(super) delivery: u64,
    pub(super) feed: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Feed {
    /// Adds a delivery, if anybody follows.
    pub(super) fn push(&mut self, delivery: u64, from: u64, to: u64) {
        let before = self.total;
        self.total += to - from;
        if self.sessions.is_empty() {
            self.entries.clear();
            return;
        }
        match self.entries.back_mut().filter(|back| back.last + 1 == delivery && back.to == from) {
            Some(back) => (back.last, back.to) = (delivery, to),
            None => self.entries.push_back(Entry { first: delivery, last: delivery, from, to, before }),
        }
    }

    /// Bytes delivered from `next` on, which is where a session pulls next.
    pub(super) fn pending(&self, next: u64) -> u64 {
        // Entries are sorted by their ends; every session has pulled those that were dropped.
        let first = self.entries.partition_point(|entry| entry.to <= next);
        match self.entries.get(first) {
            Some(entry) => self.total - entry.before - next.saturating_sub(entry.from),
            None => 0,
        }
    }

    /// Those bytes in the order of their delivery. They are one part if they have no gap and the
    /// session follows this feed `alone`, so that their order among other feeds does not matter.
    pub(super) fn parts_after(&self, id: u64, next: u64, alone: bool, parts: &mut Vec<Part>) {
        let position = self.entries.partition_point(|entry| entry.to <= next);
        let (Some(first), Some(last)) = (self.entries.get(position), self.entries.back()) else { return };
        let from = first.from.max(next);
        if alone && last.to - from == self.pending(next) {
            parts.push(Part { delivery: first.first, feed: id, from, to: last.to });
            return;
        }
        let part = |entry: &Entry| Part {
            delivery: entry.first,
            feed: id,
            from: entry.from.max(next),
            to: entry.to,
        };
        parts.extend(self.entries.range(position..).map(part));
    }

    /// Whether the sessions should pull now, so that the entries can be dropped.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= (self.sessions.len() / 8).clamp(FEED_ENTRIES_MIN, FEED_ENTRIES_MAX)
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

    /// The offset from which on a session needs the bytes, or will.
    pub(super) fn held_from(&self) -> Option<u64> {
        let waiting = self.lags.then_some(self.cursor);
        self.holds.keys().next().copied().into_iter().chain(waiting).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However deliveries are joined and skipped, a session gets every byte from its place
        /// on once, in order.
        #[test]
        fn parts_are_the_deliveries(
            steps in prop::collection::vec((1..9u64, any::<bool>(), any::<bool>()), 1..40),
            at: prop::sample::Index,
            alone: bool,
        ) {
            let mut feed = Feed::default();
            feed.sessions.insert(1);
            let (mut delivery, mut end, mut delivered) = (0, 0, Vec::new());
            let mut ends = vec![0];
            for (bytes, is_skipped, others) in steps {
                delivery += 1 + u64::from(others);
                if !is_skipped {
                    feed.push(delivery, end, end + bytes);
                    delivered.extend(end..end + bytes);
                }
                end += bytes;
                ends.push(end);
            }
            let next = *at.get(&ends);
            let mut parts = Vec::new();
            feed.parts_after(7, next, alone, &mut parts);
            let taken: Vec<u64> = parts.iter().flat_map(|part| part.from..part.to).collect();
            let expected: Vec<u64> = delivered.into_iter().filter(|byte| *byte >= next).collect();
            prop_assert_eq!(feed.pending(next), expected.len() as u64);
            prop_assert_eq!(taken, expected);
            prop_assert!(parts.is_sorted_by_key(|part| part.delivery));
        }
    }
}
