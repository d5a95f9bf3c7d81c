//! Bounded metric labels: the first names have their own series, the rest share one.
//!
//! Producers choose job kinds freely. A series per kind would let a mistake exhaust the memory of every
//! collector.

use std::collections::HashSet;
use std::sync::Arc;

/// The shared label of all further names.
pub const OTHER: &str = "other";

/// The names with their own label: the first ones seen.
#[derive(Debug)]
pub struct Labels {
    max: usize,
    known: HashSet<Arc<str>>,
    other: Arc<str>,
}

impl Labels {
    /// With room for `max` names.
    pub fn new(max: usize) -> Labels {
        Labels { max, known: HashSet::new(), other: OTHER.into() }
    }

    /// The label of a name: the name itself while there is room, else [`OTHER`]. A name keeps
    /// its label.
    pub fn of(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        if self.known.len() >= self.max {
            return self.other.clone();
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O05: labels are bounded, and a name never changes its label.
    #[test]
    fn names_beyond_the_bound_share_one_label() {
        let mut labels = Labels::new(2);
        let told: Vec<_> = ["a", "b", "c", "a", "d", "b"].map(|name| labels.of(name).to_string()).into();
        assert_eq!(told, ["a", "b", "other", "a", "other", "b"]);
    }
}
