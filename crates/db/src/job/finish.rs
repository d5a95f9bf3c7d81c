//! Finish: how attempts end, one at a time or many at once.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Json;
use towpath_model::job::{Attempt, JobId};

use super::Lease;
use super::lease::columns;
use crate::answer::{read, read_field};
use crate::{Database, Error};

/// Why an attempt failed, and what should follow.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In words, for people; stored with the attempt.
    pub error: String,
    /// Whether trying again is pointless.
    pub permanent: bool,
    /// When to try again; the backoff of `queue.retry.backoff_base_sec` if not said (Q10).
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that is worth another attempt, at the time the database chooses.
    pub fn retry(error: impl Into<String>) -> Failure {
        Failure { error: error.into(), permanent: false, retry_after: None }
    }

    /// A failure that a retry cannot fix.
    pub fn permanent(error: impl Into<String>) -> Failure {
        Failure { error: error.into(), permanent: true, retry_after: None }
    }
}

/// What became of a job after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AfterFailure {
    /// It waits for its next attempt.
    RetryWaiting {
        /// Which may begin at this moment.
        scheduled_at: Timestamp,
    },
    /// It is a dead letter: the failure was permanent or the attempt the last one.
    DeadLetter,
}

/// One of many failed attempts.
#[derive(Debug)]
pub struct FailedAttempt {
    /// Which one.
    pub lease: Lease,
    /// And why.
    pub failure: Failure,
}

/// How many attempts ended as asked, and which had been lost before.
#[derive(Debug, Default)]
pub struct Ended {
    /// Attempts that ended now.
    pub ended: usize,
    /// Attempts that another owner holds or that had ended already.
    pub lost: Vec<JobId>,
    /// Of failed attempts: the jobs that are dead letters now.
    pub dead_letters: Vec<JobId>,
}

/// Attempts whose end could not be recorded. The database may or may not have recorded it, so
/// asking again is right: what did end answers as lost.
#[derive(Debug)]
pub struct Unfinished<T> {
    /// What went wrong.
    pub error: Error,
    /// The attempts, given back.
    pub attempts: Vec<T>,
}

impl Lease {
    /// leased | in_progress -> succeeded.
    pub async fn ack(self, database: &Database) -> Result<(), Error> {
        let sql = "select towpath.fn_job_ack($1, $2, $3, $4)";
        let (id, owner, attempt) = (self.id(), self.owner.as_str(), self.attempt.number());
        let answer = database.call(sql, &[&id, &owner, &attempt, &self.result.as_deref().map(Json)]).await?;
        database.job_numbers().ended(read_field::<JobId>(answer, "job_id")).map(drop)
    }

    /// leased | in_progress -> retry_waiting, or dead_letter if that was the end (Q10).
    pub async fn fail(self, database: &Database, failure: Failure) -> Result<AfterFailure, Error> {
        let sql = "select towpath.fn_job_fail_or_retry($1, $2, $3, $4, $5, $6)";
        let (id, owner, attempt) = (self.id(), self.owner.as_str(), self.attempt.number());
        let delay = failure.retry_after.map(|after| after.as_secs_f64());
        let answer =
            database.call(sql, &[&id, &owner, &attempt, &failure.error, &failure.permanent, &delay]).await?;
        database.job_numbers().ended(read(answer))
    }

    /// Gives the job back until later; the attempt does not count. Answers when it is due.
    pub async fn snooze(self, database: &Database, by: Duration, note: &str) -> Result<Timestamp, Error> {
        let sql = "select towpath.fn_job_snooze($1, $2, $3, $4, $5)";
        let (id, owner, attempt) = (self.id(), self.owner.as_str(), self.attempt.number());
        let seconds = super::lease::whole_seconds(by);
        read_field(database.call(sql, &[&id, &owner, &attempt, &seconds, &note]).await?, "scheduled_at")
    }
}

/// What belongs to one job.
trait OfJob {
    fn job_id(&self) -> JobId;
}

impl OfJob for Lease {
    fn job_id(&self) -> JobId {
        self.job_id
    }
}

impl OfJob for FailedAttempt {
    fn job_id(&self) -> JobId {
        self.lease.job_id
    }
}

impl Database {
    /// leased | in_progress -> succeeded for many attempts of one owner, in one transaction; one by one if that raises.
    /// An attempt that cannot be recorded is set aside and counts as lost (Q22).
    pub async fn ack_many(&self, leases: Vec<Lease>) -> Result<Ended, Unfinished<Lease>> {
        let done = self.ack_batch(leases).await;
        self.or_one_by_one("ack", done, |lease| self.ack_batch(vec![lease])).await
    }

    /// Ends many attempts of one owner badly, in one transaction; one by one if that raises.
    pub async fn fail_many(&self, failed: Vec<FailedAttempt>) -> Result<Ended, Unfinished<FailedAttempt>> {
        let done = self.fail_batch(failed).await;
        self.or_one_by_one("fail", done, |one| self.fail_batch(vec![one])).await
    }

    /// Gives back jobs that were claimed and not started, as if never claimed; one by one if that raises.
    pub async fn release(&self, leases: Vec<Lease>) -> Result<Ended, Unfinished<Lease>> {
        let done = self.release_entry(leases).await;
        self.or_one_by_one("release", done, |lease| self.release_entry(vec![lease])).await
    }

