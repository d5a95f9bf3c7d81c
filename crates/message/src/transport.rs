//! The trait of all transports.

use futures_util::future::BoxFuture;
use serde::Serialize;
use towpath_model::message::{Keys, NotSent, Outcome};

/// A provider's acceptance of a message. Success-handlers get its serialised form as `worker_payload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The transport.
    pub transport: &'static str,
    /// The provider's id of the message.
    pub provider_id: Option<String>,
    /// The provider's response.
    pub response: String,
    /// The idempotency key.
    pub idempotency_key: String,
}

/// A transport for [`towpath_model::message::Email`] or [`towpath_model::message::Sms`].
///
/// The transport applies the timeout itself, because only it knows whether the message had been sent by then.
pub trait Transport<M>: Send + Sync + 'static {
    /// Its name, in facts and logs.
    fn name(&self) -> &'static str;

    /// Whether the provider honours idempotency keys.
    fn keys(&self) -> Keys;

    /// The default sender.
    fn from(&self) -> Option<&str>;

    /// Sends one message once.
    fn send<'a>(&'a self, message: &'a M) -> BoxFuture<'a, Result<Receipt, NotSent>>;
}

/// A failure, before the transport's name is added.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    pub(crate) code: Option<String>,
    pub(crate) retry_after_seconds: Option<f64>,
}

impl Trouble {
    pub(crate) fn new(outcome: Outcome, message: impl Into<String>) -> Trouble {
        Trouble { outcome, message: message.into(), code: None, retry_after_seconds: None }
    }

    /// The message itself is invalid.
    pub(crate) fn permanent(message: impl Into<String>) -> Trouble {
        Trouble::new(Outcome::Permanent, message)
    }

    pub(crate) fn code(mut self, code: Option<impl ToString>) -> Trouble {
        self.code = code.map(|code| code.to_string());
        self
    }

    pub(crate) fn not_sent(self, transport: &str, keys: Keys) -> NotSent {
        NotSent {
            outcome: self.outcome,
            message: first_words(&self.message),
            code: self.code,
            retry_after_seconds: self.retry_after_seconds,
            transport: transport.to_owned(),
            key_honoured: keys == Keys::Honoured,
        }
    }
}

/// A provider's message, shortened.
pub(crate) fn first_words(text: &str) -> String {
    let end = text.floor_char_boundary(crate::limits::WORDS_MAX);
    text[..end].replace('\0', "")
}
