//! The breakers of all sources. They are not stored: a restart closes them, and the first
//! failures open them again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use towpath_model::circuit::{Batch, Circuit, Limits, State};
use towpath_model::stream::name::StreamName;

pub(super) struct Circuits {
    limits: Limits,
    began: Instant,
    /// Only sources with failures: a breaker that has seen none is closed.
    all: Mutex<HashMap<StreamName, Circuit>>,
}

impl Circuits {
    pub(super) fn new(limits: Limits) -> Circuits {
        Circuits { limits, began: Instant::now(), all: Mutex::default() }
    }

    pub(super) fn state(&self, source: &StreamName) -> State {
        self.with(|all| all.get(source).map_or(State::Closed, Circuit::state))
    }

    /// Whether a delivery may be tried; see [`Circuit::admits`].
    pub(super) fn admits(&self, source: &StreamName) -> bool {
        let now = self.began.elapsed();
        self.with(|all| all.get_mut(source).is_none_or(|circuit| circuit.admits(now, self.limits)))
    }

    pub(super) fn note(&self, source: &StreamName, batch: Batch) {
        let now = self.began.elapsed();
        self.with(|all| {
            if batch.failures == 0 {
                all.remove(source);
                return;
            }
            let circuit = all.entry(source.clone()).or_default();
            let before = circuit.state();
            circuit.note(batch, now, self.limits);
            if circuit.state() != before {
                tracing::warn!(source = %source, state = ?circuit.state(), "the circuit of a fan-out changed");
            }
        });
    }

    /// How long until the next open breaker may be probed.
    pub(super) fn next_probe(&self) -> Option<Duration> {
        let now = self.began.elapsed();
        self.with(|all| all.values().filter_map(|circuit| circuit.rests_for(now, self.limits)).min())
    }

    pub(super) fn open_count(&self) -> usize {
        self.with(|all| all.values().filter(|circuit| circuit.state() != State::Closed).count())
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<StreamName, Circuit>) -> T) -> T {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
