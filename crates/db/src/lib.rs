//! The only crate that speaks SQL.
//!
//! One typed method per SQL function, the migrator, and the private PostgreSQL that runs
//! when no other is named. Nothing here decides policy: the database decides, `model`
//! judges, callers react to [`Error`].

mod answer;
pub mod cluster;
mod config;
mod connect;
mod error;
mod inspect;
mod limits;
pub mod migrate;
mod tls;

pub use config::{Attribution, ConfigChange, ConfigEntry, ConfigSet, GateMove};
pub use connect::Database;
pub use error::Error;
