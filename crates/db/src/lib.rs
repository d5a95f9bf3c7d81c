//! The only crate with SQL. An internal part: applications depend on the crate `towpath`.
//!
//! One typed method per SQL function, the migrator, and the private PostgreSQL that runs if no other is configured.
//! Nothing here decides policy: the database decides, and callers react to [`Error`].

mod answer;
pub mod audit;
pub mod cluster;
mod config;
mod connect;
pub mod dead_letter;
pub mod door;
pub mod dump;
mod error;
pub mod event;
pub mod executor_token;
pub mod executor_token_job;
pub mod executor_token_process;
pub mod health;
mod inspect;
pub mod job;
pub mod job_read;
pub mod job_stream;
mod limits;
pub mod loop_fault;
pub mod message;
pub mod metrics;
pub mod migrate;
pub mod payload;
pub mod process;
pub mod process_run;
mod process_scan;
pub mod queue;
pub mod retry;
pub mod schedule;
pub mod stream_intake;
pub mod stream_log;
pub mod subscription;
pub mod task;
mod tls;

pub use config::{Attribution, ConfigChange, ConfigEntry, ConfigSet, GateMove};
pub use connect::Database;
pub(crate) use connect::Parameter;
pub use error::{Error, Raised};
pub use process_scan::ProcessScan;
