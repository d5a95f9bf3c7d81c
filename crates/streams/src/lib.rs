//! Durable streams behind one interface.
//!
//! [`Store`] is what a server needs of streams; [`embedded`] keeps them in a segment log of
//! its own on one machine. This crate knows bytes, offsets and commits; it knows no HTTP.

mod batch;
mod error;
mod follow;
pub mod limits;
mod store;

pub mod embedded;

pub use batch::Batch;
pub use error::Error;
pub use follow::{Follower, Step};
pub use store::{
    Answer, Append, Appended, Create, Created, Delivered, Delivery, Head, List, Messages, Page, Retention,
    Store, StreamId,
};
