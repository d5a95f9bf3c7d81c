//! The worker and maintenance on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod drain;
mod event;
mod keep;
mod place;
mod run;
mod schedule;
mod wake;
