//! Handlers: the code that runs a job, its context, and its result.

use std::any::TypeId;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::door::{self, EnqueueOptions, Error, Handle};
use towpath_db::job::{ClaimedJob, LeaseOwner, Progress};
use towpath_db::payload::Payload;
use towpath_model::job::{Attempt, JobId};
use towpath_model::trace::TraceParent;
use towpath_trace::Span;
use uuid::Uuid;

use crate::attempt::Calls;
use crate::held::HeldJob;
use crate::limits;

/// A typed job: its fields are the payload, and a handler gets it back.
///
/// With the crate `towpath`, derive it: `#[derive(Job)] #[job(kind = "resize", max_attempts = 5)]`.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The kind under which it is enqueued and claimed.
    const KIND: &'static str;

    /// The options with which it is enqueued unless the call sets others.
    fn defaults() -> EnqueueOptions {
        EnqueueOptions::default()
    }
}

/// What a handler answers: a value that is kept as the job's result, or why there is none.
pub type Result<T = ()> = std::result::Result<T, Failure>;

/// The result of a job, as JSON.
#[derive(Debug, Default)]
pub struct Output(Option<Box<RawValue>>);

impl Output {
    /// The JSON; none if the handler returned `()`, `None` or null.
    pub fn json(&self) -> Option<&RawValue> {
        self.0.as_deref()
    }

    pub(crate) fn from_json(json: Option<Box<RawValue>>) -> Output {
        Output(json)
    }

    pub(crate) fn into_json(self) -> Option<Box<RawValue>> {
        self.0
    }

    /// A value that a retry would not make smaller or readable fails for good.
    fn of<T: Serialize + 'static>(value: &T) -> Result<Output> {
        if TypeId::of::<T>() == TypeId::of::<()>() {
            return Ok(Output(None));
        }
        let json = serde_json::value::to_raw_value(value)
            .map_err(|error| Failure::permanent(format!("the result is not JSON: {error}")))?;
        match json.get() {
            "null" => Ok(Output(None)),
            text if text.len() > limits::RESULT_BYTES_MAX => Err(Failure::permanent(format!(
                "the result has {} bytes, the most is {}; store it elsewhere and return a reference",
                text.len(),
                limits::RESULT_BYTES_MAX
            ))),
            _ => Ok(Output(Some(json))),
        }
    }
}

