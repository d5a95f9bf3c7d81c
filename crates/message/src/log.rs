//! The transport that sends nothing: for development, and for measuring everything else.

use futures_util::future::{BoxFuture, FutureExt};
use towpath_model::message::{Email, Keys, NotSent, Sms};

use crate::Transport;
use crate::transport::Receipt;

/// Writes a line to the log and accepts. The text of a message is logged at `debug` only.
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
        response: "written to the log, sent to nobody".into(),
        idempotency_key: key.to_owned(),
    }
}

impl Transport<Email> for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    /// Nobody gets it twice, because nobody gets it.
    fn keys(&self) -> Keys {
        Keys::Honoured
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, email: &'a Email) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        tracing::info!(to = ?email.to, subject = email.subject, key = email.idempotency_key, "e-mail");
        tracing::debug!(text = email.text, html = email.html, "the e-mail's text");
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
        tracing::info!(to = sms.to, key = sms.idempotency_key, "sms");
        tracing::debug!(text = sms.text, "the sms's text");
        std::future::ready(Ok(receipt(&sms.idempotency_key))).boxed()
    }
}
