//! The one trait that every way out implements.

use futures_util::future::BoxFuture;
use serde::Serialize;
use towpath_model::message::{Keys, NotSent, Outcome};

/// What a provider said when it took a message. Its serialised form is the `worker_payload`
/// that a success-handler gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Which transport sent it.
    pub transport: &'static str,
    /// The provider's name for the message.
    pub provider_id: Option<String>,
    /// What the provider said.
    pub response: String,
    /// The key under which it was sent.
    pub idempotency_key: String,
}

/// A way out for messages of one kind, [`towpath_model::message::Email`] or
/// [`towpath_model::message::Sms`].
///
/// A send is bounded in time by the transport itself, because only it knows whether it ran out
/// of time before or after the message was on its way.
pub trait Transport<M>: Send + Sync + 'static {
    /// Its name, in facts and logs.
    fn name(&self) -> &'static str;

    /// Whether the provider sends nothing twice under one key.
    fn keys(&self) -> Keys;

    /// The sender of messages that name none.
    fn from(&self) -> Option<&str>;

    /// Sends one message once.
    fn send<'a>(&'a self, message: &'a M) -> BoxFuture<'a, Result<Receipt, NotSent>>;
}

/// A failure in the making, before it is known which transport it belongs to.
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

    /// The message itself cannot be sent.
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

/// A provider's words, cut to what anybody reads.
pub(crate) fn first_words(text: &str) -> String {
    let end = text.floor_char_boundary(crate::limits::WORDS_MAX);
    text[..end].replace('\0', "")
}