/// Why an attempt did not succeed, and what should follow.
///
/// Any error becomes a failure worth another attempt, so `?` does what one expects. Not an
/// error itself, for that reason.
///
/// ```
/// # use towpath_worker as towpath;
/// use std::time::Duration;
/// use towpath::Failure;
///
/// fn check(status: u16) -> towpath::Result {
///     match status {
///         200 => Ok(()),
///         404 => Err(Failure::permanent("there is no such image")),
///         429 => Err(Failure::snooze(Duration::from_secs(60))),
///         503 => Err(Failure::retry_after("the service is busy", Duration::from_secs(10))),
///         _ => Err(std::io::Error::other("unexpected answer").into()),
///     }
/// }
/// ```
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
    /// The attempt of a process is over, and nothing is wrong: it waits, or somebody else has it.
    Suspended,
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

    /// The attempt of a process has ended already.
    pub(crate) fn suspended() -> Failure {
        Failure { error: "the attempt was suspended".to_owned(), follow: Follow::Suspended }
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

/// What a handler knows about its job besides the payload. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) about: Arc<About>,
    pub(crate) held: Arc<HeldJob>,
    pub(crate) database: Arc<Database>,
    pub(crate) owner: LeaseOwner,
    pub(crate) calls: Arc<Calls>,
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
    pub fn id(&self) -> JobId {
        self.about.job_id
    }

    /// The number of this attempt.
    pub fn attempt(&self) -> Attempt {
        self.about.attempt
    }

    /// How many attempts it has.
    pub fn max_attempts(&self) -> i32 {
        self.about.job.max_attempts
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
    pub fn domain(&self) -> Option<&str> {
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

    /// Where its data is stored.
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
    pub fn key(&self) -> &str {
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

    /// Fires when the job was cancelled, its lease was lost, its time is up or the worker must stop: what it still does
    /// will not count.
    ///
    /// ```no_run
    /// # async fn convert() {}
    /// # async fn example(ctx: towpath_worker::Context) {
    /// tokio::select! {
    ///     () = convert() => {}
    ///     () = ctx.lost().cancelled() => println!("somebody else has the job, or wants it to stop"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> &CancellationToken {
        &self.held.lost
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
        Ok(self.database.job_payload(&self.owner, self.held.key).await?)
    }

    /// Stores how far the job is, from 0 to 100, and in words. `LeaseLost` means: stop.
    pub async fn progress(&self, percent: i32, message: &str) -> std::result::Result<(), Error> {
        let progress = Progress { percent: Some(percent), message: Some(message) };
        Ok(self.database.progress(&self.owner, self.held.key, progress).await?)
    }

    /// Appends a value to the job's stream, for those who follow the job: at most 64 KiB. The server on which they
    /// follow it copies it there. `LeaseLost` means: stop.
    ///
    /// ```no_run
    /// # async fn example(ctx: towpath_worker::Context) -> towpath_worker::Result {
    /// ctx.append(&serde_json::json!({ "page": 7, "text": "once upon a time" })).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append(&self, value: &impl Serialize) -> std::result::Result<(), Error> {
        let value = serde_json::to_value(value).map_err(|error| Error::Other(error.into()))?;
        self.database.job_append(&self.owner, self.held.key, &value).await?;
        Ok(())
    }

    /// Leaves a small value for the next attempt, should there be one. `LeaseLost` means: stop.
    pub async fn set_checkpoint(&self, checkpoint: &impl Serialize) -> std::result::Result<(), Error> {
        let checkpoint = serde_json::to_value(checkpoint).map_err(|error| Error::Other(error.into()))?;
        Ok(self.database.checkpoint(&self.owner, self.held.key, &checkpoint).await?)
    }

    /// What an earlier attempt left last; none if there was none, or if it is not of this type.
    pub async fn checkpoint<T: DeserializeOwned>(&self) -> std::result::Result<Option<T>, Error> {
        if self.attempt().number() == 1 {
            return Ok(None);
        }
        let mut left = self.database.checkpoints(&self.owner, &[self.id()]).await?;
        Ok(left.remove(&self.id()).and_then(|value| serde_json::from_value(value).ok()))
    }

    /// Ends the job in the caller's own transaction, with what the handler wrote: both are there or neither is. Commit
    /// soon: the lease is no longer renewed. If the lease was lost, this fails and the transaction cannot commit.
    ///
    /// The login of the handle needs the role `worker_service_user`.
    pub async fn ack_in(&self, handle: impl Handle) -> std::result::Result<(), Error> {
        self.ack_with(handle, Output(None)).await
    }

    /// The same with a result: what the handler returns after this is not kept.
    pub async fn ack_in_with<T: Serialize + 'static>(
        &self,
        handle: impl Handle,
        result: &T,
    ) -> std::result::Result<(), Error> {
        let output = Output::of(result).map_err(|failure| Error::Other(failure.error.into()))?;
        self.ack_with(handle, output).await
    }

    async fn ack_with(&self, handle: impl Handle, output: Output) -> std::result::Result<(), Error> {
        // Renewing would wait for the transaction's lock, and everything else that is renewed with it.
        self.held.acked.store(true, Ordering::Relaxed);
        let acked = door::ack(handle, &self.owner, self.held.key, output.json()).await;
        if acked.is_err() {
            self.held.acked.store(false, Ordering::Relaxed);
        }
        acked
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} of kind {}, attempt {}", self.id(), self.kind(), self.attempt())
    }
}

/// A handler whose types are forgotten.
pub(crate) type Handler = Arc<dyn Fn(Box<RawValue>, Context) -> Running + Send + Sync>;
/// A handler, or what is around it, at work.
pub(crate) type Running = BoxFuture<'static, Result<Output>>;

/// A payload that does not fit its type will not fit it next time either.
pub(crate) fn erase<P, F, R, T>(handler: F) -> Handler
where
    P: DeserializeOwned + Send + 'static,
    F: Fn(P, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T>> + Send + 'static,
    T: Serialize + 'static,
{
    Arc::new(move |payload, context| match serde_json::from_str(payload.get()) {
        Ok(payload) => {
            let running = handler(payload, context);
            Box::pin(async move { Output::of(&running.await?) })
        }
        Err(error) => {
            let failure =
                Failure::permanent(format!("the payload does not match the handler's type: {error}"));
            Box::pin(std::future::ready(Err(failure)))
        }
    })
}
