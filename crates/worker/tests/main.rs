//! The worker and maintenance on a real PostgreSQL.

mod drain;
mod keep;
mod place;
mod run;
mod schedule;
mod wake;
