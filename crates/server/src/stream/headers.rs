//! Header names of the protocol, and the headers every answer carries.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderName, HeaderValue, ORIGIN, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use towpath_model::stream::offset::Offset;

use super::request::Fields;
use crate::body::Body;
use crate::project::Origins;

macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        $(pub(super) const $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    NEXT_OFFSET = "stream-next-offset",
    UP_TO_DATE = "stream-up-to-date",
    CLOSED = "stream-closed",
    CURSOR = "stream-cursor",
    SEQ = "stream-seq",
    TTL = "stream-ttl",
    EXPIRES_AT = "stream-expires-at",
    FIRST_OFFSET = "stream-first-offset",
    FORKED_FROM = "stream-forked-from",
    FORK_OFFSET = "stream-fork-offset",
    FORK_SUB_OFFSET = "stream-fork-sub-offset",
    RETAIN_SECONDS = "stream-retain-seconds",
    RETAIN_BYTES = "stream-retain-bytes",
    SSE_DATA_ENCODING = "stream-sse-data-encoding",
    PRODUCER_ID = "producer-id",
    PRODUCER_EPOCH = "producer-epoch",
    PRODUCER_SEQ = "producer-seq",
    PRODUCER_EXPECTED_SEQ = "producer-expected-seq",
    PRODUCER_RECEIVED_SEQ = "producer-received-seq",
    RESOURCE_POLICY = "cross-origin-resource-policy",
    READER_KEY = "stream-reader-key",
    SESSION_HOST = "stream-session-host",
    FANOUT_COUNT = "stream-fanout-count",
    FANOUT_SUCCESSES = "stream-fanout-successes",
    FANOUT_FAILURES = "stream-fanout-failures",
    FANOUT_MODE = "stream-fanout-mode",
}

pub(super) const TRUE: HeaderValue = HeaderValue::from_static("true");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

const EXPOSED: &str = "stream-next-offset, stream-cursor, stream-up-to-date, stream-closed, stream-ttl, \
    stream-expires-at, stream-first-offset, stream-retain-seconds, stream-retain-bytes, \
    stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, stream-reader-key, stream-fanout-count, \
    stream-fanout-successes, stream-fanout-failures, stream-fanout-mode, etag, location, retry-after";
const ALLOWED: &str = "authorization, content-type, if-match, if-none-match, last-event-id, stream-seq, stream-ttl, \
    stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, stream-fork-sub-offset, \
    stream-retain-seconds, stream-retain-bytes, producer-id, producer-epoch, producer-seq";
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Whether an answer speaks to browsers of other origins.
///
/// Of an open project reads always do, because a shared cache may hand them to another client
/// than the one that asked; writes only when a browser asks, which keeps their answers short.
/// A registered project lists its origins.
#[derive(Clone)]
pub(super) enum Cors {
    /// To all of them.
    Any,
    /// To the one that asked; caches must tell others apart.
    One(HeaderValue),
    /// To none; caches must tell others apart.
    Listed,
    /// Nobody asked.
    Quiet,
}

impl Cors {
    pub(super) fn wanted<B>(request: &Request<B>, origins: Origins) -> Cors {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match origins {
            Origins::Any if is_read || request.headers().contains_key(ORIGIN) => Cors::Any,
            Origins::Any => Cors::Quiet,
            Origins::One(origin) => Cors::One(origin),
            Origins::None => Cors::Listed,
        }
    }

    /// For a write with these fields to an open project.
    pub(super) fn of_write(fields: &impl Fields) -> Cors {
        if fields.all(&ORIGIN).next().is_some() { Cors::Any } else { Cors::Quiet }
    }

    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        self.fields(|name, value| drop(headers.insert(name, HeaderValue::from_static(value))));
        match self {
            Cors::Any | Cors::Quiet => {}
            Cors::Listed => drop(headers.insert(VARY, HeaderValue::from_static("origin"))),
            Cors::One(origin) => {
                headers.insert(VARY, HeaderValue::from_static("origin"));
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            }
        }
    }

    /// Every field it adds, but for those of a registered project's origins.
    pub(super) fn fields(&self, mut put: impl FnMut(HeaderName, &'static str)) {
        put(X_CONTENT_TYPE_OPTIONS, "nosniff");
        put(RESOURCE_POLICY, "cross-origin");
        if matches!(self, Cors::Any) {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, "*");
            put(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

/// What a browser asks before it asks. Whom it may tell is [`Cors`]'s business.
pub(super) fn preflight() -> Response<Body> {
    let mut response = super::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

/// A header value of text that is known to be printable ASCII.
pub(super) fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("checked to be printable when it was read")
}

pub(super) fn offset(offset: Offset) -> HeaderValue {
    HeaderValue::from_bytes(&offset.to_text()).expect("digits are printable")
}

pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from(number)
}
