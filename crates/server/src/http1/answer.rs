//! Writes responses as bytes.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::body::Body as _;
use hyper::header::{CONTENT_LENGTH, HeaderName};
use hyper::{Response, StatusCode};
use jiff::Timestamp;

use crate::body::Body;
use crate::stream::{AppendReply, Value};

/// How a response marks the end of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// No body.
    Nothing,
    /// By its length.
    Length,
    /// In the chunked coding.
    Chunks,
}

/// Writes the response to an append.
pub(super) fn put_append(out: &mut Vec<u8>, reply: &AppendReply) {
    let status = reply.status();
    put_status(out, status);
    reply.fields(|name, value| match value {
        Value::Text(text) => put_field(out, &name, text.as_bytes()),
        Value::Offset(offset) => put_field(out, &name, &offset.to_text()),
        Value::Number(number) => put_field(out, &name, number.to_string().as_bytes()),
    });
    if status != StatusCode::NO_CONTENT {
        put_field(out, &CONTENT_LENGTH, b"0");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a response.
pub(super) fn put_head(out: &mut Vec<u8>, response: &Response<Body>, is_head: bool) -> Framing {
    let status = response.status();
    put_status(out, status);
    for (name, value) in response.headers() {
        put_field(out, name, value.as_bytes());
    }
    let without = is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match (without, response.body().size_hint().exact()) {
        (true, _) => Framing::Nothing,
        (false, Some(length)) => {
            put_field(out, &CONTENT_LENGTH, length.to_string().as_bytes());
            Framing::Length
        }
        (false, None) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunks
        }
    };
    out.extend_from_slice(b"\r\n");
    framing
}

fn put_status(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\ndate: ");
    out.extend_from_slice(&date());
    out.extend_from_slice(b"\r\n");
}

fn put_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
type Date = [u8; 29];

/// The time in the format of HTTP, formatted once a second on every thread.
fn date() -> Date {
    thread_local! {
        static LAST: Cell<(u64, Date)> = const { Cell::new((0, [0; 29])) };
    }
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (last, text) = LAST.get();
    if last == second {
        return text;
    }
    let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    let text = time.unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let text = text.as_bytes().try_into().expect("the form has a fixed length");
    LAST.set((second, text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_the_form_of_http() {
        let text = String::from_utf8(date().to_vec()).unwrap();
        assert!(text.ends_with(" GMT") && text.as_bytes()[3] == b',' && text.as_bytes()[7] == b' ', "{text}");
    }

    #[test]
    fn bodies_say_where_they_end() {
        let head = |status: StatusCode, body: Body, is_head| {
            let mut response = Response::new(body);
            *response.status_mut() = status;
            let mut out = Vec::new();
            let framing = put_head(&mut out, &response, is_head);
            (framing, String::from_utf8(out).unwrap().contains("content-length"))
        };
        assert_eq!(head(StatusCode::NO_CONTENT, Body::Empty, false), (Framing::Nothing, false));
        assert_eq!(head(StatusCode::CREATED, Body::Empty, false), (Framing::Length, true));
        assert_eq!(head(StatusCode::OK, Body::Empty, true), (Framing::Nothing, false));
        assert_eq!(head(StatusCode::NOT_MODIFIED, Body::Empty, false), (Framing::Nothing, false));
        let endless = futures_util::stream::pending::<Result<bytes::Bytes, axum::Error>>();
        let endless = Body::Other(axum::body::Body::from_stream(endless), None);
        assert_eq!(head(StatusCode::OK, endless, false), (Framing::Chunks, false));
    }
}
