//! How a published message reaches the sessions that follow its stream.

use std::fmt;

/// How a message is delivered: the values of `Stream-Fanout-Mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Delivered before the publish is answered.
    Inline,
    /// The worker delivers it from the source's cursor.
    Queued,
    /// As queued, because deliveries keep failing; they resume when a probe succeeds.
    CircuitOpen,
    /// Not delivered: too many sessions, and the queue is off.
    Skipped,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] = [Mode::Inline, Mode::Queued, Mode::CircuitOpen, Mode::Skipped];

    /// The value in the header.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Inline => "inline",
            Mode::Queued => "queued",
            Mode::CircuitOpen => "circuit-open",
            Mode::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Deliveries to more subscribers than this are queued for the worker.
    pub queue_threshold: usize,
    /// Whether the queue is on.
    pub queue: bool,
    /// Without a worker, deliveries to more subscribers than this are skipped.
    pub inline_max: usize,
}

impl Limits {
    /// For sessions of the same store: a delivery costs the same for any number of them, so there
    /// is no limit.
    pub const LOCAL: Limits = Limits { queue_threshold: usize::MAX, queue: true, inline_max: usize::MAX };
    /// For sessions on another server: a delivery is a request per session, so the limits are
    /// those of the source document.
    pub const REMOTE: Limits = Limits { queue_threshold: 200, queue: true, inline_max: 1000 };
}

/// The facts of a source that decide how a message goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceFacts {
    /// Sessions that follow the source.
    pub subscribers: usize,
    /// Earlier messages are waiting, and this one must not overtake them.
    pub is_behind: bool,
    /// The source's circuit is closed.
    pub circuit_admits: bool,
}

/// Decides how a message is delivered.
pub fn mode(source: SourceFacts, limits: Limits) -> Mode {
    let SourceFacts { subscribers, is_behind, circuit_admits } = source;
    if limits.queue && subscribers > limits.queue_threshold {
        return Mode::Queued;
    }
    if !limits.queue && subscribers > limits.inline_max {
        return Mode::Skipped;
    }
    match (circuit_admits, is_behind) {
        (false, _) => Mode::CircuitOpen,
        (true, true) => Mode::Queued,
        (true, false) => Mode::Inline,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ON: Limits = Limits::REMOTE;
    const OFF: Limits = Limits { queue: false, ..ON };

    fn with(subscribers: usize) -> SourceFacts {
        SourceFacts { subscribers, is_behind: false, circuit_admits: true }
    }

    /// F03: the thresholds of the source document, at their edges.
    #[test]
    fn thresholds_decide() {
        assert_eq!(mode(with(0), ON), Mode::Inline);
        assert_eq!(mode(with(200), ON), Mode::Inline);
        assert_eq!(mode(with(201), ON), Mode::Queued);
        assert_eq!(mode(with(201), OFF), Mode::Inline);
        assert_eq!(mode(with(1000), OFF), Mode::Inline);
        assert_eq!(mode(with(1001), OFF), Mode::Skipped);
        for limits in [Limits::LOCAL, Limits { queue: false, ..Limits::LOCAL }] {
            assert_eq!(mode(with(1_000_000), limits), Mode::Inline);
        }
    }

    /// F03: an open circuit stops inline deliveries; queued ones wait in any case.
    #[test]
    fn an_open_circuit_holds_back() {
        let open = |subscribers| SourceFacts { circuit_admits: false, ..with(subscribers) };
        assert_eq!(mode(open(1), ON), Mode::CircuitOpen);
        assert_eq!(mode(open(201), ON), Mode::Queued);
        assert_eq!(mode(open(1), OFF), Mode::CircuitOpen);
    }

    proptest! {
        /// F03: a message is skipped only with the queue off and above the limit, and it never overtakes a waiting
        /// one.
        #[test]
        fn skipping_and_overtaking_are_rare(
            subscribers in 0usize..3000, is_behind: bool, circuit_admits: bool, queue: bool,
            queue_threshold in 0usize..2000, inline_max in 0usize..2000,
        ) {
            let limits = Limits { queue_threshold, queue, inline_max };
            let mode = mode(SourceFacts { subscribers, is_behind, circuit_admits }, limits);
            prop_assert_eq!(mode == Mode::Skipped, !queue && subscribers > inline_max);
            prop_assert!(!(is_behind && mode == Mode::Inline));
            prop_assert!(circuit_admits || mode != Mode::Inline);
        }
    }
}
