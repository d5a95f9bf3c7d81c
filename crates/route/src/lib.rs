//! The route role: what happens to an event after its commit. An internal part: applications depend on the crate
//! `towpath`.
//!
//! Four loops, each safe on any number of nodes and without state of its own: the sequencer gives events their
//! positions, route workers apply routes, and two senders deliver webhooks and stream appends outside of any
//! transaction. It can be killed at any point: positions and cursors move in database transactions, and delivery leases
//! expire.

mod fail_point;
mod limits;
mod numbers;
mod role;
mod route_worker;
mod sequencer;
mod set_aside;
pub mod stream;
mod wake;
pub mod webhook;
mod webhook_sender;

pub use role::{Config, Role};

/// Registers the role's metrics without running it, for the list of metrics.
pub fn describe(registry: &mut towpath_model::metrics::Register<'_>) {
    numbers::Numbers::default().register(registry);
}
