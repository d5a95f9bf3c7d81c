//! `claim`, which may wait for a job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use towpath_db::Database;
use towpath_db::job::{Claim, ClaimedJob, Lease, LeaseOwner};
use towpath_model::id::TokenId;
use towpath_model::job::{Attempt, JobId};
use towpath_model::trace::TraceParent;
use uuid::Uuid;

use super::caller::Caller;
use super::{Error, Jobs, body};
use crate::limits;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    kinds: Option<Vec<String>>,
    #[serde(default = "one")]
    limit: i32,
    #[serde(default)]
    wait_seconds: u64,
    lease_seconds: Option<u32>,
}

fn one() -> i32 {
    1
}

#[derive(Debug, Serialize)]
pub(crate) struct Claimed {
    jobs: Vec<Job>,
}

/// A job, with the `job_id` and `attempt` that every later call about it takes.
#[derive(Debug, Serialize)]
struct Job {
    job_id: JobId,
    attempt: Attempt,
    max_attempts: i32,
    job_kind: String,
    event_domain: Option<String>,
    source_ref: Option<String>,
    target_ref: Option<String>,
    payload_ref: Option<String>,
    payload_json: Box<RawValue>,
    priority: i32,
    scheduled_at: Timestamp,
    idempotency_key: String,
    actor: String,
    run_id: Option<Uuid>,
    created_at: Timestamp,
    /// The span that enqueued it, as the parent of the attempt's span.
    traceparent: Option<TraceParent>,
    lease_until: Timestamp,
    /// The lease entry it is part of: acks that name it cost less.
    entry_id: Option<i64>,
    /// What an earlier attempt left.
    checkpoint: Option<Value>,
}

/// What a waiting claim asks the database for. Owned, because the query may outlive its
/// client.
#[derive(Clone)]
struct Look {
    database: Database,
    executor: String,
    kinds: Option<Vec<String>>,
    limit: i32,
    owner: LeaseOwner,
    lease: Option<Duration>,
}

