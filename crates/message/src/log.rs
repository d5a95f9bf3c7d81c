//! The log transport, which sends nothing: for development and benchmarks.

use futures_util::future::{BoxFuture, FutureExt};
use towpath_model::message::{Email, Keys, NotSent, Sms};

use crate::Transport;
use crate::transport::Receipt;

/// Logs a line and accepts. The text of a message is logged at `debug` only.
#[derive(Debug, Clone, Default)]
pub struct Log {
    from: Option<String>,
}

impl Log {
    /// A log with this default sender.
    pub fn new(from: Option<String>) -> Log {
        Log { from }
    }
}

fn receipt(key: &str) -> Receipt {
    Receipt {
        transport: "log",
        provider_id: None,
        response: "logged, not sent".into(),
        idempotency_key: key.to_owned(),
    }
}

impl Transport<Email> for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    /// Nothing is sent, so nothing is sent twice.
    fn keys(&self) -> Keys {
        Keys::Honoured
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, email: &'a Email) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        tracing::info!(to = ?email.to, subject = email.subject, key = email.idempotency_key, "e-mail");
        tracing::debug!(text = email.text, html = email.html, "e-mail text");
        std::future::ready(Ok(receipt(&email.idempotency_key))).boxed()
    }
}

impl Transport<Sms> for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn keys(&self) -> Keys {
        Keys::Honoured
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, sms: &'a Sms) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        tracing::info!(to = sms.to, key = sms.idempotency_key, "SMS");
        tracing::debug!(text = sms.text, "SMS text");
        std::future::ready(Ok(receipt(&sms.idempotency_key))).boxed()
    }
}
