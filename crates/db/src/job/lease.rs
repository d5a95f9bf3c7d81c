//! The lease: proof of owning one attempt, and what its holder may do before the end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use towpath_model::job::{Attempt, JobId};
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// Who holds leases: one name per running process, never used again by another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseOwner(Arc<str>);

impl LeaseOwner {
    /// The owner of this name.
    pub fn new(name: impl Into<Arc<str>>) -> LeaseOwner {
        LeaseOwner(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Proof that this process owns one attempt of a job until `expires_at`.
///
/// Only a claim creates a lease, and `ack` and `fail` consume it, so finishing an attempt
/// twice does not compile. Not `Clone` for that reason.
#[derive(Debug)]
pub struct Lease {
    pub(super) job_id: JobId,
    pub(super) owner: LeaseOwner,
    pub(super) attempt: Attempt,
    pub(super) expires_at: Timestamp,
    pub(super) entry: Option<LeaseEntry>,
    pub(super) result: Option<Box<RawValue>>,
}

/// The lease entry of the database that a lease is part of. Acking all its jobs in one call costs the database least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseEntry {
    /// Its number.
    pub number: i64,
    /// How many jobs it has.
    pub jobs: usize,
}

/// How far a job is. What is `None` stays as it was.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress<'a> {
    /// From 0 to 100.
    pub percent: Option<i32>,
    /// In words.
    pub message: Option<&'a str>,
}

/// The outcome of extending many leases.
#[derive(Debug, Clone, Deserialize)]
pub struct Extended {
    /// How many are held on.
    pub extended: usize,
    /// Until when.
    pub lease_until: Timestamp,
    /// Those that were reaped, cancelled or finished: their work should stop.
    pub lost: Vec<JobId>,
}

impl Lease {
    /// A lease whose holder keeps it outside of this process, as an executor on the other
    /// side of HTTP does. The database still checks that it is held.
    pub fn held_elsewhere(job_id: JobId, owner: LeaseOwner, attempt: Attempt) -> Lease {
        Lease { job_id, owner, attempt, expires_at: Timestamp::MIN, entry: None, result: None }
    }

    /// The same with its lease entry, if the holder knows it.
    pub fn in_entry(mut self, number: Option<i64>) -> Lease {
        self.entry = number.map(|number| LeaseEntry { number, jobs: 0 });
        self
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.job_id
    }

    /// The holder.
    pub fn owner(&self) -> &LeaseOwner {
        &self.owner
    }

    /// The number of the attempt.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Its lease entry, if it was claimed by this process.
    pub fn entry(&self) -> Option<LeaseEntry> {
        self.entry
    }

    /// The same, to be acked with this result.
    pub fn with_result(mut self, result: Box<RawValue>) -> Lease {
        self.result = Some(result);
        self
    }

    /// Takes the result back.
    pub fn take_result(&mut self) -> Option<Box<RawValue>> {
        self.result.take()
    }

    /// When the reaper may give the job to another worker.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// leased -> in_progress (Q09).
    pub async fn start(&self, database: &Database) -> Result<(), Error> {
        let sql = "select towpath.fn_job_start($1, $2, $3)";
        let answer = database.call(sql, &[&self.id(), &self.owner.as_str(), &self.attempt.number()]).await?;
        read_field::<JobId>(answer, "job_id").map(drop)
    }

    /// Keeps the attempt for at least this long from now.
    pub async fn extend(&mut self, database: &Database, by: Duration) -> Result<(), Error> {
        let sql = "select towpath.fn_job_extend_lease($1, $2, $3, $4)";
        let (id, attempt, seconds) = (self.id(), self.attempt.number(), whole_seconds(by));
        let answer = database.call(sql, &[&id, &self.owner.as_str(), &attempt, &seconds]).await?;
        self.expires_at = read_field(answer, "lease_until")?;
        Ok(())
    }

    /// Stores how far the job is, for people to see (Q09).
    pub async fn progress(&self, database: &Database, progress: Progress<'_>) -> Result<(), Error> {
        let sql = "select towpath.fn_job_progress($1, $2, $3, $4, $5)";
        let (id, attempt) = (self.id(), self.attempt.number());
        let answer = database
            .call(sql, &[&id, &self.owner.as_str(), &attempt, &progress.percent, &progress.message])
            .await?;
        read_field::<JobId>(answer, "job_id").map(drop)
    }

