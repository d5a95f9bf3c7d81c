//! What connects the stream store with PostgreSQL.
//!
//! [`PostgresLog`] is the log of commits that the nodes of a store share, and [`Lease`] says which node serves.
//! [`Intake`] takes messages that SQL
//! transactions left for streams into the store. The SQL is in `towpath_db`, the store in `towpath_streams`.

mod intake;
mod lease;
mod limits;
mod postgres_log;

pub use intake::{Intake, Round};
pub use lease::Lease;
pub use postgres_log::PostgresLog;
