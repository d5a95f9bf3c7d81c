//! Dev only: what tests need to be real, fast and merciless.
//!
//! A database of one's own in milliseconds, a clock that moves on command, races on two
//! connections, a running server, a network that fails and processes that are killed.

pub mod database;
pub mod proxy;
pub mod race;
pub mod server;
pub mod victim;

pub use database::TestDb;
