//! `towpath job enqueue`.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::job::NewJob;
use towpath_model::trace::TraceParent;
use uuid::Uuid;

use super::watch;
use crate::command::Actor;
use crate::input;
use crate::moment;
use crate::output::{Exit, Output, done};
use crate::settings::Settings;

#[derive(Args)]
pub(crate) struct Enqueue {
    /// Job kind
    kind: String,
    #[command(flatten)]
    template: Template,
    /// Run no earlier than this time, or this duration from now
    #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
    at: Option<Timestamp>,
    /// Idempotency key: while an unfinished job of any kind has it, enqueueing again returns that job's id
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Run it belongs to
    #[arg(long, value_name = "UUID")]
    run_id: Option<Uuid>,
    #[command(flatten)]
    by: Actor,
    /// Parent span in W3C format: 00-TRACE-SPAN-01
    #[arg(long, value_name = "PARENT", value_parser = traceparent)]
    traceparent: Option<TraceParent>,
    /// Watch it until it has finished
    #[arg(long)]
    watch: bool,
}

/// Fields shared by a job and a schedule's job template.
#[derive(Args, Debug)]
pub(crate) struct Template {
    /// JSON object for the handler, with references rather than data; @FILE reads a file, - standard input
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Reference to its stored payload
    #[arg(long, value_name = "REF")]
    payload_ref: Option<String>,
    /// Reference to its origin
    #[arg(long, value_name = "REF")]
    source: Option<String>,
    /// Reference to its subject
    #[arg(long, value_name = "REF")]
    target: Option<String>,
    /// Executor kind that runs it (default: the one named by the kind's subscriptions, else PG_worker)
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
    /// Event domain it belongs to
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Priority; higher runs first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = crate::input::number)]
    priority: i32,
    /// Attempts before it becomes a dead letter (default: queue.retry.max_attempts_default)
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<i32>,
}

impl Template {
    /// The fields under the database's names.
    pub(crate) fn as_json(&self, kind: &str) -> anyhow::Result<Value> {
        let mut job = json!({
            "job_kind": kind,
            "executor": self.executor,
            "event_domain": self.domain,
            "source_ref": self.source,
            "target_ref": self.target,
            "payload_ref": self.payload_ref,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
        });
        if let Some(payload) = self.payload()? {
            job["payload_json"] = payload;
        }
        Ok(job)
    }

    fn payload(&self) -> anyhow::Result<Option<Value>> {
        self.payload.as_deref().map(|given| input::json(given, "payload")).transpose()
    }
}

pub(crate) async fn run(enqueue: Enqueue, settings: &Settings, database: &Database, output: &Output) -> Exit {
    let watch = enqueue.watch;
    let enqueued = database.enqueue(&enqueue.into_job()?).await?;
    let answer = json!({ "job_id": enqueued.job_id, "duplicate": enqueued.duplicate });
    output.show(&answer, |_| match enqueued.duplicate {
        true => format!("job {} already exists: it has this key and is unfinished", enqueued.job_id),
        false => format!("enqueued job {}", enqueued.job_id),
    });
    match watch {
        true => watch::follow(enqueued.job_id, None, settings, database, output).await,
        false => done(),
    }
}

impl Enqueue {
    fn into_job(self) -> anyhow::Result<NewJob> {
        let payload = self.template.payload()?;
        let mut job = NewJob::new(self.kind).priority(self.template.priority).actor(self.by.name());
        if let Some(payload) = payload {
            job = job.payload(&payload)?;
        }
        let texts = [
            (self.template.executor, NewJob::executor as fn(NewJob, String) -> NewJob),
            (self.template.payload_ref, NewJob::payload_ref),
            (self.template.source, NewJob::source_ref),
            (self.template.target, NewJob::target_ref),
            (self.template.domain, NewJob::event_domain),
            (self.key, NewJob::idempotency_key),
        ];
        for (text, set) in texts {
            if let Some(text) = text {
                job = set(job, text);
            }
        }
        if let Some(at) = self.at {
            job = job.scheduled_at(at);
        }
        if let Some(attempts) = self.template.max_attempts {
            job = job.max_attempts(attempts);
        }
        if let Some(run_id) = self.run_id {
            job = job.run_id(run_id);
        }
        if let Some(parent) = self.traceparent {
            job = job.traceparent(parent);
        }
        Ok(job)
    }
}

fn traceparent(text: &str) -> Result<TraceParent, String> {
    text.parse().map_err(|_| "use 00-<32 hex digits>-<16 hex digits>-01, in lower case".to_owned())
}
