//! Claim: due jobs under a lease, and the flag that asks for a wake-up.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use towpath_model::job::{Attempt, JobId};
use towpath_model::trace::TraceParent;
use uuid::Uuid;

use super::lease::{Payload, whole_seconds};
use super::{Lease, LeaseEntry, LeaseOwner};
use crate::answer::{read, read_field};
use crate::{Database, Error};

/// What to claim, for whom.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// The executor whose subscriptions decide what may be claimed (R06).
    pub executor: &'a str,
    /// Only these kinds, or all that are subscribed.
    pub kinds: Option<&'a [String]>,
    /// At most so many.
    pub limit: i32,
    /// Who will hold the leases.
    pub owner: &'a LeaseOwner,
    /// For how long; `queue.lease.duration_sec` if not said.
    pub lease: Option<Duration>,
}

/// A job and the lease on it.
#[derive(Debug)]
pub struct ClaimedJob {
    /// Proof of owning this attempt.
    pub lease: Lease,
    /// The attempt with this number is the last.
    pub max_attempts: i32,
    /// Its kind.
    pub kind: String,
    /// The event domain it belongs to.
    pub event_domain: Option<String>,
    /// Where it comes from.
    pub source_ref: Option<String>,
    /// What it is about.
    pub target_ref: Option<String>,
    /// Where its data lies.
    pub payload_ref: Option<String>,
    /// The payload, not parsed yet.
    pub payload: Box<RawValue>,
    /// Its urgency.
    pub priority: i32,
    /// When it became due.
    pub scheduled_at: Timestamp,
    /// Its idempotency key; the id if it was given none.
    pub idempotency_key: String,
    /// Who wanted it.
    pub actor: String,
    /// The run it is part of.
    pub run_id: Option<Uuid>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The span that wanted it.
    pub traceparent: Option<TraceParent>,
}

/// The answer to arming.
#[derive(Debug, Clone, Deserialize)]
pub struct Armed {
    /// How many flags went up; 0 if all were up already.
    pub armed: i32,
    /// When a job that already waits becomes due.
    pub next_due_at: Option<Timestamp>,
}

const CLAIM: &str = "
    select job_id, attempt, max_attempts, job_kind, event_domain, source_ref, target_ref, payload_ref,
           payload_json, priority, scheduled_at, idempotency_key, actor, run_id, created_at, lease_until, refusal,
           entry_id, traceparent
      from towpath.fn_job_claim_rows($1, $2, $3, $4, $5)";

impl Database {
    /// Takes due jobs under a lease, the most urgent first (Q07). If that raises, the jobs it raises for are set aside,
    /// and the claim is made again without them (Q22).
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<ClaimedJob>, Error> {
        match self.claim_once(claim).await {
            Err(error) if error.is_of_an_item() => {
                let sql = "select towpath.fn_job_claim_set_aside($1, $2)";
                let answer = self.call(sql, &[&claim.executor, &claim.kinds]).await?;
                let aside: Vec<JobId> = read_field(answer, "set_aside")?;
                tracing::warn!(jobs = aside.len(), %error, "a claim failed; see: towpath fault list");
                if aside.is_empty() { Err(error) } else { self.claim_once(claim).await }
            }
            done => done,
        }
    }

    async fn claim_once(&self, claim: &Claim<'_>) -> Result<Vec<ClaimedJob>, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(CLAIM).await?;
        let seconds = claim.lease.map(whole_seconds);
        let rows = client
            .query(
                &statement,
                &[&claim.executor, &claim.kinds, &claim.limit, &claim.owner.as_str(), &seconds],
            )
            .await?;
        let mut jobs: Vec<_> =
            rows.iter().map(|row| read_claimed(row, claim.owner)).collect::<Result<_, Error>>()?;
        // Mostly in order already, and cheaper here than in the database.
        jobs.sort_by_key(|job| (Reverse(job.priority), job.scheduled_at, job.lease.job_id));
        count_entries(&mut jobs);
        self.job_numbers().claimed(&jobs);
        Ok(jobs)
    }

    /// Asks to be notified of the next job of these kinds, once.
    pub async fn arm(&self, executor: &str, kinds: Option<&[String]>) -> Result<Armed, Error> {
        read(self.call("select towpath.fn_job_arm($1, $2)", &[&executor, &kinds]).await?)
    }
}

/// Tells every lease how many jobs its entry has: a claim gives all of them to one owner.
fn count_entries(jobs: &mut [ClaimedJob]) {
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for entry in jobs.iter().filter_map(|job| job.lease.entry) {
        *counts.entry(entry.number).or_default() += 1;
    }
    for entry in jobs.iter_mut().filter_map(|job| job.lease.entry.as_mut()) {
        entry.jobs = counts[&entry.number];
    }
}

fn read_claimed(row: &Row, owner: &LeaseOwner) -> Result<ClaimedJob, Error> {
    let Some(job_id) = row.get::<_, Option<Uuid>>(0) else {
        return Err(Error::refused(&row.get::<_, Option<Value>>(16).unwrap_or_default()));
    };
    let Json(payload): Json<Payload> = row.get(8);
    Ok(ClaimedJob {
        lease: Lease {
            job_id: JobId::from(job_id),
            owner: owner.clone(),
            attempt: Attempt::from(row.get::<_, i32>(1)),
            expires_at: row.get(15),
            entry: row.get::<_, Option<i64>>(17).map(|number| LeaseEntry { number, jobs: 0 }),
            result: None,
        },
        max_attempts: row.get(2),
        kind: row.get(3),
        event_domain: row.get(4),
        source_ref: row.get(5),
        target_ref: row.get(6),
        payload_ref: row.get(7),
        payload,
        priority: row.get(9),
        scheduled_at: row.get(10),
        idempotency_key: row.get::<_, Option<String>>(11).unwrap_or_else(|| job_id.to_string()),
        actor: row.get(12),
        run_id: row.get(13),
        created_at: row.get(14),
        traceparent: row.get::<_, Option<&str>>(18).and_then(|text| text.parse().ok()),
    })
}
