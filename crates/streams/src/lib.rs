//! Durable streams behind one interface. An internal part: applications depend on the crate `towpath`.
//!
//! [`Store`] is the interface; [`embedded`] implements it with a log of segment files on one
//! machine, or with a [`CommitLog`] that several machines share. This crate knows bytes, offsets and
//! commits, and nothing of HTTP or SQL.

mod batch;
mod circuits;
mod commit_log;
mod error;
mod fanout;
mod follow;
mod intake;
pub mod limits;
mod store;

pub mod embedded;

#[cfg(feature = "fuzz")]
pub use embedded::fuzz;

pub use batch::Batch;
pub use circuits::Circuits;
pub use commit_log::{Commit, CommitLog, Put, Unreachable};
pub use error::Error;
pub use fanout::{
    Beyond, FanOut, FanOutMode, FanOutState, FannedOut, Published, Session, SessionCounts, Subscribe,
    Subscribed, Subscription, Watch,
};
pub use follow::{Follower, Step};
pub use intake::{IntakeBatch, IntakeMessage, NAMESPACE as INTAKE, Noted};
pub use store::{
    Answer, Append, Appended, Create, Created, Head, List, Messages, Page, Retention, RetentionChange, Store,
    StreamId,
};
