//! The worker and maintenance on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod drain;
mod event;
#[path = "../examples/process.rs"]
mod example;
mod keep;
mod maintain;
mod payload;
mod process;
mod process_scan;
mod run;
mod schedule;
mod steps;
mod wake;
mod worker;
