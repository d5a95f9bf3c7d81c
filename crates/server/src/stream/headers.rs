//! Header names of the protocol, and the headers of every response.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderName, HeaderValue, VARY,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use towpath_model::stream::offset::Offset;

use crate::body::Body;
use crate::hosts::SAFE_FIELDS;
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
    LAST_EVENT_ID = "last-event-id",
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

/// The CORS headers of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cors {
    /// Allows the origin of the request; `Vary` for caches.
    One(HeaderValue),
    /// Allows none; `Vary` for caches.
    Listed,
    /// None: the request has no origin, and the response is not cached.
    Quiet,
}

impl Cors {
    pub(super) fn wanted<B>(request: &Request<B>, origins: Origins) -> Cors {
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        match origins {
            Origins::One(origin) => Cors::One(origin),
            Origins::None if is_write => Cors::Quiet,
            Origins::None | Origins::Foreign => Cors::Listed,
        }
    }

    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        fixed(|name, value| drop(headers.insert(name, HeaderValue::from_static(value))));
        match self {
            Cors::Quiet => {}
            Cors::Listed => drop(headers.insert(VARY, HeaderValue::from_static("origin"))),
            Cors::One(origin) => {
                headers.insert(VARY, HeaderValue::from_static("origin"));
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            }
        }
    }
}

/// The headers of every response about streams: a browser never runs stored bytes, whatever content type they have
/// (S09).
pub(super) fn fixed(mut put: impl FnMut(HeaderName, &'static str)) {
    SAFE_FIELDS.into_iter().for_each(|(name, value)| put(name, value));
    put(RESOURCE_POLICY, "cross-origin");
}

/// The response to a CORS preflight. [`Cors`] adds the allowed origin.
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
