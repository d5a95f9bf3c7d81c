//! Dev only: what tests need to be real, fast and merciless.
//!
//! A database of one's own in milliseconds, a clock that moves on command, races on two
//! connections, a running server, a network that fails and processes that are killed; a mail
//! server, and doubles of the HTTP providers.

pub mod database;
pub mod mail;
pub mod provider;
pub mod proxy;
pub mod race;
pub mod server;
pub mod statement;
pub mod victim;

pub use database::TestDb;
