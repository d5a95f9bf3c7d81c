//! The route role: what happens to an event after its commit.
//!
//! Four loops, each safe on any number of nodes, none of which keeps a truth of its own:
//! the sequencer gives events their positions, route workers carry out what
//! routes make of them, and two senders deliver outside of any transaction: webhooks, and
//! appends to streams. Kill
//! it anywhere: positions and cursors move in the database's own transactions, and leases
//! of deliveries run out.

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

/// Registers what the role counts, without one: to know what there is.
pub fn describe(registry: &mut towpath_model::metrics::Register<'_>) {
    numbers::Numbers::default().register(registry);
}
