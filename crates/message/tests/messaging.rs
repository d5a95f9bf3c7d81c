//! A queue whose worker sends messages by the transports that a test chooses.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::message::{Channel, SendOptions};
use towpath_message::{Resend, Smtp, Transports, Twilio};
use towpath_model::id::ProcessId;
use towpath_model::redact::Secret;
use towpath_testkit::mail::MailServer;
use towpath_testkit::provider::{Provider, RESEND_KEY, TWILIO_ACCOUNT, TWILIO_SECRET};
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_worker::testing::run_until_drained;
use towpath_worker::{Worker, task};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A queue and the transports of its worker.
pub(crate) struct Messaging {
    pub(crate) queue: Queue,
    transports: Transports,
}

pub(crate) fn smtp(url: &str, server: &MailServer) -> Transports {
    let smtp = Smtp::new(url, Some(&server.ca()), Some("shop@example.com".into()), TIMEOUT).unwrap();
    Transports { email: Some(Arc::new(smtp)), sms: None }
}

pub(crate) fn http(provider: &Provider) -> Transports {
    let from = Some("shop@example.com".to_owned());
    let resend = Resend::new(&provider.url(), Secret::new(RESEND_KEY), from, TIMEOUT).unwrap();
    let (secret, from) = (Secret::new(TWILIO_SECRET), Some("+15005550006".to_owned()));
    let twilio = Twilio::new(&provider.url(), TWILIO_ACCOUNT.into(), secret, from, TIMEOUT).unwrap();
    Transports { email: Some(Arc::new(resend)), sms: Some(Arc::new(twilio)) }
}

impl Messaging {
    pub(crate) async fn open(transports: Transports) -> Messaging {
        Messaging { queue: Queue::open().await, transports }
    }

    pub(crate) fn worker(&self) -> Worker {
        let builder = task::register(Worker::builder(self.queue.worker.clone(), EXECUTOR));
        towpath_message::register(builder, &self.transports).build().unwrap()
    }

    /// Does everything that is due: supervision and tasks.
    pub(crate) async fn work(&self) -> usize {
        self.queue.admin.process_scan(100).await.unwrap();
        run_until_drained(&self.worker()).await.unwrap().len()
    }

    /// Moves the clock, then does everything that is due.
    pub(crate) async fn work_after(&self, seconds: u64) -> usize {
        self.queue.db.advance(Duration::from_secs(seconds)).await;
        self.work().await
    }

    pub(crate) async fn email(&self, to: &str) -> ProcessId {
        self.send(Channel::Email, &json!({ "to": to, "subject": "Your order", "text": "It is on its way." }))
            .await
    }

    pub(crate) async fn sms(&self, to: &str) -> ProcessId {
        self.send(Channel::Sms, &json!({ "to": to, "text": "1234 is your code" })).await
    }

    async fn send(&self, channel: Channel, message: &Value) -> ProcessId {
        self.queue.admin.message_send(channel, message, SendOptions::default()).await.unwrap().process_id
    }

    /// The facts, as in `started, scheduled 1, begun 1, succeeded 1`.
    pub(crate) async fn facts(&self, process_id: ProcessId) -> String {
        let whole = self.queue.admin.process_show(process_id).await.unwrap();
        let facts = whole.facts.iter().map(|fact| match fact.attempt_no {
            Some(attempt) => format!("{} {attempt}", fact.fact),
            None => fact.fact.clone(),
        });
        facts.collect::<Vec<_>>().join(", ")
    }

    /// Errors of tasks, oldest first, as in `provider: smtp: …`.
    pub(crate) async fn errors(&self) -> Vec<String> {
        let page = self.queue.admin.task_error_list(&Default::default(), 100, None).await.unwrap();
        page.task_errors.iter().rev().map(|error| format!("{}: {}", error.kind, error.message)).collect()
    }
}
