//! The route role: what happens to an event after its commit.
//!
//! Three loops, each safe on any number of nodes, none of which keeps a truth of its own:
//! the [sequencer](sequencer) gives events their positions, route workers carry out what
//! routes make of them, and the sender delivers webhooks outside of any transaction. Kill
//! it anywhere: positions and cursors move in the database's own transactions, and leases
//! of deliveries run out.

mod deliver;
mod fail_point;
mod limits;
mod role;
mod runner;
mod sequencer;
mod trouble;
mod wake;
pub mod webhook;

pub use role::{Config, Role};
