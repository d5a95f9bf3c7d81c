//! Jobs: enqueue, claim, keep, finish, and what maintenance does for them.
//!
//! The hot path of `sql/functions/job_*.sql`, one typed call per function. Reading and
//! administering jobs is next door, in the modules named after what they show.

mod checkpoint;
mod claim;
mod enqueue;
mod finish;
mod heartbeat;
mod lease;
mod listen;
mod maintain;
mod new;
mod numbers;
mod schedule;

pub use claim::{Armed, Claim, ClaimedJob};
pub use enqueue::{Enqueued, enqueue, enqueue_many};
pub use finish::{AfterFailure, Ended, FailedAttempt, Failure, Unfinished};
pub use heartbeat::{Heartbeat, Status};
pub(crate) use lease::whole_seconds;
pub use lease::{Extended, Lease, LeaseEntry, LeaseOwner, Progress};
pub use listen::Listener;
pub use maintain::{Pass, Reaped};
pub use new::NewJob;
pub use numbers::Numbers;
pub use schedule::{CatchUp, DueSchedule, DueSchedules, Fired, Tick};

use crate::answer::{RawAnswer, read_raw, refusal};
