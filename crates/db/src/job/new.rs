//! What a producer says about a job.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use towpath_model::trace::TraceParent;
use uuid::Uuid;

use crate::Error;

/// A job to be enqueued. Everything but the kind has a default; the database checks all of it.
///
/// The fields are named like the parameters of `fn_job_enqueue`, because a batch goes
/// there as an array of these.
#[derive(Debug, Clone, Serialize)]
pub struct NewJob {
    pub(super) job_kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_json: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<TraceParent>,
}

impl NewJob {
    /// A job of this kind with an empty payload, for the executor that all enabled subscriptions to the
    /// kind name, else for `PG_worker`.
    pub fn new(kind: impl Into<String>) -> NewJob {
        NewJob {
            job_kind: kind.into(),
            executor: None,
            event_domain: None,
            source_ref: None,
            target_ref: None,
            payload_ref: None,
            payload_json: None,
            priority: None,
            scheduled_at: None,
            max_attempts: None,
            idempotency_key: None,
            actor: None,
            run_id: None,
            traceparent: None,
        }
    }

    /// What the handler gets: references, never data (Q03).
    pub fn payload(mut self, payload: &impl Serialize) -> Result<NewJob, Error> {
        let payload = serde_json::value::to_raw_value(payload).map_err(|error| {
            Error::Invalid(format!("the payload of {} is not JSON: {error}", self.job_kind))
        })?;
        self.payload_json = Some(payload);
        Ok(self)
    }

    /// The whitelisted executor that is to run it.
    pub fn executor(mut self, executor: impl Into<String>) -> NewJob {
        self.executor = Some(executor.into());
        self
    }

    /// The event domain it belongs to.
    pub fn event_domain(mut self, domain: impl Into<String>) -> NewJob {
        self.event_domain = Some(domain.into());
        self
    }

    /// Where it comes from.
    pub fn source_ref(mut self, reference: impl Into<String>) -> NewJob {
        self.source_ref = Some(reference.into());
        self
    }

    /// What it is about.
    pub fn target_ref(mut self, reference: impl Into<String>) -> NewJob {
        self.target_ref = Some(reference.into());
        self
    }

    /// Where its data lies.
    pub fn payload_ref(mut self, reference: impl Into<String>) -> NewJob {
        self.payload_ref = Some(reference.into());
        self
    }

    /// Its urgency: a higher number goes first; 100 if not said.
    pub fn priority(mut self, priority: i32) -> NewJob {
        self.priority = Some(priority);
        self
    }

    /// Not before this moment.
    pub fn scheduled_at(mut self, at: Timestamp) -> NewJob {
        self.scheduled_at = Some(at);
        self
    }

    /// Attempts until it is a dead letter; `queue.retry.max_attempts_default` if not said.
    pub fn max_attempts(mut self, attempts: i32) -> NewJob {
        self.max_attempts = Some(attempts);
        self
    }

    /// At most one unfinished job has this key, of whatever kind (Q04). While one has it, that job is the
    /// answer, even if kind or payload differ.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> NewJob {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Who wants it; the login role if not said.
    pub fn actor(mut self, actor: impl Into<String>) -> NewJob {
        self.actor = Some(actor.into());
        self
    }

    /// The run it is part of.
    pub fn run_id(mut self, run_id: Uuid) -> NewJob {
        self.run_id = Some(run_id);
        self
    }

    /// The span that wants it: each attempt becomes a child of it. Without, the transaction's own
    /// `set local towpath.traceparent` counts.
    pub fn traceparent(mut self, parent: TraceParent) -> NewJob {
        self.traceparent = Some(parent);
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.job_kind
    }
}
