//! The nine states of a job, as the database names them (Q01).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waiting for its time, its parents or a worker.
    Queued,
    /// Claimed and not started.
    Leased,
    /// A worker is running it.
    InProgress,
    /// Done.
    Succeeded,
    /// An attempt failed.
    Failed,
    /// Waiting for its next attempt.
    RetryWaiting,
    /// Out of attempts or failed permanently; an operator decides.
    DeadLetter,
    /// Cancelled by an operator or by a graph.
    Cancelled,
    /// Finished long ago; retention dropped the details.
    Cleaned,
}

impl JobState {
    /// Every state, in the order of a job's life.
    pub const ALL: [JobState; 9] = [
        JobState::Queued,
        JobState::Leased,
        JobState::InProgress,
        JobState::Succeeded,
        JobState::Failed,
        JobState::RetryWaiting,
        JobState::DeadLetter,
        JobState::Cancelled,
        JobState::Cleaned,
    ];

    /// The name in the database.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Leased => "leased",
            JobState::InProgress => "in_progress",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::RetryWaiting => "retry_waiting",
            JobState::DeadLetter => "dead_letter",
            JobState::Cancelled => "cancelled",
            JobState::Cleaned => "cleaned",
        }
    }

    /// Whether the job has finished, unless an operator replays it.
    pub fn ended(self) -> bool {
        !matches!(
            self,
            JobState::Queued
                | JobState::Leased
                | JobState::InProgress
                | JobState::Failed
                | JobState::RetryWaiting
        )
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for JobState {
    type Err = String;

    fn from_str(word: &str) -> Result<JobState, String> {
        JobState::ALL.into_iter().find(|state| state.word() == word).ok_or_else(|| {
            let known = JobState::ALL.map(JobState::word);
            match crate::nearest::nearest(word, known) {
                Some(near) => format!("there is no state {word}; did you mean {near}?"),
                None => format!("there is no state {word}; the states are {}", known.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::JobState;

    #[test]
    fn words_read_back_as_themselves() {
        for state in JobState::ALL {
            assert_eq!(state.word().parse(), Ok(state));
            let json = serde_json::to_string(&state).expect("serialises");
            assert_eq!(json, format!("\"{}\"", state.word()), "serde and word() are one list");
        }
        assert!("inprogress".parse::<JobState>().expect_err("no").contains("in_progress"));
    }
}
