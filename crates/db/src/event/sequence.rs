//! The sequencer's pass: gives positions to events (E03).

use serde::Deserialize;

use crate::answer::read;
use crate::{Database, Error};

/// What one pass of the sequencer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Sequenced {
    /// Events that got a position.
    pub numbered: i64,
    /// The highest position there is.
    pub last_position: i64,
    /// More events need a position.
    pub more: bool,
    /// Another sequencer is running.
    pub busy: bool,
}

impl Database {
    /// Gives the next positions to up to `limit` events. With several callers one works, the others get `busy`.
    pub async fn event_sequence(&self, limit: i32) -> Result<Sequenced, Error> {
        read(self.call("select towpath.fn_event_sequence($1)", &[&limit]).await?)
    }
}
