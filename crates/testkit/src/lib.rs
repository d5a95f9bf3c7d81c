//! Dev only: what tests need to be real, fast and merciless.
//!
//! A database of one's own in milliseconds, a clock that moves on command, a queue with its users, races on two
//! connections, a running server, a receiver of webhooks, a network that fails and processes that are killed; a mail
//! server, and doubles of the HTTP providers. Whatever waits has the one bound of `wait`.

pub mod background;
pub mod count;
pub mod database;
pub mod mail;
pub mod provider;
pub mod proxy;
pub mod queue;
pub mod race;
pub mod receiver;
pub mod server;
pub mod statement;
pub mod victim;
pub mod wait;

pub use database::TestDb;
