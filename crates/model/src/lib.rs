//! The logic of Towpath without I/O. An internal part: applications depend on the crate `towpath`.
//!
//! Parsing, formats and decisions as pure functions. This crate knows no SQL, no HTTP and no runtime, so that
//! everything in it can be property-tested and compared with the SQL.

pub mod actor;
pub mod address;
pub mod circuit;
pub mod config;
#[cfg(feature = "cron")]
pub mod cron;
pub mod doctor;
pub mod event;
pub mod fanout;
pub mod figure;
pub mod function_result;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod health;
pub mod id;
pub mod job;
pub mod job_state;
pub mod label;
pub mod mask;
pub mod message;
pub mod metrics;
pub mod nearest;
pub mod payload;
pub mod redact;
pub mod refusal;
pub mod session;
pub mod stream;
#[cfg(feature = "token")]
pub mod token;
pub mod trace;
pub mod why;