    pub(super) fn id(&self) -> Uuid {
        self.job_id.uuid()
    }
}

impl Database {
    /// leased -> in_progress for many attempts of one owner; answers those that are lost. If that raises, one by one:
    /// what cannot be started is set aside and counts as lost (Q22).
    pub async fn start_many(
        &self,
        owner: &LeaseOwner,
        attempts: &[(JobId, Attempt)],
    ) -> Result<Vec<JobId>, Error> {
        match self.start_batch(owner, attempts).await {
            Err(error) if error.is_of_an_item() => {}
            done => return done,
        }
        let mut lost = vec![];
        for one in attempts {
            match self.start_batch(owner, std::slice::from_ref(one)).await {
                Ok(more) => lost.extend(more),
                Err(error) => lost.push(self.set_aside("start", one.0, error).await?),
            }
        }
        Ok(lost)
    }

    /// Notes that PostgreSQL raises for this job.
    pub(super) async fn set_aside(&self, name: &str, job_id: JobId, error: Error) -> Result<JobId, Error> {
        if !error.is_of_an_item() {
            return Err(error);
        }
        self.loop_fault_record(name, &job_id.to_string(), &error.to_string()).await?;
        Ok(job_id)
    }

    async fn start_batch(
        &self,
        owner: &LeaseOwner,
        attempts: &[(JobId, Attempt)],
    ) -> Result<Vec<JobId>, Error> {
        let (ids, numbers) = columns(attempts);
        let sql = "select towpath.fn_job_start_many($1, $2, $3)";
        read_field(self.call(sql, &[&ids, &owner.as_str(), &numbers]).await?, "lost")
    }

    /// Keeps many attempts of one owner for at least this long from now.
    ///
    /// Takes numbers instead of leases: renewing happens beside the work that holds them. One by one if that raises, as
    /// in `start_many`.
    pub async fn extend_many(
        &self,
        owner: &LeaseOwner,
        attempts: &[(JobId, Attempt)],
        by: Duration,
    ) -> Result<Extended, Error> {
        match self.extend_batch(owner, attempts, by).await {
            Err(error) if error.is_of_an_item() => {}
            done => return done,
        }
        let mut all = Extended { extended: 0, lease_until: Timestamp::MAX, lost: vec![] };
        for one in attempts {
            match self.extend_batch(owner, std::slice::from_ref(one), by).await {
                Ok(more) => {
                    all.extended += more.extended;
                    all.lease_until = all.lease_until.min(more.lease_until);
                    all.lost.extend(more.lost);
                }
                Err(error) => all.lost.push(self.set_aside("extend", one.0, error).await?),
            }
        }
        Ok(all)
    }

    async fn extend_batch(
        &self,
        owner: &LeaseOwner,
        attempts: &[(JobId, Attempt)],
        by: Duration,
    ) -> Result<Extended, Error> {
        let (ids, numbers) = columns(attempts);
        let sql = "select towpath.fn_job_extend_lease_many($1, $2, $3, $4)";
        read(self.call(sql, &[&ids, &owner.as_str(), &numbers, &whole_seconds(by)]).await?)
    }

    /// Stores how far a job is, for a holder whose lease is elsewhere in the process.
    pub async fn progress(
        &self,
        owner: &LeaseOwner,
        (job_id, attempt): (JobId, Attempt),
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let lease = Lease::held_elsewhere(job_id, owner.clone(), attempt);
        lease.progress(self, progress).await
    }
}

/// The two array parameters that every call about many attempts takes.
pub(super) fn columns(attempts: &[(JobId, Attempt)]) -> (Vec<Uuid>, Vec<i32>) {
    attempts.iter().map(|(job_id, attempt)| (job_id.uuid(), attempt.number())).unzip()
}

/// Rounded up: a lease shorter than asked for would surprise, a longer one does not.
pub(crate) fn whole_seconds(duration: Duration) -> i32 {
    let up = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(up).unwrap_or(i32::MAX)
}

/// The payload as it is stored, not parsed yet.
pub(super) type Payload = Box<RawValue>;
