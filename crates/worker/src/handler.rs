//! Handlers: what runs a job, what it is told, and how it says how it went.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use towpath_db::job::{ClaimedJob, LeaseOwner, NewJob, Progress};
use towpath_db::payload::Payload;
use towpath_db::{Database, Error};
use towpath_model::job::{Attempt, JobId};
use towpath_model::trace::TraceParent;
use towpath_trace::Span;
use uuid::Uuid;

/// A typed payload: what is enqueued, and what its handler gets.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The kind under which it is enqueued and claimed.
    const KIND: &'static str;

    /// A job with this payload, to be refined and enqueued.
    fn new_job(&self) -> std::result::Result<NewJob, Error> {
        NewJob::new(Self::KIND).payload(self)
    }
}

/// What a handler answers.
pub type Result = std::result::Result<(), Failure>;

/// Why an attempt did not succeed, and what should follow.
///
/// Any error becomes a failure worth another attempt, so `?` does what one expects. Not an
/// error itself, for that reason.
#[derive(Debug)]
pub struct Failure {
    pub(crate) error: String,
    pub(crate) follow: Follow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    Retry(Option<Duration>),
    Permanent,
    Snooze(Duration),
}

impl Failure {
    /// Worth another attempt, when the kind's policy or the database's backoff says.
    pub fn retry(error: impl Display) -> Failure {
        Failure { error: error.to_string(), follow: Follow::Retry(None) }
    }

    /// Worth another attempt after this time.
    pub fn retry_after(error: impl Display, after: Duration) -> Failure {
        Failure { error: error.to_string(), follow: Follow::Retry(Some(after)) }
    }

    /// Trying again cannot help: the job goes to the dead letters.
    pub fn permanent(error: impl Display) -> Failure {
        Failure { error: error.to_string(), follow: Follow::Permanent }
    }

    /// Not now: ask again after this time. The attempt does not count.
    pub fn snooze(after: Duration) -> Failure {
        Failure { error: String::new(), follow: Follow::Snooze(after) }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut words = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            words = format!("{words}: {cause}");
            source = cause.source();
        }
        Failure { error: words, follow: Follow::Retry(None) }
    }
}

/// What a handler is told about its job besides the payload. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) about: Arc<About>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) database: Arc<Database>,
    pub(crate) owner: LeaseOwner,
    pub(crate) trace: Option<TraceParent>,
}

pub(crate) struct About {
    job_id: JobId,
    attempt: Attempt,
    job: Described,
}

/// A claimed job without its lease and payload, which went other ways.
pub(crate) struct Described {
    max_attempts: i32,
    kind: String,
    event_domain: Option<String>,
    source_ref: Option<String>,
    target_ref: Option<String>,
    payload_ref: Option<String>,
    priority: i32,
    scheduled_at: Timestamp,
    idempotency_key: String,
    actor: String,
    run_id: Option<Uuid>,
    created_at: Timestamp,
    traceparent: Option<TraceParent>,
}

/// Takes a claimed job apart.
pub(crate) fn take_apart(job: ClaimedJob) -> (towpath_db::job::Lease, Box<RawValue>, Arc<About>) {
    let described = Described {
        max_attempts: job.max_attempts,
        kind: job.kind,
        event_domain: job.event_domain,
        source_ref: job.source_ref,
        target_ref: job.target_ref,
        payload_ref: job.payload_ref,
        priority: job.priority,
        scheduled_at: job.scheduled_at,
        idempotency_key: job.idempotency_key,
        actor: job.actor,
        run_id: job.run_id,
        created_at: job.created_at,
        traceparent: job.traceparent,
    };
    let about = About { job_id: job.lease.job_id(), attempt: job.lease.attempt(), job: described };
    (job.lease, job.payload, Arc::new(about))
}

impl About {
    pub(crate) fn kind(&self) -> &str {
        &self.job.kind
    }

    pub(crate) fn traceparent(&self) -> Option<TraceParent> {
        self.job.traceparent
    }

