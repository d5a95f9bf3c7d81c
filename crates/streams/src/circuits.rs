//! The circuits of all sources. They are not stored: a restart closes them, and further failures
//! open them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towpath_model::circuit::{Circuit, Deliveries, Limits, State};
use towpath_model::stream::name::StreamName;

/// The circuits, shared by the code that delivers and the code that shows them. Cheap to clone.
#[derive(Clone)]
pub struct Circuits(Arc<Inner>);

struct Inner {
    began: Instant,
    /// Only sources with failures: a circuit that has seen none is closed.
    all: Mutex<HashMap<StreamName, Circuit>>,
}

impl Default for Circuits {
    fn default() -> Circuits {
        Circuits(Arc::new(Inner { began: Instant::now(), all: Mutex::default() }))
    }
}

impl Circuits {
    /// The state of a source's circuit.
    pub fn state(&self, source: &StreamName) -> State {
        self.with(|all| all.get(source).map_or(State::Closed, Circuit::state))
    }

    /// Whether a delivery may be tried; see [`Circuit::admits`].
    pub fn admits(&self, source: &StreamName, limits: Limits) -> bool {
        let now = self.0.began.elapsed();
        self.with(|all| all.get_mut(source).is_none_or(|circuit| circuit.admits(now, limits)))
    }

    /// Records the result of a batch of deliveries.
    pub fn record(&self, source: &StreamName, deliveries: Deliveries, limits: Limits) {
        let now = self.0.began.elapsed();
        self.with(|all| {
            if deliveries.failures == 0 {
                all.remove(source);
                return;
            }
            let circuit = all.entry(source.clone()).or_default();
            let before = circuit.state();
            circuit.record(deliveries, now, limits);
            if circuit.state() != before {
                tracing::warn!(source = %source, state = ?circuit.state(), "fan-out circuit changed");
            }
        });
    }

    /// The time until the next open circuit may be probed.
    pub fn next_probe(&self, limits: Limits) -> Option<Duration> {
        let now = self.0.began.elapsed();
        self.with(|all| all.values().filter_map(|circuit| circuit.time_to_probe(now, limits)).min())
    }

    /// How many are not closed.
    pub fn open_count(&self) -> usize {
        self.with(|all| all.values().filter(|circuit| circuit.state() != State::Closed).count())
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<StreamName, Circuit>) -> T) -> T {
        work(&mut self.0.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