/// Claims due jobs, at once or when one arrives; answers none after the time limit.
pub(crate) async fn claim(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Claimed>, Error> {
    let asked: Asked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let found = claimed(&jobs, &caller, asked).await?;
    let later = found.iter().map(|job| &job.lease).filter(|lease| lease.attempt().number() > 1);
    let later: Vec<JobId> = later.map(Lease::job_id).collect();
    let mut left = match later.is_empty() {
        true => HashMap::new(),
        false => jobs.database.checkpoints(&caller.owner, &later).await?,
    };
    let told = found.into_iter().map(|job| {
        let checkpoint = left.remove(&job.lease.job_id());
        Job { checkpoint, ..Job::from(job) }
    });
    Ok(Json(Claimed { jobs: told.collect() }))
}

/// The jobs that a claim gets.
pub(super) async fn claimed(jobs: &Jobs, caller: &Caller, asked: Asked) -> Result<Vec<ClaimedJob>, Error> {
    if !(1..=limits::CLAIM_JOBS_MAX).contains(&asked.limit) {
        return Err(Error::Invalid(format!("limit must be between 1 and {}", limits::CLAIM_JOBS_MAX)));
    }
    let wait = Duration::from_secs(asked.wait_seconds);
    if wait > limits::CLAIM_WAIT_MAX {
        let most = limits::CLAIM_WAIT_MAX.as_secs();
        return Err(Error::Invalid(format!(
            "wait_seconds must be between 0 and {most}; claim again to wait longer"
        )));
    }
    let look = Look {
        database: jobs.database.clone(),
        executor: caller.executor_id.clone(),
        kinds: caller.kinds(asked.kinds)?,
        limit: asked.limit,
        owner: caller.owner.clone(),
        lease: asked.lease_seconds.map(|seconds| Duration::from_secs(seconds.into())),
    };
    match wait.is_zero() {
        true => look.now().await,
        false => {
            let place =
                jobs.waiting.enter(caller.scope.token_id, (look.executor.clone(), look.kinds.clone()))?;
            let waiting = wait_for_jobs(jobs, caller, &look, &place);
            tokio::time::timeout(wait, waiting).await.unwrap_or_else(|_| Ok(vec![]))
        }
    }
}

/// Polls until there is a job, and sleeps between polls until notified.
async fn wait_for_jobs(
    jobs: &Jobs,
    caller: &Caller,
    look: &Look,
    place: &Place,
) -> Result<Vec<ClaimedJob>, Error> {
    let mut woken = jobs.wake.subscribe();
    while !jobs.shutdown.is_cancelled() {
        // Before the poll, so that a notification between the poll and the sleep is not lost.
        let wake_up = *woken.borrow_and_update();
        let found = look_in_turn(jobs, caller, look, place, wake_up).await?;
        if !found.is_empty() {
            return Ok(found);
        }
        tokio::select! {
            _ = woken.changed() => {}
            () = tokio::time::sleep(limits::CLAIM_POLL) => {}
            () = jobs.shutdown.cancelled() => {}
        }
    }
    Ok(vec![])
}

/// Equal claims take turns, and one that found nothing answers for the others: a notification
/// costs one poll per executor, however many of its claims wait.
async fn look_in_turn(
    jobs: &Jobs,
    caller: &Caller,
    look: &Look,
    place: &Place,
    wake_up: u64,
) -> Result<Vec<ClaimedJob>, Error> {
    let mut turn = place.turn.lock().await;
    if turn.is_some_and(|last| last.wake_up == wake_up && last.at.elapsed() < limits::CLAIM_POLL * 3 / 4) {
        return Ok(vec![]);
    }
    // A token that was revoked meanwhile gets no job.
    jobs.database.executor_token_check(&caller.hash).await.map_err(|error| match error {
        towpath_db::Error::NotAuthorised(detail) => Error::Unauthenticated(detail),
        other => other.into(),
    })?;
    let mut found = look.now().await?;
    if found.is_empty() {
        jobs.database.arm(&look.executor, look.kinds.as_deref()).await?;
        found = look.now().await?;
    }
    if found.is_empty() {
        tokio::time::sleep(limits::CLAIM_SECOND_LOOK).await;
        found = look.now().await?;
    }
    if found.is_empty() {
        *turn = Some(FoundNothing { wake_up, at: Instant::now() });
    }
    Ok(found)
}

impl Look {
    /// Claims in a separate task: if the client disconnects while the database answers, its jobs
    /// are released at once instead of when the lease expires.
    async fn now(&self) -> Result<Vec<ClaimedJob>, Error> {
        let (send, receive) = oneshot::channel();
        let look = self.clone();
        tokio::spawn(async move {
            let claim = Claim {
                executor: &look.executor,
                kinds: look.kinds.as_deref(),
                limit: look.limit,
                owner: &look.owner,
                lease: look.lease,
            };
            if let Err(Ok(unwanted)) = send.send(look.database.claim(&claim).await) {
                let leases = unwanted.into_iter().map(|job| job.lease).collect();
                if let Err(unfinished) = look.database.release(leases).await {
                    tracing::warn!(error = %unfinished.error, "cannot release the jobs of a disconnected client; the reaper will");
                }
            }
        });
        Ok(receive.await.expect("a look answers before it ends")?)
    }
}

impl From<ClaimedJob> for Job {
    fn from(claimed: ClaimedJob) -> Job {
        Job {
            job_id: claimed.lease.job_id(),
            attempt: claimed.lease.attempt(),
            max_attempts: claimed.max_attempts,
            job_kind: claimed.kind,
            event_domain: claimed.event_domain,
            source_ref: claimed.source_ref,
            target_ref: claimed.target_ref,
            payload_ref: claimed.payload_ref,
            payload_json: claimed.payload,
            priority: claimed.priority,
            scheduled_at: claimed.scheduled_at,
            idempotency_key: claimed.idempotency_key,
            actor: claimed.actor,
            run_id: claimed.run_id,
            created_at: claimed.created_at,
            traceparent: claimed.traceparent,
            lease_until: claimed.lease.expires_at(),
            entry_id: claimed.lease.entry().map(|entry| entry.number),
            checkpoint: None,
        }
    }
}

/// What equal claims have in common: the executor and the kinds.
type ClaimKey = (String, Option<Vec<String>>);

/// The last poll that found nothing, and the notification before it.
#[derive(Clone, Copy)]
struct FoundNothing {
    wake_up: u64,
    at: Instant,
}

type Turn = Arc<tokio::sync::Mutex<Option<FoundNothing>>>;

/// The waiting claims, by token and by what they claim.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Places>);

#[derive(Default)]
struct Places {
    by_token: HashMap<TokenId, usize>,
    by_key: HashMap<ClaimKey, Turn>,
}

/// A waiting claim, counted until it is dropped.
struct Place {
    waiting: Arc<Waiting>,
    token: TokenId,
    key: ClaimKey,
    turn: Turn,
}

impl Waiting {
    fn enter(self: &Arc<Self>, token: TokenId, key: ClaimKey) -> Result<Place, Error> {
        let mut places = self.places();
        if places.by_token.values().sum::<usize>() >= limits::CLAIMS_WAITING_MAX {
            return Err(Error::Busy("too many claims are waiting; claim without wait_seconds".into()));
        }
        let own = places.by_token.entry(token).or_default();
        if *own >= limits::CLAIMS_WAITING_PER_TOKEN_MAX {
            return Err(Error::Busy(format!(
                "{own} claims of this token are waiting already; claim more jobs per call instead"
            )));
        }
        *own += 1;
        let turn = places.by_key.entry(key.clone()).or_default().clone();
        Ok(Place { waiting: self.clone(), token, key, turn })
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.waiting.places();
        if let Some(own) = places.by_token.get_mut(&self.token) {
            *own -= 1;
            if *own == 0 {
                places.by_token.remove(&self.token);
            }
        }
        // One reference of the map and this one: no other claim waits for the same.
        if Arc::strong_count(&self.turn) == 2 {
            places.by_key.remove(&self.key);
        }
    }
}
