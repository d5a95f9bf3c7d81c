//! Enqueue: one job or a batch, with options.

use std::marker::PhantomData;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use towpath_model::job::JobId;
use uuid::Uuid;

use super::{Answer, Error, Handle, json};

const ENQUEUE: &str = "select towpath.enqueue(j.kind, j.payload, j.priority, j.run_at, j.key, j.executor, \
                              j.max_attempts, j.domain, j.source_ref, j.target_ref, j.payload_ref, j.actor, \
                              j.run_id)::text \
                         from jsonb_to_record($1::text::jsonb) \
                              as j(kind text, payload jsonb, priority integer, run_at timestamptz, key text, \
                                   executor text, max_attempts integer, domain text, source_ref text, \
                                   target_ref text, payload_ref text, actor text, run_id uuid)";
const ENQUEUE_MANY: &str = "select to_json(towpath.enqueue_many($1::text::jsonb))::text";

/// How a job is enqueued: the options of `towpath.enqueue`, all of them optional.
///
/// ```
/// # use towpath_db::door as towpath;
/// let options = towpath::EnqueueOptions::default().key("image:7").priority(200).max_attempts(3);
/// ```
#[derive(Debug, Clone, Default, Serialize)]
pub struct EnqueueOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<Uuid>,
}

/// One job on its way to the queue. Await it to enqueue; it does nothing before.
#[must_use = "a job is enqueued when this is awaited"]
pub struct Enqueue<'h, H> {
    handle: H,
    kind: String,
    payload: serde_json::Result<Box<RawValue>>,
    options: EnqueueOptions,
    lives: PhantomData<&'h ()>,
}

/// The same methods for the options and for a job that is being enqueued.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl EnqueueOptions {
            $($(#[$doc])* pub fn $name(mut self, $name: $type) -> EnqueueOptions {
                self.$name = Some($name.into());
                self
            })*
        }

        impl<H> Enqueue<'_, H> {
            $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
                self.options = self.options.$name($name);
                self
            })*
        }
    };
}

options! {
    /// While an unfinished job has the same key, that job is the answer and nothing is written.
    key: impl Into<String>;
    /// Not before this moment.
    run_at: Timestamp;
    /// 0 to 32767, 100 if not set; higher runs first.
    priority: i32;
    /// How many attempts there are before it becomes a dead letter.
    max_attempts: i32;
    /// The kind of executor that is to run it; by default the one that is subscribed to the kind.
    executor: impl Into<String>;
    /// The event domain it belongs to.
    domain: impl Into<String>;
    /// Where it comes from.
    source_ref: impl Into<String>;
    /// What it is about.
    target_ref: impl Into<String>;
    /// Where its data is, as `towpath.payload_put` returned it.
    payload_ref: impl Into<String>;
    /// Who wants it; the login if not set.
    actor: impl Into<String>;
    /// A run of yours that it is part of.
    run_id: Uuid;
}

impl<'h, H: Handle + 'h> Enqueue<'h, H> {
    /// A job of this kind with this payload.
    pub fn new(handle: H, kind: &str, payload: &impl Serialize, options: EnqueueOptions) -> Enqueue<'h, H> {
        let payload = serde_json::value::to_raw_value(payload);
        Enqueue { handle, kind: kind.to_owned(), payload, options, lives: PhantomData }
    }

    /// All options at once, in place of those that are set.
    pub fn options(mut self, options: EnqueueOptions) -> Self {
        self.options = options;
        self
    }
}

impl<'h, H: Handle + 'h> IntoFuture for Enqueue<'h, H> {
    type Output = Result<JobId, Error>;
    type IntoFuture = Answer<'h, JobId>;

    fn into_future(self) -> Answer<'h, JobId> {
        Box::pin(async move {
            let payload = self.payload.map_err(|error| not_json(&self.kind, &error))?;
            let row = Row { kind: &self.kind, payload: &payload, options: &self.options };
            let id = self.handle.ask(ENQUEUE, json(&row)).await?;
            id.parse().map_err(|_| Error::Other(format!("towpath.enqueue answered {id:?}").into()))
        })
    }
}

/// Enqueues a batch of one kind, all of it or nothing. Returns the ids in the order of the batch.
pub async fn enqueue_many(
    handle: impl Handle,
    kind: &str,
    jobs: impl IntoIterator<Item = (impl Serialize, EnqueueOptions)>,
) -> Result<Vec<JobId>, Error> {
    let mut rows = vec![];
    for (payload, options) in jobs {
        let payload = serde_json::value::to_raw_value(&payload).map_err(|error| not_json(kind, &error))?;
        rows.push(json(&Row { kind, payload: &payload, options: &options }));
    }
    let ids = handle.ask(ENQUEUE_MANY, format!("[{}]", rows.join(","))).await?;
    serde_json::from_str(&ids).map_err(|error| Error::Other(error.into()))
}

/// One job as the doors take it.
#[derive(Serialize)]
struct Row<'a> {
    kind: &'a str,
    payload: &'a RawValue,
    #[serde(flatten)]
    options: &'a EnqueueOptions,
}

fn not_json(kind: &str, error: &serde_json::Error) -> Error {
    Error::invalid(format!("enqueue {kind} was refused: the payload is not JSON: {error}"))
}
