//! The outcome of a send, classified by what may follow (P08, P09).
//!
//! Four outcomes: accepted; transient, which is retried; permanent, which is not; uncertain, because the
//! connection was lost after the data was sent. A failure is permanent only if the provider rejects the
//! message itself; problems with the account, the network or the provider are transient.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A retry may succeed.
    Transient,
    /// A retry cannot succeed.
    Permanent,
    /// It may have been sent: no answer arrived.
    Uncertain,
}

/// A send that was not accepted. Error handlers get its serialised form as `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotSent {
    /// What may follow.
    pub outcome: Outcome,
    /// The provider's message, or what failed before the provider could answer.
    pub message: String,
    /// The provider's code: an SMTP reply, an HTTP status, an error name.
    pub code: Option<String>,
    /// The provider asks for a retry after this many seconds.
    pub retry_after_seconds: Option<f64>,
    /// The transport.
    pub transport: String,
    /// Whether the provider sends nothing twice under one idempotency key.
    pub key_honoured: bool,
}

/// The stage at which an SMTP dialogue failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpStage {
    /// Connecting, greeting, TLS, authentication: before the message.
    Session,
    /// Sender, recipients, and the DATA command.
    Envelope,
    /// The data itself, and the answer to it.
    Data,
}

/// Whether a provider honours idempotency keys: sends nothing twice under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// It does: a retry under the same key is safe.
    Honoured,
    /// It does not, or does not say so.
    Ignored,
}

/// An HTTP answer that is not an acceptance.
#[derive(Debug, Clone, Copy)]
pub struct HttpAnswer<'a> {
    /// The status.
    pub status: u16,
    /// The provider's own name or number for the error.
    pub name: Option<&'a str>,
}

/// The outcome of an SMTP dialogue that ended at this stage with this reply; none if the
/// connection died.
///
/// A 5xx reply before the envelope is about our credentials or policy, not about the message, so it is transient
/// until an operator fixes it.
pub fn classify_smtp(stage: SmtpStage, reply: Option<u16>) -> Outcome {
    match (stage, reply) {
        (SmtpStage::Data, None) => Outcome::Uncertain,
        (SmtpStage::Envelope | SmtpStage::Data, Some(500..600)) => Outcome::Permanent,
        _ => Outcome::Transient,
    }
}

/// The outcome of an HTTP request; none if the request was sent and no answer came.
///
/// Without idempotency keys, a response from a gateway or after a crash (500, 502, 504) may hide a message that was
/// sent. With keys a retry is safe.
pub fn classify_http(keys: Keys, answer: Option<HttpAnswer<'_>>) -> Outcome {
    let Some(answer) = answer else { return Outcome::Uncertain };
    match (answer.status, answer.name) {
        // Another request with the same key is in flight; the same key for another message.
        (409, Some("concurrent_idempotent_requests")) => Outcome::Transient,
        // Our account, not the message: an operator fixes it.
        (401, _) | (403, Some("invalid_api_key" | "restricted_api_key" | "20003")) => Outcome::Transient,
        (408 | 425 | 429 | 503, _) => Outcome::Transient,
        (500.., _) if keys == Keys::Ignored => Outcome::Uncertain,
        (500.., _) => Outcome::Transient,
        // 1xx to 3xx: not from the provider, or the provider is moving.
        (..400, _) => Outcome::Transient,
        (400..500, _) => Outcome::Permanent,
    }
}

/// The delay in `Retry-After`, in seconds. Dates are ignored: no supported provider sends them. At most a day;
/// a longer one is a mistake.
pub fn retry_after(header: Option<&str>) -> Option<Duration> {
    let seconds: u64 = header?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(86_400)))
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Permanent, Transient, Uncertain};
    use super::*;

    /// P09: every reply at every stage.
    #[test]
    fn each_smtp_reply_gets_its_outcome() {
        use SmtpStage::{Data, Envelope, Session};
        for (stage, reply, outcome) in [
            (Session, None, Transient),
            (Session, Some(421), Transient),
            (Session, Some(454), Transient),
            (Session, Some(535), Transient),
            (Session, Some(554), Transient),
            (Envelope, None, Transient),
            (Envelope, Some(421), Transient),
            (Envelope, Some(450), Transient),
            (Envelope, Some(451), Transient),
            (Envelope, Some(452), Transient),
            (Envelope, Some(550), Permanent),
            (Envelope, Some(553), Permanent),
            (Data, Some(451), Transient),
            (Data, Some(452), Transient),
            (Data, Some(552), Permanent),
            (Data, Some(554), Permanent),
            (Data, None, Uncertain),
        ] {
            assert_eq!(classify_smtp(stage, reply), outcome, "{stage:?} {reply:?}");
        }
    }

    /// P09: every answer the two providers document.
    #[test]
    fn each_http_answer_gets_its_outcome() {
        for (status, name, honoured, ignored) in [
            (400, Some("validation_error"), Permanent, Permanent),
            (400, Some("invalid_idempotency_key"), Permanent, Permanent),
            (400, Some("21211"), Permanent, Permanent),
            (401, Some("missing_api_key"), Transient, Transient),
            (401, Some("20003"), Transient, Transient),
            (403, Some("invalid_api_key"), Transient, Transient),
            (403, Some("validation_error"), Permanent, Permanent),
            (404, Some("not_found"), Permanent, Permanent),
            (408, None, Transient, Transient),
            (409, Some("concurrent_idempotent_requests"), Transient, Transient),
            (409, Some("invalid_idempotent_request"), Permanent, Permanent),
            (422, Some("invalid_from_address"), Permanent, Permanent),
            (429, Some("rate_limit_exceeded"), Transient, Transient),
            (429, Some("20429"), Transient, Transient),
            (451, Some("security_error"), Permanent, Permanent),
            (500, Some("internal_server_error"), Transient, Uncertain),
            (502, None, Transient, Uncertain),
            (503, None, Transient, Transient),
            (504, None, Transient, Uncertain),
            (301, None, Transient, Transient),
        ] {
            let answer = Some(HttpAnswer { status, name });
            assert_eq!(classify_http(Keys::Honoured, answer), honoured, "{status} {name:?} with keys");
            assert_eq!(classify_http(Keys::Ignored, answer), ignored, "{status} {name:?} without keys");
        }
        assert_eq!(classify_http(Keys::Honoured, None), Uncertain);
        assert_eq!(classify_http(Keys::Ignored, None), Uncertain);
    }

    #[test]
    fn retry_after_is_bounded_and_forgiving() {
        assert_eq!(retry_after(Some(" 7 ")), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(Some("99999999")), Some(Duration::from_secs(86_400)));
        assert_eq!(retry_after(Some("Wed, 21 Oct 2015 07:28:00 GMT")), None);
        assert_eq!(retry_after(Some("-1")), None);
        assert_eq!(retry_after(None), None);
    }

    #[test]
    fn an_error_handler_reads_plain_words() {
        let not_sent = NotSent {
            outcome: Uncertain,
            message: "the connection closed".into(),
            code: None,
            retry_after_seconds: None,
            transport: "smtp".into(),
            key_honoured: false,
        };
        let error = serde_json::to_value(not_sent).expect("plain data");
        assert_eq!(error["outcome"], "uncertain");
        assert_eq!(error["key_honoured"], false);
    }
}
