//! The circuit breaker of fan-outs: when deliveries of a source keep failing, publishes no longer
//! wait for them.
//!
//! ```text
//!              failures_max consecutive batches with failures
//!   closed ──────────────────────────────────────────────────────────▶ open
//!     ▲ ▲                                                              │ ▲
//!     │ │ any success                    recovery after the last failure │ │ only failures
//!     │ └──────────────────────── half-open ◀────────────────────────────┘ │
//!     │                               └────────────────────────────────────┘
//!     └── a batch without failures, from anywhere
//! ```
//!
//! Nothing is lost while it is open: the cursor of the source does not move, and what waits is
//! delivered when a probe succeeds.

use std::time::Duration;

/// The limits of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Consecutive batches with failures that open it.
    pub failures_max: u32,
    /// How long after the last failure a probe is allowed.
    pub recovery: Duration,
}

/// The result of one batch of deliveries. A session that is gone is in neither count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Sessions that got it.
    pub successes: usize,
    /// Sessions that could not be reached.
    pub failures: usize,
}

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Deliveries go through.
    Closed,
    /// Deliveries wait.
    Open,
    /// One delivery probes.
    HalfOpen,
}

/// The circuit of one source. Times are durations since a start that the caller chooses.
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
    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a delivery may be tried now. An open circuit becomes half-open after the recovery
    /// time and admits one probe; the next delivery waits for its result.
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

    /// Records the result of a batch of deliveries.
    pub fn record(&mut self, deliveries: Deliveries, now: Duration, limits: Limits) {
        if deliveries.failures == 0 {
            *self = Circuit::default();
            return;
        }
        self.last_failure = now;
        self.failed_batches = self.failed_batches.saturating_add(1);
        self.state = match self.state {
            State::HalfOpen if deliveries.successes > 0 => {
                self.failed_batches = 0;
                State::Closed
            }
            State::HalfOpen => State::Open,
            State::Closed if self.failed_batches >= limits.failures_max => State::Open,
            state => state,
        };
    }

    /// How long until a probe is allowed, if it is open.
    pub fn time_to_probe(&self, now: Duration, limits: Limits) -> Option<Duration> {
        let ends = self.last_failure.saturating_add(limits.recovery);
        (self.state == State::Open).then(|| ends.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { failures_max: 5, recovery: Duration::from_secs(60) };
    const FAILED: Deliveries = Deliveries { successes: 0, failures: 1 };
    const MIXED: Deliveries = Deliveries { successes: 3, failures: 1 };
    const FINE: Deliveries = Deliveries { successes: 3, failures: 0 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn opened() -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 0..5 {
            assert_eq!(circuit.state(), State::Closed);
            circuit.record(MIXED, seconds(10), LIMITS);
        }
        assert_eq!(circuit.state(), State::Open);
        circuit
    }

    /// F04: five batches with failures open it, and the recovery time starts at the last of them.
    #[test]
    fn it_opens_after_five_for_a_minute() {
        let mut circuit = opened();
        assert!(!circuit.admits(seconds(69), LIMITS));
        assert_eq!(circuit.time_to_probe(seconds(69), LIMITS), Some(seconds(1)));
        assert!(circuit.admits(seconds(70), LIMITS));
        assert_eq!(circuit.state(), State::HalfOpen);
        assert!(!circuit.admits(seconds(70), LIMITS), "one probe at a time");
    }

    /// F04: any success closes a half-open breaker, only failures open it again.
    #[test]
    fn a_probe_decides() {
        let mut circuit = opened();
        assert!(circuit.admits(seconds(70), LIMITS));
        circuit.record(FAILED, seconds(71), LIMITS);
        assert_eq!(circuit.state(), State::Open);
        assert!(!circuit.admits(seconds(130), LIMITS));
        assert!(circuit.admits(seconds(131), LIMITS));
        circuit.record(MIXED, seconds(132), LIMITS);
        assert_eq!(circuit.state(), State::Closed);
        assert!(circuit.admits(seconds(132), LIMITS));
    }

    /// F04: a batch without failures closes it from any state and resets the count.
    #[test]
    fn a_clean_batch_closes_from_anywhere() {
        let mut circuit = opened();
        circuit.record(FINE, seconds(11), LIMITS);
        assert_eq!(circuit.state(), State::Closed);
        for _ in 0..4 {
            circuit.record(FAILED, seconds(12), LIMITS);
        }
        circuit.record(FINE, seconds(13), LIMITS);
        for _ in 0..4 {
            circuit.record(FAILED, seconds(14), LIMITS);
            assert_eq!(circuit.state(), State::Closed, "the count restarted");
        }
    }

    /// A session that is gone is neither success nor failure, so it does not open the breaker.
    #[test]
    fn gone_sessions_open_nothing() {
        let mut circuit = Circuit::default();
        for _ in 0..100 {
            circuit.record(Deliveries::default(), seconds(1), LIMITS);
        }
        assert_eq!(circuit.state(), State::Closed);
    }

    /// The machine written a second time, as a table: state and event to state.
    fn table(state: State, failed: u32, deliveries: Deliveries) -> (State, u32) {
        match (state, deliveries.failures, deliveries.successes) {
            (_, 0, _) => (State::Closed, 0),
            (State::Closed, _, _) if failed + 1 >= LIMITS.failures_max => (State::Open, failed + 1),
            (State::Closed, _, _) => (State::Closed, failed + 1),
            (State::HalfOpen, _, 0) => (State::Open, failed + 1),
            (State::HalfOpen, _, _) => (State::Closed, 0),
            (State::Open, _, _) => (State::Open, failed + 1),
        }
    }

    proptest! {
        /// F04: every history follows the table, and an open breaker always admits a probe after its recovery time.
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
                    let deliveries = Deliveries { successes, failures };
                    circuit.record(deliveries, now, LIMITS);
                    (state, failed) = table(state, failed, deliveries);
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