    /// What a call for many did; if PostgreSQL raised for something in it, what its items do one by one. The item it raises for
    /// is set aside, and its lease runs out.
    async fn or_one_by_one<T: OfJob, F: Future<Output = Result<Ended, Unfinished<T>>>>(
        &self,
        name: &str,
        done: Result<Ended, Unfinished<T>>,
        each: impl Fn(T) -> F,
    ) -> Result<Ended, Unfinished<T>> {
        let mut left = match done {
            Err(Unfinished { error, attempts }) if error.is_of_an_item() => attempts.into_iter(),
            done => return done,
        };
        let mut ended = Ended::default();
        while let Some(one) = left.next() {
            let job_id = one.job_id();
            match each(one).await {
                Ok(more) => {
                    ended.ended += more.ended;
                    ended.lost.extend(more.lost);
                    ended.dead_letters.extend(more.dead_letters);
                }
                Err(Unfinished { error, .. }) if error.is_of_an_item() => {
                    tracing::warn!(%job_id, %error, "{name} failed and was set aside; see: towpath fault list");
                    match self.set_aside(name, job_id, error).await {
                        Ok(job_id) => ended.lost.push(job_id),
                        Err(error) => return Err(Unfinished { error, attempts: left.collect() }),
                    }
                }
                Err(Unfinished { error, mut attempts }) => {
                    attempts.extend(left);
                    return Err(Unfinished { error, attempts });
                }
            }
        }
        Ok(ended)
    }

    async fn ack_batch(&self, mut leases: Vec<Lease>) -> Result<Ended, Unfinished<Lease>> {
        // As lease entries have them, so that entries are acked whole: see sql/functions/lease_entry.sql.
        leases.sort_unstable_by_key(|lease| (lease.entry, lease.job_id));
        let Some(owner) = leases.first().map(|lease| lease.owner.clone()) else {
            return Ok(Ended::default());
        };
        let attempts = attempts_of(leases.iter());
        let (ids, numbers) = columns(&attempts);
        let entries = entries_of(&leases);
        let has_result = leases.iter().any(|lease| lease.result.is_some());
        let results: Option<Vec<_>> =
            has_result.then(|| leases.iter().map(|lease| lease.result.as_deref().map(Json)).collect());
        let sql = "select towpath.fn_job_ack_many($1, $2, $3, $4, $5)";
        let answer = self.call(sql, &[&ids, &owner.as_str(), &numbers, &entries, &results]).await;
        drop(results);
        self.ended(answer, attempts.len()).map_err(|error| Unfinished { error, attempts: leases })
    }

    async fn fail_batch(&self, failed: Vec<FailedAttempt>) -> Result<Ended, Unfinished<FailedAttempt>> {
        #[derive(Debug, Serialize)]
        struct Row<'a> {
            job_id: JobId,
            attempt: Attempt,
            error: &'a str,
            permanent: bool,
            retry_delay_seconds: Option<f64>,
        }
        let Some(owner) = failed.first().map(|one| one.lease.owner.clone()) else {
            return Ok(Ended::default());
        };
        let rows: Vec<_> = failed
            .iter()
            .map(|FailedAttempt { lease, failure }| Row {
                job_id: lease.job_id,
                attempt: lease.attempt,
                error: &failure.error,
                permanent: failure.permanent,
                retry_delay_seconds: failure.retry_after.map(|after| after.as_secs_f64()),
            })
            .collect();
        let sql = "select towpath.fn_job_fail_or_retry_many($1, $2)";
        let answer = self.call(sql, &[&owner.as_str(), &Json(&rows)]).await;
        let ended = self.ended(answer, rows.len());
        drop(rows);
        ended.map_err(|error| Unfinished { error, attempts: failed })
    }

    async fn release_entry(&self, leases: Vec<Lease>) -> Result<Ended, Unfinished<Lease>> {
        let Some(owner) = leases.first().map(|lease| lease.owner.clone()) else {
            return Ok(Ended::default());
        };
        let attempts = attempts_of(leases.iter());
        let (ids, numbers) = columns(&attempts);
        let sql = "select towpath.fn_job_release($1, $2, $3)";
        let answer = self.call(sql, &[&ids, &owner.as_str(), &numbers]).await;
        lost_of(answer, attempts.len()).map_err(|error| Unfinished { error, attempts: leases })
    }

    fn ended(&self, answer: Result<serde_json::Value, Error>, asked: usize) -> Result<Ended, Error> {
        let ended = lost_of(answer, asked)?;
        self.job_numbers().rejected(ended.lost.len());
        Ok(ended)
    }
}

/// The lease entries of these; none if one of them is not known, and then the database looks for itself.
fn entries_of(leases: &[Lease]) -> Option<Vec<i64>> {
    let mut entries = leases.iter().map(|lease| Some(lease.entry?.number)).collect::<Option<Vec<i64>>>()?;
    entries.dedup();
    Some(entries)
}

fn attempts_of<'a>(leases: impl Iterator<Item = &'a Lease>) -> Vec<(JobId, Attempt)> {
    leases.map(|lease| (lease.job_id, lease.attempt)).collect()
}

fn lost_of(answer: Result<serde_json::Value, Error>, asked: usize) -> Result<Ended, Error> {
    #[derive(Deserialize)]
    struct Answer {
        lost: Vec<JobId>,
        #[serde(default)]
        dead_letter: Vec<JobId>,
    }
    let Answer { lost, dead_letter } = read(answer?)?;
    Ok(Ended { ended: asked - lost.len(), lost, dead_letters: dead_letter })
}
