//! Parses requests: single headers, single query parameters, bodies with a size limit.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use towpath_model::stream::name::decode;

use super::refusal::Refusal;
use crate::limits;
use crate::upload::Upload;

/// The header fields of a request, whichever parser read them.
pub(crate) trait Fields {
    /// All values of a field.
    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]>;
}

impl Fields for HeaderMap {
    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}

/// The text of a header. It is refused if it comes twice or is not ASCII.
pub(super) fn header<'a>(fields: &'a impl Fields, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = fields.all(name);
    let Some(value) = values.next() else { return Ok(None) };
    let is_text = value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    match (std::str::from_utf8(value), values.next()) {
        (Ok(text), None) if is_text => Ok(Some(text)),
        _ => Err(Refusal::invalid(format!("{name} must be sent once, in ASCII"))),
    }
}

/// Whether the header is `true` in any letter case. Other values count as absent.
pub(super) fn is_true(fields: &impl Fields, name: &HeaderName) -> bool {
    fields.all(name).next().is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}

/// One query parameter, decoded. It is refused if it comes twice; unknown parameters are ignored.
pub(super) fn query(text: Option<&str>, name: &str) -> Result<Option<String>, Refusal> {
    let pairs = text.unwrap_or_default().split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    });
    let mut found = None;
    for value in pairs {
        if found.is_some() {
            return Err(Refusal::invalid(format!("{name} must be given once")));
        }
        let plain = value.replace('+', " ");
        let value = decode(&plain)
            .ok_or_else(|| Refusal::invalid(format!("{name} is not valid percent-encoding")))?;
        found = Some(value);
    }
    Ok(found)
}

/// Scheme and host as the client sees them, for URLs in responses; empty without a host.
///
/// `own` is the server's own URL; a proxy that terminates TLS sets `X-Forwarded-Proto`.
pub(super) fn base_url(parts: &hyper::http::request::Parts, own: &str) -> String {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.or(parts.uri.authority().map(Authority::as_str)) else {
        return String::new();
    };
    let scheme = parts.headers.get("x-forwarded-proto").map(HeaderValue::as_bytes);
    let secure = scheme == Some(b"https") || own.starts_with("https:");
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// The whole body, if it is not too large and arrives in time.
pub(super) async fn body(body: Upload, bytes_max: usize) -> Result<Bytes, Refusal> {
    let mut body = match body {
        Upload::Here(bytes) if bytes.len() > bytes_max => return Err(Refusal::too_large(bytes_max)),
        Upload::Here(bytes) => return Ok(bytes),
        Upload::Coming(body) => body,
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let announced = body.size_hint().lower();
    let read = match announced > bytes_max as u64 {
        true => Ok(None),
        false => match tokio::time::timeout(limits::BODY_WAIT_MAX, collect(&mut body, bytes_max)).await {
            Ok(read) => read,
            Err(_) => return Err(Refusal::slow_body()),
        },
    };
    match read? {
        Some(bytes) => Ok(bytes),
        None => {
            let _ = tokio::time::timeout(limits::DISCARD_WAIT_MAX, discard(&mut body)).await;
            Err(Refusal::too_large(bytes_max))
        }
    }
}

/// Reads on for a while: a client that is still sending does not read the response.
async fn discard(body: &mut Incoming) {
    let mut left = limits::DISCARD_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The body, or `None` if it is too large. A body in one piece is not copied.
async fn collect(body: &mut Incoming, bytes_max: usize) -> Result<Option<Bytes>, Refusal> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::invalid(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > bytes_max {
            return Ok(None);
        }
        match (first.is_empty(), all.is_empty()) {
            (true, true) => first = data,
            (false, _) => {
                all.reserve(first.len() + data.len());
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&data);
            }
            (true, false) => all.extend_from_slice(&data),
        }
    }
    Ok(Some(if all.is_empty() { first } else { all.freeze() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_once() {
        let find = |text: &str| query(Some(text), "offset").map_err(|_| ());
        assert_eq!(find("live=sse&offset=now&x=1"), Ok(Some("now".into())));
        assert_eq!(find("offset="), Ok(Some(String::new())));
        assert_eq!(find("offset=a%20b+c"), Ok(Some("a b c".into())));
        assert_eq!(find("offsets=1"), Ok(None));
        assert_eq!(find("offset=1&offset=1"), Err(()));
        assert_eq!(find("offset=%zz"), Err(()));
    }
}
