//! The circuit breaker of fan-outs: when deliveries of a source keep failing, publishes stop
//! waiting for them.
//!
//! ```text
//!              failures_max batches with failures, one after the other
//!   closed ──────────────────────────────────────────────────────────▶ open
//!     ▲ ▲                                                              │ ▲
//!     │ │ any success                    recovery after the last failure │ │ only failures
//!     │ └──────────────────────── half-open ◀────────────────────────────┘ │
//!     │                               └────────────────────────────────────┘
//!     └── a batch without failures, from anywhere
//! ```
//!
//! Nothing is lost while it is open: the source's cursor stands still, and what waits is
//! delivered when the probe succeeds.

use std::time::Duration;

/// The breaker's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Batches with failures, one after the other, that open it.
    pub failures_max: u32,
    /// How long after the last failure one delivery may try again.
    pub recovery: Duration,
}

/// What one batch of deliveries came to. A session that is gone is neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// Sessions that have it.
    pub successes: usize,
    /// Sessions that could not be reached.
    pub failures: usize,
}

/// Where the breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Deliveries go through.
    Closed,
    /// Deliveries wait.
    Open,
    /// One delivery tries.
    HalfOpen,
}

/// One source's breaker. Times are durations since a moment of the caller's choice.
#[derive(Debug, Clone)]
pub struct Circuit {
    state: State,
    /// Batches with failures since the last one without.
    failed_batches: u32,
    last_failure: Duration,
}

impl Default for Circuit {
    fn default() -> Circuit {
        Circuit { state: State::Closed, failed_batches: 0, last_failure: Duration::ZERO }
    }
}

impl Circuit {
    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a delivery may be tried now. An open breaker whose rest is over becomes
    /// half-open by answering yes, once: the next delivery waits for that probe.
    pub fn admits(&mut self, now: Duration, limits: Limits) -> bool {
        match self.state {
            State::Closed => true,
            State::HalfOpen => false,
            State::Open if now >= self.last_failure.saturating_add(limits.recovery) => {
                self.state = State::HalfOpen;
                true
            }
            State::Open => false,
        }
    }

    /// Notes what a batch came to.
    pub fn note(&mut self, batch: Batch, now: Duration, limits: Limits) {
        if batch.failures == 0 {
            *self = Circuit::default();
            return;
        }
        self.last_failure = now;
        self.failed_batches = self.failed_batches.saturating_add(1);
        self.state = match self.state {
            State::HalfOpen if batch.successes > 0 => {
                self.failed_batches = 0;
                State::Closed
            }
            State::HalfOpen => State::Open,
            State::Closed if self.failed_batches >= limits.failures_max => State::Open,
            state => state,
        };
    }

    /// How long until a probe may try, if it is open.
    pub fn rests_for(&self, now: Duration, limits: Limits) -> Option<Duration> {
        let ends = self.last_failure.saturating_add(limits.recovery);
        (self.state == State::Open).then(|| ends.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { failures_max: 5, recovery: Duration::from_secs(60) };
    const FAILED: Batch = Batch { successes: 0, failures: 1 };
    const MIXED: Batch = Batch { successes: 3, failures: 1 };
    const FINE: Batch = Batch { successes: 3, failures: 0 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn opened() -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 0..5 {
            assert_eq!(circuit.state(), State::Closed);
            circuit.note(MIXED, seconds(10), LIMITS);
        }
        assert_eq!(circuit.state(), State::Open);
        circuit
    }

    /// F04: five batches with failures open it, and the rest counts from the last of them.
    #[test]
    fn it_opens_after_five_and_rests_a_minute() {
        let mut circuit = opened();
        assert!(!circuit.admits(seconds(69), LIMITS));
        assert_eq!(circuit.rests_for(seconds(69), LIMITS), Some(seconds(1)));
        assert!(circuit.admits(seconds(70), LIMITS));
        assert_eq!(circuit.state(), State::HalfOpen);
        assert!(!circuit.admits(seconds(70), LIMITS), "one probe at a time");
    }

    /// F04: any success closes a half-open breaker, only failures open it again.
    #[test]
    fn a_probe_decides() {
        let mut circuit = opened();
        assert!(circuit.admits(seconds(70), LIMITS));
        circuit.note(FAILED, seconds(71), LIMITS);
        assert_eq!(circuit.state(), State::Open);
        assert!(!circuit.admits(seconds(130), LIMITS));
        assert!(circuit.admits(seconds(131), LIMITS));
        circuit.note(MIXED, seconds(132), LIMITS);
        assert_eq!(circuit.state(), State::Closed);
        assert!(circuit.admits(seconds(132), LIMITS));
    }

    /// F04: a batch without failures closes it from anywhere and forgets what was counted.
    #[test]
    fn a_clean_batch_closes_from_anywhere() {
        let mut circuit = opened();
        circuit.note(FINE, seconds(11), LIMITS);
        assert_eq!(circuit.state(), State::Closed);
        for _ in 0..4 {
            circuit.note(FAILED, seconds(12), LIMITS);
        }
        circuit.note(FINE, seconds(13), LIMITS);
        for _ in 0..4 {
            circuit.note(FAILED, seconds(14), LIMITS);
            assert_eq!(circuit.state(), State::Closed, "the count began anew");
        }
    }

    /// A session that is gone is neither success nor failure, so it opens nothing.
    #[test]
    fn gone_sessions_open_nothing() {
        let mut circuit = Circuit::default();
        for _ in 0..100 {
            circuit.note(Batch::default(), seconds(1), LIMITS);
        }
        assert_eq!(circuit.state(), State::Closed);
    }

    /// The machine written a second time, as a table: state and event to state.
    fn table(state: State, failed: u32, batch: Batch) -> (State, u32) {
        match (state, batch.failures, batch.successes) {
            (_, 0, _) => (State::Closed, 0),
            (State::Closed, _, _) if failed + 1 >= LIMITS.failures_max => (State::Open, failed + 1),
            (State::Closed, _, _) => (State::Closed, failed + 1),
            (State::HalfOpen, _, 0) => (State::Open, failed + 1),
            (State::HalfOpen, _, _) => (State::Closed, 0),
            (State::Open, _, _) => (State::Open, failed + 1),
        }
    }

    proptest! {
        /// F04: every history goes as the table says, and whatever happened before, an open
        /// breaker admits a probe once its rest is over.
        #[test]
        fn histories_follow_the_table(
            steps in proptest::collection::vec((0u64..40, any::<bool>(), 0usize..3, 0usize..3), 1..80)
        ) {
            let mut circuit = Circuit::default();
            let (mut state, mut failed, mut last, mut now) = (State::Closed, 0, seconds(0), seconds(0));
            for (pause, ask, successes, failures) in steps {
                now += seconds(pause);
                if ask {
                    let expected = match state {
                        State::Closed => true,
                        State::HalfOpen => false,
                        State::Open => now >= last + LIMITS.recovery,
                    };
                    prop_assert_eq!(circuit.admits(now, LIMITS), expected);
                    if state == State::Open && expected {
                        state = State::HalfOpen;
                    }
                } else {
                    let batch = Batch { successes, failures };
                    circuit.note(batch, now, LIMITS);
                    (state, failed) = table(state, failed, batch);
                    if failures > 0 {
                        last = now;
                    }
                }
                prop_assert_eq!(circuit.state(), state);
            }
            if circuit.state() == State::Open {
                prop_assert!(circuit.admits(last + LIMITS.recovery, LIMITS));
            }
        }
    }
}
