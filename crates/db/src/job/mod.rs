//! Jobs: enqueue, claim, keep, finish, and what maintenance does for them.
//!
//! The hot path of `sql/functions/job_*.sql`, one typed call per function. Reading and
//! administering jobs is next door, in the modules named after what they show.

mod claim;
mod enqueue;
mod finish;
mod heartbeat;
mod lease;
mod listen;
mod maintain;
mod new;
mod schedule;
#[cfg(feature = "sqlx")]
pub mod sqlx;

pub use claim::{Armed, Claim, ClaimedJob};
pub use enqueue::{Enqueued, enqueue, enqueue_many};
pub use finish::{AfterFailure, Ended, FailedAttempt, Failure, Unfinished};
pub use heartbeat::{Heartbeat, Status};
pub(crate) use lease::whole_seconds;
pub use lease::{Extended, Lease, LeaseOwner, Progress};
pub use listen::Listener;
pub use maintain::{Pass, Reaped};
pub use new::NewJob;
pub use schedule::{CatchUp, DueSchedule, DueSchedules, Fired, Tick};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::Error;

/// A jsonb answer that is read straight into its type: answers of batches are long.
type RawAnswer = tokio_postgres::types::Json<Box<RawValue>>;

/// The answer as `T`, or the refusal as an [`Error`].
fn read_raw<T: DeserializeOwned>(answer: &RawAnswer) -> Result<T, Error> {
    #[derive(serde::Deserialize)]
    struct Head {
        ok: bool,
    }
    let text = answer.0.get();
    match serde_json::from_str(text) {
        Ok(Head { ok: true }) => serde_json::from_str(text).map_err(|_| Error::Unreadable(text.to_owned())),
        _ => Err(refusal(text)),
    }
}

fn refusal(text: &str) -> Error {
    match serde_json::from_str(text) {
        Ok(answer) => Error::refused(&answer),
        Err(_) => Error::Unreadable(text.to_owned()),
    }
}
