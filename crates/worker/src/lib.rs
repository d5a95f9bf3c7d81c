//! Runs jobs, and the maintenance that keeps them moving. An internal part: applications depend on the crate `towpath`.
//!
//! A [`Worker`] claims jobs in batches ahead of need, runs typed handlers, and records how
//! they ended in batches too, without holding a result back for long. It keeps no truth:
//! kill it, and its leases run out. [`Maintenance`] is everything that must happen again
//! and again, safe on any number of nodes.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use towpath_db::door::Enqueue;
//! use towpath_worker::{Job, Worker};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name_ref: String }
//! impl Job for Greet { const KIND: &'static str = "greet"; }
//!
//! # async fn example(database: towpath_db::Database) -> Result<(), Box<dyn std::error::Error>> {
//! let greet = Greet { name_ref: "user:7".into() };
//! Enqueue::new(&database, Greet::KIND, &greet, Greet::defaults()).await?;
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! Worker::builder(database, "greeter")
//!     .handle(|greet: Greet, _context| async move {
//!         println!("hello, {}", greet.name_ref);
//!         Ok(())
//!     })
//!     .build()?
//!     .run(shutdown)
//!     .await;
//! # Ok(())
//! # }
//! ```

mod attempt;
mod batch;
mod builder;
pub mod builtin;
mod drain;
mod fetch;
mod finish;
mod handler;
mod held;
mod limits;
#[cfg(feature = "maintenance")]
mod maintain;
mod middleware;
mod numbers;
mod pool;
pub mod process;
mod register;
mod renewer;
mod steps;
pub mod task;
pub mod testing;
mod worker;

use towpath_model::metrics::Register;

pub use attempt::Attempt;
pub use builder::{Builder, Error, Options};
pub use handler::{Context, Failure, Job, Output, Result};
#[cfg(feature = "maintenance")]
pub use maintain::{Maintenance, MaintenanceFailure, MaintenanceReport};
pub use middleware::Next;
pub use steps::{ChildEnd, Steps};
pub use worker::Worker;

/// Registers what a worker counts, without one: to know what there is.
pub fn describe(registry: &mut Register<'_>) {
    numbers::Numbers::default().register(registry);
}

/// Registers what maintenance counts, without any.
#[cfg(feature = "maintenance")]
pub fn describe_maintenance(registry: &mut Register<'_>) {
    maintain::describe(registry);
}
