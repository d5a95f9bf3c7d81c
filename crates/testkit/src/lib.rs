//! Tools for tests; not part of the program, and internal.
//!
//! A database per test, created in milliseconds; a clock that tests set; a queue with its users; routes and subscriptions; races between two
//! connections; a running server; a receiver of webhooks; a faulty network; processes to kill; a mail server, and
//! doubles of the HTTP providers. Every wait has the one bound of `wait`.

pub mod background;
pub mod count;
pub mod database;
pub mod event;
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
