//! The task types `email` and `sms` (P01, P04).
//!
//! ```text
//! before_handler ──▶ what to send ──▶ transport ──▶ accepted ──▶ success_handler
//!       │ validation failure               └──────▶ not sent ──▶ task_error, error_handler
//!       └──▶ task_error, nothing is sent
//! ```
//!
//! Each handler gets the job's payload whole. Between the provider's answer and the handler that
//! records it the worker can be killed: the attempt's lease runs out, the supervisor learns
//! that it is lost, and the next attempt carries the same key and the same content.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use towpath_model::mask::masked;
use towpath_model::message::{Keys, NotSent, Outcome};
use towpath_worker::task::{Called, Trouble, call, gate_closed, record};
use towpath_worker::{Builder, Context, Failure, Options, Result};

use crate::{Transport, Transports, limits};

/// Adds the task types for which there is a transport. The others are left in the queue, for a
/// worker that can do them.
pub fn register(mut builder: Builder, transports: &Transports) -> Builder {
    if let Some(email) = transports.email.clone() {
        builder = builder.handle_kind("email", Options::default(), move |payload: Value, context| {
            Task { transport: email.clone(), needs: EMAIL_NEEDS, payload, context }.run()
        });
    }
    if let Some(sms) = transports.sms.clone() {
        builder = builder.handle_kind("sms", Options::default(), move |payload: Value, context| {
            Task { transport: sms.clone(), needs: SMS_NEEDS, payload, context }.run()
        });
    }
    builder
}

/// What a before-handler has to answer, for the people whose handler did not.
const EMAIL_NEEDS: &str = "an email needs to, subject, and text or html";
const SMS_NEEDS: &str = "an sms needs to and text";

/// One message on its way.
struct Task<M> {
    transport: Arc<dyn Transport<M>>,
    needs: &'static str,
    payload: Value,
    context: Context,
}

/// What there is to send.
enum Rendered<M> {
    Message(M),
    /// Nothing: the before-handler said why, and that is recorded.
    Nothing,
    /// Not now: a gate is closed.
    Closed,
    Not(NotSent),
}

impl<M: DeserializeOwned + Send + Sync + 'static> Task<M> {
    async fn run(self) -> Result {
        let message = match self.rendered().await {
            Rendered::Message(message) => message,
            Rendered::Nothing => return Ok(()),
            Rendered::Closed => return Err(gate_closed()),
            Rendered::Not(not_sent) => return self.not_sent(not_sent).await,
        };
        match self.transport.send(&message).await {
            Ok(receipt) => {
                tracing::debug!(job_id = %self.context.job_id(), transport = receipt.transport, "accepted");
                let Some(handler) = self.handler("success_handler") else { return Ok(()) };
                let told = json!({ "original_payload": self.payload, "worker_payload": receipt });
                self.tell(handler, told).await
            }
            Err(not_sent) => {
                let words = format!("{}: {}", self.transport.name(), not_sent.message);
                self.record("provider", &words, None).await;
                self.not_sent(not_sent).await
            }
        }
    }

    /// Asks the before-handler what to send; without one, the payload itself says it.
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
                    Some(handler) => format!("the answer of the before handler {handler}"),
                    None => "the payload, which names no before_handler,".to_owned(),
                };
                let words = format!("{whose} cannot be sent: {error}; {}", self.needs);
                self.record("validation", &words, self.handler("before_handler")).await;
                Rendered::Not(self.before_it_left(Outcome::Permanent, "payload", words))
            }
        }
    }

    /// The key of a message whose before-handler gave none: the process's id, which all its attempts share; of
    /// a task without a process the job's.
    fn key(&self) -> Value {
        match &self.payload["process_id"] {
            Value::String(process) => process.clone().into(),
            _ => self.context.job_id().to_string().into(),
        }
    }

    /// The payload whole, and what the before-handler may want to know about this worker.
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

    /// Tells the error-handler, which takes over. Without one the job's own retries are all there
    /// is, and they send nothing again that may have been sent.
    async fn not_sent(&self, not_sent: NotSent) -> Result {
        let not_sent = NotSent { message: masked(&not_sent.message).into_owned(), ..not_sent };
        if let Some(handler) = self.handler("error_handler") {
            let told = json!({ "original_payload": self.payload, "error": not_sent });
            return self.tell(handler, told).await;
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

    /// Gives an outcome to the handler that records it, again and again for a while: the message
    /// has left or has not, and running the job again would not make that truer.
    async fn tell(&self, handler: &str, told: Value) -> Result {
        let mut wait = limits::RECORD_WAIT_MIN;
        let mut tries = 1;
        loop {
            match call(&self.context, handler, &told, &self.payload).await {
                // A validation failure here: the outcome was known already, or nobody asks any more.
                Called::Done(_) | Called::Invalid(_) => return Ok(()),
                Called::Refused(why) => return Err(Failure::permanent(why)),
                Called::Failed(error) | Called::Closed(error) if tries == limits::RECORD_TRIES => {
                    return Err(Failure::permanent(format!("the outcome could not be recorded: {error}")));
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
