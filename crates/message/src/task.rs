//! The task types `email` and `sms` (P01, P04).
//!
//! ```text
//! before_handler ──▶ what to send ──▶ transport ──▶ accepted ──▶ success_handler
//!       │ validation failure               └──────▶ not sent ──▶ task_error, error_handler
//!       └──▶ task_error, nothing is sent
//! ```
//!
//! A task of a process whose kind has no handlers of its own sends the input of the process (P16):
//!
//! ```text
//! begin ──▶ input ──▶ transport ──▶ end: succeeded, or what the supervisor decides
//! ```
//!
//! Each handler gets the whole payload of the job. If the worker is killed between the provider's response and the handler
//! that records it, the attempt's lease expires, the supervisor counts it as lost, and the next attempt has the same key
//! and content.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use towpath_model::mask::masked;
use towpath_model::message::{Keys, NotSent, Outcome};
use towpath_worker::process::{AttemptTask, NotDone};
use towpath_worker::task::{Called, Trouble, call, gate_closed, record};
use towpath_worker::{Attempt, Builder, Context, Failure, Options, Result};

use crate::{Transport, Transports, limits};

/// Adds the task types with a transport. Others stay in the queue for a worker that has one.
pub fn register(mut builder: Builder, transports: &Transports) -> Builder {
    if let Some(email) = transports.email.clone() {
        builder = builder.handle_kind("email", many(), move |payload: Value, context| {
            Task { transport: email.clone(), needs: EMAIL_NEEDS, payload, context }.run()
        });
    }
    if let Some(sms) = transports.sms.clone() {
        builder = builder.handle_kind("sms", many(), move |payload: Value, context| {
            Task { transport: sms.clone(), needs: SMS_NEEDS, payload, context }.run()
        });
    }
    builder
}

/// Handlers wait for the database and the provider.
fn many() -> Options {
    Options::default().concurrency(limits::MESSAGES_AT_ONCE)
}

/// What a before-handler must return, for error messages.
const EMAIL_NEEDS: &str = "an e-mail requires to, subject, and text or html";
const SMS_NEEDS: &str = "an SMS requires to and text";

/// One message being sent.
struct Task<M> {
    transport: Arc<dyn Transport<M>>,
    needs: &'static str,
    payload: Value,
    context: Context,
}

/// What to send.
enum Rendered<M> {
    Message(M),
    /// Nothing: the before-handler refused, and the reason is recorded.
    Nothing,
    /// Not now: a gate is closed.
    Closed,
    Not(NotSent),
}

