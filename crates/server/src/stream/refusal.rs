//! Refusals: maps every error to a status, an error code and a message.

use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::json;
use towpath_model::session;
use towpath_model::stream::content_type;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state::Refusal as Append;
use towpath_model::stream::{expiry, json as json_mode, producer};
use towpath_model::token::{Denied, Invalid as InvalidToken};
use towpath_streams::Error;

use super::headers;
use crate::body::Body;
use crate::unsent::Unread;

/// An error response.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The error code, for programs.
    pub(super) error: &'static str,
    /// The message, for people.
    pub(super) detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    fn new(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Refusal {
        Refusal { status, error, detail: detail.into(), headers: vec![] }
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.headers.push((name, value));
        self
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    pub(super) fn sessions_name(name: &StreamName) -> Refusal {
        let detail = format!(
            "{} is reserved for a session's stream; choose another name, or subscribe to create a session",
            name.id
        );
        Refusal::new(StatusCode::CONFLICT, "conflict", detail)
    }

    pub(super) fn beyond(tail: Offset) -> Refusal {
        let detail = format!(
            "the offset is beyond the tail {tail}; the stream may have been recreated: read it from -1"
        );
        Refusal::invalid(detail).with(headers::NEXT_OFFSET, headers::offset(tail))
    }

    pub(super) fn gone() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "not_found", "the stream was deleted or has expired")
    }

    pub(super) fn method(allowed: &'static str) -> Refusal {
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("allowed here: {allowed}"))
            .with(ALLOW, HeaderValue::from_static(allowed))
    }

    /// A web page of another machine used an open project.
    pub(super) fn foreign(project: &str) -> Refusal {
        let detail = format!(
            "project {project} needs no token, so only pages from this machine may use it; register it with the \
             page's origin: towpath project add {project} --origin ORIGIN"
        );
        Refusal::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(super) fn too_large(bytes_max: usize) -> Refusal {
        let detail = format!("the body is larger than {bytes_max} bytes; send it in parts");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    pub(super) fn slow_body() -> Refusal {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time")
    }

    pub(super) fn no_room() -> Refusal {
        let detail = "the memory for readers is used up by clients that do not read; try again soon";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            .with(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    pub(super) fn too_many(what: &str, max: usize) -> Refusal {
        let detail =
            format!("this project has reached its limit of {max} {what}; try again later or raise the limit");
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail)
            .with(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Whether this is the refusal of such a body.
    pub(super) fn is(&self, invalid: json_mode::Invalid) -> bool {
        self.detail == Refusal::from(invalid).detail
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let body = json!({ "error": self.error, "detail": self.detail }).to_string();
        let mut response = super::with_body(self.status, Body::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, headers::NO_STORE);
        headers.extend(self.headers);
        response
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Refusal {
        match unread {
            Unread::Store(error) => error.into(),
            Unread::NoRoom => Refusal::no_room(),
        }
    }
}

/// The one place that maps errors of the store to statuses.
impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let (status, word) = match &error {
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Error::Deleted(_) => (StatusCode::GONE, "deleted"),
            Error::Trimmed { .. } => (StatusCode::GONE, "trimmed"),
            Error::Conflict { .. } | Error::CannotFollow { .. } => (StatusCode::CONFLICT, "conflict"),
            Error::ReadOnly(_) => (StatusCode::FORBIDDEN, "read_only"),
            Error::ForkPoint { .. } => (StatusCode::BAD_REQUEST, "invalid"),
            Error::Refused { refusal, .. } => append_status(*refusal),
            Error::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Error::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Error::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
            Error::Poisoned(_) | Error::ShutDown => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Error::Corrupt(_) | Error::InUse(_) | Error::Unsupported(_) | Error::Io { .. } => {
                tracing::error!(%error, "the stream store failed");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal")
            }
        };
        let detail = match &error {
            Error::Refused { refusal, .. } => append_detail(*refusal),
            error => error.to_string(),
        };
        let refusal = Refusal::new(status, word, detail);
        match error {
            Error::Trimmed { start, .. } => refusal.with(headers::FIRST_OFFSET, headers::offset(start)),
            Error::Busy(_) => refusal.with(RETRY_AFTER, HeaderValue::from_static("1")),
            Error::Refused { refusal: why, tail, closed, .. } => {
                let refusal = refusal.with(headers::NEXT_OFFSET, headers::offset(tail));
                let refusal = match closed {
                    true => refusal.with(headers::CLOSED, headers::TRUE),
                    false => refusal,
                };
                with_producer(refusal, why)
            }
            _ => refusal,
        }
    }
}

fn append_status(refusal: Append) -> (StatusCode, &'static str) {
    match refusal {
        Append::Closed => (StatusCode::CONFLICT, "closed"),
        Append::ContentType => (StatusCode::CONFLICT, "content_type"),
        Append::StaleEpoch { .. } => (StatusCode::FORBIDDEN, "stale_epoch"),
        Append::EpochNotFromZero => (StatusCode::BAD_REQUEST, "invalid"),
        Append::ProducerGap { .. } => (StatusCode::CONFLICT, "producer_gap"),
        Append::StreamSeq => (StatusCode::CONFLICT, "stream_seq"),
        Append::TailMoved => (StatusCode::PRECONDITION_FAILED, "tail_moved"),
    }
}

fn append_detail(refusal: Append) -> String {
    match refusal {
        Append::Closed => "the stream is closed".to_owned(),
        Append::ContentType => "the stream has another content type".to_owned(),
        Append::StaleEpoch { current_epoch } => format!("the producer's epoch is already {current_epoch}"),
        Append::EpochNotFromZero => "a new epoch must begin with Producer-Seq 0".to_owned(),
        Append::ProducerGap { expected, received } => {
            format!("expected Producer-Seq {expected}, received {received}")
        }
        Append::StreamSeq => "Stream-Seq must be greater than the last one".to_owned(),
        Append::TailMoved => "the tail is not at the offset in If-Match".to_owned(),
    }
}

fn with_producer(refusal: Refusal, why: Append) -> Refusal {
    match why {
        Append::StaleEpoch { current_epoch } => {
            refusal.with(headers::PRODUCER_EPOCH, headers::number(current_epoch))
        }
        Append::ProducerGap { expected, received } => refusal
            .with(headers::PRODUCER_EXPECTED_SEQ, headers::number(expected))
            .with(headers::PRODUCER_RECEIVED_SEQ, headers::number(received)),
        _ => refusal,
    }
}

/// No valid token: 401.
impl From<InvalidToken> for Refusal {
    fn from(invalid: InvalidToken) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", invalid.detail())
            .with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }
}

/// A valid token without this right: 403.
impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "forbidden", denied.detail())
    }
}

