//! The sequencer's pass: positions for events that have none (E03).

use serde::Deserialize;

use crate::answer::read;
use crate::{Database, Error};

/// What one pass of the sequencer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Sequenced {
    /// Events that got a position now.
    pub numbered: i64,
    /// The highest position there is.
    pub last_position: i64,
    /// There is more to number now.
    pub more: bool,
    /// Another sequencer is at it.
    pub busy: bool,
}

impl Database {
    /// Gives the next positions to up to `limit` events. Any number of callers may ask: one
    /// works, the others hear `busy`.
    pub async fn event_sequence(&self, limit: i32) -> Result<Sequenced, Error> {
        read(self.call("select towpath.fn_event_sequence($1)", &[&limit]).await?)
    }
}
