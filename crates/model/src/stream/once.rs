//! Exactly once, in any order: which positions of a writer have been written.
//!
//! A writer that numbers what it sends, and may send a number again or late, says with each
//! number up to where everything is settled, so that what is remembered stays small.

use std::collections::BTreeSet;

/// What has been written of one writer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Nothing up to here is ever sent again.
    pub settled: u64,
    /// What was written beyond that.
    pub beyond: BTreeSet<u64>,
}

impl Seen {
    /// Whether a position was written, or is settled.
    pub fn has(&self, position: u64) -> bool {
        position <= self.settled || self.beyond.contains(&position)
    }

    /// Remembers a position, and that everything up to `settled` is never sent again.
    pub fn see(&mut self, position: u64, settled: u64) {
        self.beyond.insert(position);
        if settled > self.settled {
            self.settled = settled;
            self.beyond = self.beyond.split_off(&settled.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// E08: a position is new exactly the first time, whatever the order, as long as the
        /// writer keeps its word; and what is remembered is only what is not settled.
        #[test]
        fn every_position_is_new_once(sent in prop::collection::vec((1..40u64, any::<bool>()), 1..200)) {
            let (mut seen, mut written, mut settled) = (Seen::default(), BTreeSet::new(), 0);
            for (position, settles) in sent {
                if position <= settled {
                    prop_assert!(seen.has(position));
                    continue;
                }
                prop_assert_eq!(seen.has(position), !written.insert(position));
                // Settled is what was written without a gap.
                while settles && written.contains(&(settled + 1)) {
                    settled += 1;
                }
                seen.see(position, settled);
            }
            prop_assert!(seen.beyond.iter().all(|position| *position > settled && written.contains(position)));
        }
    }
}
