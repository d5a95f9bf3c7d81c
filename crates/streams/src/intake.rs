//! Messages that were left for streams in SQL transactions, as the store takes them in.

use bytes::Bytes;
use towpath_model::stream::name::StreamName;

use crate::{Append, FanOut};

/// The small values of the intake.
pub const NAMESPACE: &str = "intake";
/// The one that notes what was taken in.
pub(crate) const NOTED: &str = "noted";

/// Messages to take in together.
#[derive(Debug, Clone)]
pub struct IntakeBatch {
    /// The number of the batch before, as [`Store::noted`](crate::Store::noted) says. With another one the batch is
    /// refused as busy: somebody else was faster.
    pub before: u64,
    /// The messages, in order.
    pub messages: Vec<IntakeMessage>,
    /// When the sessions that follow the streams get them.
    pub fan_out: FanOut,
}

/// One message.
#[derive(Debug, Clone)]
pub struct IntakeMessage {
    /// Its number, given by the database.
    pub id: i64,
    /// The stream.
    pub name: StreamName,
    /// What to append.
    pub append: Append,
}

/// The last batch that was taken in. Written by the same commit that appended its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    /// Its number; 0 if there was none.
    pub batch: u64,
    /// Its messages.
    pub ids: Vec<i64>,
}

impl Noted {
    pub(crate) fn encode(&self) -> Bytes {
        let numbers = self.ids.iter().map(|id| id.to_le_bytes());
        std::iter::once(self.batch.to_le_bytes()).chain(numbers).flatten().collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Noted {
        let mut numbers = bytes.as_chunks::<8>().0.iter();
        let batch = numbers.next().map_or(0, |number| u64::from_le_bytes(*number));
        Noted { batch, ids: numbers.map(|number| i64::from_le_bytes(*number)).collect() }
    }
}