    /// What a span of this attempt says about it.
    pub(crate) fn describe(&self, span: &mut Span) {
        if span.is_on() {
            span.set("towpath.job.id", self.job_id.to_string());
            span.set("towpath.job.kind", self.job.kind.clone());
            span.set("towpath.job.attempt", i64::from(self.attempt.number()));
        }
    }
}

impl Context {
    /// The job.
    pub fn job_id(&self) -> JobId {
        self.about.job_id
    }

    /// The number of this attempt.
    pub fn attempt(&self) -> Attempt {
        self.about.attempt
    }

    /// Whether a failure now is the end of the job.
    pub fn is_last_attempt(&self) -> bool {
        self.about.attempt.number() >= self.about.job.max_attempts
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.about.job.kind
    }

    /// The event domain it belongs to.
    pub fn event_domain(&self) -> Option<&str> {
        self.about.job.event_domain.as_deref()
    }

    /// Where it comes from.
    pub fn source_ref(&self) -> Option<&str> {
        self.about.job.source_ref.as_deref()
    }

    /// What it is about.
    pub fn target_ref(&self) -> Option<&str> {
        self.about.job.target_ref.as_deref()
    }

    /// Where its data lies.
    pub fn payload_ref(&self) -> Option<&str> {
        self.about.job.payload_ref.as_deref()
    }

    /// Its urgency.
    pub fn priority(&self) -> i32 {
        self.about.job.priority
    }

    /// When it became due.
    pub fn scheduled_at(&self) -> Timestamp {
        self.about.job.scheduled_at
    }

    /// When it was enqueued.
    pub fn created_at(&self) -> Timestamp {
        self.about.job.created_at
    }

    /// Its idempotency key: the same for every attempt, good to hand on to others.
    pub fn idempotency_key(&self) -> &str {
        &self.about.job.idempotency_key
    }

    /// Who wanted it.
    pub fn actor(&self) -> &str {
        &self.about.job.actor
    }

    /// The run it is part of.
    pub fn run_id(&self) -> Option<Uuid> {
        self.about.job.run_id
    }

    /// What a job or an event that this attempt writes names as its parent: the attempt's own span, or
    /// without an exporter the span that wanted the job.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.trace
    }

    /// Fires when the job was cancelled, its lease was lost, its time is up or the worker
    /// must stop: what it still does will not count.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// The name under which the worker holds the job.
    pub fn lease_owner(&self) -> &LeaseOwner {
        &self.owner
    }

    /// The worker's own way to the database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The data that `payload_ref` names, if it is a stored payload: fetched now, decrypted where its project
    /// encrypts. `LeaseLost` means: stop.
    pub async fn payload_data(&self) -> std::result::Result<Payload, Error> {
        self.database.job_payload(&self.owner, (self.about.job_id, self.about.attempt)).await
    }

    /// Stores how far the job is, for people to see. `LeaseLost` means: stop.
    pub async fn progress(&self, progress: Progress<'_>) -> std::result::Result<(), Error> {
        self.database.progress(&self.owner, (self.about.job_id, self.about.attempt), progress).await
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} of kind {}, attempt {}", self.job_id(), self.kind(), self.attempt())
    }
}

/// A handler whose types are forgotten.
pub(crate) type Handler = Arc<dyn Fn(Box<RawValue>, Context) -> BoxFuture<'static, Result> + Send + Sync>;

/// A payload that does not fit its type will not fit it next time either.
pub(crate) fn erase<P, F, R>(handler: F) -> Handler
where
    P: DeserializeOwned + Send + 'static,
    F: Fn(P, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result> + Send + 'static,
{
    Arc::new(move |payload, context| match serde_json::from_str(payload.get()) {
        Ok(payload) => Box::pin(handler(payload, context)),
        Err(error) => {
            let failure =
                Failure::permanent(format!("the payload does not match the handler's type: {error}"));
            Box::pin(std::future::ready(Err(failure)))
        }
    })
}
