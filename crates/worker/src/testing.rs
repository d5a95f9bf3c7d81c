//! For tests of programs that use this crate.

use serde_json::Value;
use towpath_db::door::Error;
use towpath_model::job::{Attempt, JobId};

use crate::Worker;
use crate::finish::Finished;
use crate::handler::Follow;

/// A test that runs more rounds than this has a job that makes itself again and again.
const ROUNDS_MAX: usize = 10_000;

/// An attempt that a test has run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// Its job.
    pub id: JobId,
    /// Of this kind.
    pub kind: String,
    /// Its number.
    pub attempt: Attempt,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well, with this result; null if there is none.
    Succeeded(Value),
    /// With an error that is worth another attempt.
    Failed(String),
    /// With an error that is not: the job is a dead letter.
    Permanent(String),
    /// It wants to be asked again later.
    Snoozed,
}

/// Runs what is due now, and what that makes due, until nothing is. Answers what ran, in the order of its end. Retries
/// that are not due yet stay: move the clock to reach them.
pub async fn run_until_drained(worker: &Worker) -> Result<Vec<Ran>, Error> {
    let mut ran = vec![];
    for _ in 0..ROUNDS_MAX {
        match worker.run_once().await? {
            more if more.is_empty() => return Ok(ran),
            more => ran.extend(more),
        }
    }
    panic!("still not drained after {ROUNDS_MAX} rounds and {} attempts", ran.len());
}

impl Finished {
    pub(crate) fn ran(&self, kind: &str) -> Ran {
        let outcome = match &self.result {
            Ok(output) => Outcome::Succeeded(output.json().map_or(Value::Null, |json| {
                serde_json::from_str(json.get()).expect("what was serialized is JSON")
            })),
            Err(failure) => match failure.follow {
                Follow::Retry(_) => Outcome::Failed(failure.error.clone()),
                Follow::Permanent => Outcome::Permanent(failure.error.clone()),
                Follow::Snooze(_) => Outcome::Snoozed,
                Follow::Suspended => Outcome::Succeeded(Value::Null),
            },
        };
        Ran { id: self.lease.job_id(), kind: kind.to_owned(), attempt: self.lease.attempt(), outcome }
    }
}