impl<M: DeserializeOwned + Send + Sync + 'static> Task<M> {
    async fn run(self) -> Result {
        if let Some(task) = self.process_task() {
            return self.run_attempt(&task).await;
        }
        let message = match self.rendered().await {
            Rendered::Message(message) => message,
            Rendered::Nothing => return Ok(()),
            Rendered::Closed => return Err(gate_closed()),
            Rendered::Not(not_sent) => return self.not_sent(not_sent).await,
        };
        match self.transport.send(&message).await {
            Ok(receipt) => {
                tracing::debug!(job_id = %self.context.id(), transport = receipt.transport, "accepted");
                let Some(handler) = self.handler("success_handler") else { return Ok(()) };
                let report = json!({ "original_payload": self.payload, "worker_payload": receipt });
                self.tell(handler, report).await
            }
            Err(not_sent) => {
                let words = format!("{}: {}", self.transport.name(), not_sent.message);
                self.record("provider", &words, None).await;
                self.not_sent(not_sent).await
            }
        }
    }

    /// The attempt, if nothing but the input of its process says what to send.
    fn process_task(&self) -> Option<AttemptTask> {
        let handlers = ["before_handler", "success_handler", "error_handler"];
        if handlers.iter().any(|handler| self.handler(handler).is_some()) {
            return None;
        }
        AttemptTask::deserialize(&self.payload).ok()
    }

    /// Sends the input of the process.
    async fn run_attempt(&self, task: &AttemptTask) -> Result {
        let Some(attempt) = Attempt::begin(task, &self.context, self.transport.keys()).await? else {
            return Ok(());
        };
        let mut message = attempt.input().clone();
        if let Value::Object(fields) = &mut message {
            fields.insert("idempotency_key".into(), attempt.idempotency_key().into());
        }
        let message: M = match serde_json::from_value(message) {
            Ok(message) => message,
            Err(error) => {
                let words = format!("the input of the process cannot be sent: {error}; {}", self.needs);
                self.record("validation", &words, None).await;
                let detail = json!({ "message": words, "code": "input" });
                return attempt.fail(NotDone { outcome: Outcome::Permanent, detail }).await;
            }
        };
        match self.transport.send(&message).await {
            Ok(receipt) => attempt.succeed(json!(receipt), Value::Null).await,
            Err(not_sent) => {
                let message = masked(&not_sent.message).into_owned();
                self.record("provider", &format!("{}: {message}", self.transport.name()), None).await;
                let outcome = not_sent.outcome;
                let detail = serde_json::to_value(NotSent { message, ..not_sent });
                attempt.fail(NotDone { outcome, detail: detail.unwrap_or_default() }).await
            }
        }
    }

    /// Gets the message from the before-handler, or from the payload if there is none.
    async fn rendered(&self) -> Rendered<M> {
        let mut rendered = match self.handler("before_handler") {
            None => self.payload.clone(),
            Some(handler) => match call(&self.context, handler, &self.asked(), &self.payload).await {
                Called::Done(rendered) => rendered.unwrap_or(Value::Null),
                Called::Invalid(_) => return Rendered::Nothing,
                Called::Closed(_) => return Rendered::Closed,
                Called::Failed(error) | Called::Refused(error) => {
                    return Rendered::Not(self.before_it_left(Outcome::Transient, "before_handler", error));
                }
            },
        };
        if let Value::Object(fields) = &mut rendered
            && fields.get("idempotency_key").is_none_or(Value::is_null)
        {
            fields.insert("idempotency_key".into(), self.key());
        }
        match serde_json::from_value(rendered) {
            Ok(message) => Rendered::Message(message),
            Err(error) => {
                let whose = match self.handler("before_handler") {
                    Some(handler) => format!("the result of the before handler {handler}"),
                    None => "the payload without a before_handler".to_owned(),
                };
                let words = format!("{whose} cannot be sent: {error}; {}", self.needs);
                self.record("validation", &words, self.handler("before_handler")).await;
                Rendered::Not(self.before_it_left(Outcome::Permanent, "payload", words))
            }
        }
    }

    /// The idempotency key if the before-handler gave none: the process's id, which all its attempts share, or the job's id
    /// if there is no process.
    fn key(&self) -> Value {
        match &self.payload["process_id"] {
            Value::String(process) => process.clone().into(),
            _ => self.context.id().to_string().into(),
        }
    }

    /// The payload, and the worker's name for the before-handler.
    fn asked(&self) -> Value {
        let mut asked = self.payload.clone();
        if let Value::Object(fields) = &mut asked {
            let worker = json!({
                "name": self.context.lease_owner().to_string(),
                "transport": self.transport.name(),
                "key_honoured": self.transport.keys() == Keys::Honoured,
                "from": self.transport.from(),
            });
            fields.insert("worker".into(), worker);
        }
        asked
    }

    fn before_it_left(&self, outcome: Outcome, code: &str, message: String) -> NotSent {
        NotSent {
            outcome,
            message,
            code: Some(code.to_owned()),
            retry_after_seconds: None,
            transport: self.transport.name().to_owned(),
            key_honoured: self.transport.keys() == Keys::Honoured,
        }
    }

    /// Calls the error-handler. Without one only the job's own retries apply, and they never resend what may have been
    /// sent.
    async fn not_sent(&self, not_sent: NotSent) -> Result {
        let not_sent = NotSent { message: masked(&not_sent.message).into_owned(), ..not_sent };
        if let Some(handler) = self.handler("error_handler") {
            let report = json!({ "original_payload": self.payload, "error": not_sent });
            return self.tell(handler, report).await;
        }
        let NotSent { outcome, message, retry_after_seconds, key_honoured, .. } = not_sent;
        Err(match (outcome, retry_after_seconds) {
            (Outcome::Permanent, _) => Failure::permanent(message),
            (Outcome::Uncertain, _) if !key_honoured => Failure::permanent(message),
            (_, Some(seconds)) => {
                let wait = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(limits::RETRY_AFTER_MAX);
                Failure::retry_after(message, wait.min(limits::RETRY_AFTER_MAX))
            }
            (_, None) => Failure::retry(message),
        })
    }

    /// Calls the handler that records the outcome, with retries: running the job again would not change the outcome.
    async fn tell(&self, handler: &str, report: Value) -> Result {
        let mut wait = limits::RECORD_WAIT_MIN;
        let mut tries = 1;
        loop {
            match call(&self.context, handler, &report, &self.payload).await {
                // A validation failure: the outcome was already recorded, or is no longer needed.
                Called::Done(_) | Called::Invalid(_) => return Ok(()),
                Called::Refused(why) => return Err(Failure::permanent(why)),
                Called::Failed(error) | Called::Closed(error) if tries == limits::RECORD_TRIES => {
                    return Err(Failure::permanent(format!("cannot record the outcome: {error}")));
                }
                Called::Failed(_) | Called::Closed(_) => {}
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
            tries += 1;
        }
    }

    fn handler(&self, name: &str) -> Option<&str> {
        self.payload[name].as_str()
    }

    async fn record(&self, kind: &str, message: &str, function: Option<&str>) {
        record(&self.context, &self.payload, Trouble { kind, message, function }).await;
    }
}