impl From<session::Invalid> for Refusal {
    fn from(invalid: session::Invalid) -> Refusal {
        Refusal::invalid(invalid.detail())
    }
}

impl From<expiry::Invalid> for Refusal {
    fn from(invalid: expiry::Invalid) -> Refusal {
        Refusal::invalid(match invalid {
            expiry::Invalid::Both => "send Stream-TTL or Stream-Expires-At, not both",
            expiry::Invalid::Ttl => {
                "Stream-TTL must be a whole number of seconds without sign or leading zero"
            }
            expiry::Invalid::ExpiresAt => {
                "Stream-Expires-At must be an RFC 3339 time such as 2030-01-01T00:00:00Z"
            }
        })
    }
}

impl From<producer::Invalid> for Refusal {
    fn from(invalid: producer::Invalid) -> Refusal {
        Refusal::invalid(match invalid {
            producer::Invalid::Incomplete => {
                "send Producer-Id, Producer-Epoch and Producer-Seq together or not at all"
            }
            producer::Invalid::Id => "Producer-Id must have 1 to 256 characters",
            producer::Invalid::Epoch => "Producer-Epoch must be a whole number below 2^53",
            producer::Invalid::Seq => "Producer-Seq must be a whole number below 2^53",
        })
    }
}

impl From<json_mode::Invalid> for Refusal {
    fn from(invalid: json_mode::Invalid) -> Refusal {
        Refusal::invalid(match invalid {
            json_mode::Invalid::Syntax => "the body is not valid JSON",
            json_mode::Invalid::Empty => "the body is an empty array; an append needs at least one value",
        })
    }
}

/// The type of a body that must have one.
pub(super) fn content_type(text: Option<&str>) -> Result<content_type::ContentType, Refusal> {
    let text = text.ok_or_else(|| Refusal::invalid("Content-Type is missing"))?;
    content_type::ContentType::parse(text)
        .ok_or_else(|| Refusal::invalid("Content-Type is not a media type such as text/plain"))
}
