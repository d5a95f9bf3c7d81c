//! Parses the head of a request, if it is one that our own loop handles.

use bytes::Bytes;
use httparse::{EMPTY_HEADER, Header, Status};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Method, Request, Uri};

use crate::limits::OWN_HEAD_BYTES_MAX;
use crate::stream::Fields;
use crate::upload::Upload;

/// Header fields of a request; clients send about ten.
const FIELDS_MAX: usize = 48;

/// Storage for the fields of one request.
pub(super) fn room<'a>() -> [Header<'a>; FIELDS_MAX] {
    [EMPTY_HEADER; FIELDS_MAX]
}

/// The result of parsing.
pub(super) enum Read<'a> {
    /// The head is not complete.
    More,
    /// For hyper, which handles it or refuses it.
    NotOurs,
    /// The head is complete.
    Whole(Head<'a>),
}

/// A parsed head, which borrows the buffer.
pub(super) struct Head<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    target: &'a str,
    fields: &'a [Header<'a>],
    /// Its length.
    pub(super) bytes: usize,
    /// The length of the body behind it.
    pub(super) body_bytes: usize,
}

/// Parses the head at the beginning of `input`.
pub(super) fn read<'a>(input: &'a [u8], fields: &'a mut [Header<'a>]) -> Read<'a> {
    let mut request = httparse::Request::new(fields);
    let bytes = match request.parse(input) {
        // The limit is the same whether a head arrives in one piece or in several.
        Ok(Status::Complete(bytes)) if bytes <= OWN_HEAD_BYTES_MAX => bytes,
        Ok(Status::Partial) if input.len() < OWN_HEAD_BYTES_MAX => return Read::More,
        Ok(Status::Complete(_) | Status::Partial) | Err(_) => return Read::NotOurs,
    };
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version) else {
        return Read::NotOurs;
    };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return Read::NotOurs };
    if !target.starts_with('/') || target.contains('#') {
        return Read::NotOurs;
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let Some(body_bytes) = body_bytes(request.headers) else { return Read::NotOurs };
    Read::Whole(Head { method, path, target, fields: request.headers, bytes, body_bytes })
}

/// The length of the body, if the request has at most one plain Content-Length and no field that changes
/// the framing or the protocol. `None` for anything else: hyper decides.
fn body_bytes(fields: &[Header<'_>]) -> Option<usize> {
    let mut length = None;
    for Header { name, value } in fields {
        let is = |known: &HeaderName| name.eq_ignore_ascii_case(known.as_str());
        if is(&CONTENT_LENGTH) {
            let text = std::str::from_utf8(value).ok()?;
            let digits = !text.is_empty() && text.len() < 12 && text.bytes().all(|it| it.is_ascii_digit());
            if !digits || length.is_some() {
                return None;
            }
            length = Some(text.parse().ok()?);
        } else if is(&CONNECTION) {
            if !value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is(&TRANSFER_ENCODING) || is(&EXPECT) || is(&UPGRADE) {
            return None;
        }
    }
    Some(length.unwrap_or(0))
}

impl Head<'_> {
    /// The request in the form that all other handlers take.
    pub(super) fn request(&self, body: Bytes) -> Option<Request<Upload>> {
        let mut request = Request::new(Upload::Here(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.parse::<Uri>().ok()?;
        let mut fields = HeaderMap::with_capacity(self.fields.len());
        for Header { name, value } in self.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            fields.append(name, HeaderValue::from_bytes(value).ok()?);
        }
        *request.headers_mut() = fields;
        Some(request)
    }
}

impl Fields for Head<'_> {
    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]> {
        let named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name.as_str());
        self.fields.iter().filter(named).map(|field| field.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fragments of requests, valid and invalid.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let known = prop::sample::select(vec![
            "POST ",
            "GET ",
            "/v1/stream/a",
            "/v1/stream/a?offset=-1",
            "/%2f",
            "*",
            "#",
            " HTTP/1.1\r\n",
            " HTTP/1.0\r\n",
            "host: x\r\n",
            "content-length: 5\r\n",
            "content-length: 0\r\n",
            "Content-Length : 5\r\n",
            "transfer-encoding: chunked\r\n",
            "connection: keep-alive\r\n",
            "connection: close\r\n",
            " folded\r\n",
            "producer-id: p\r\n",
            "\r\n",
            "\n",
            "\r",
            "hello",
        ]);
        prop_oneof![
            8 => known.prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 1..9),
        ]
    }

    proptest! {
        /// No input panics. A head that is accepted has the right length, is a valid request for every other
        /// handler, and parses the same with any bytes behind it.
        #[test]
        fn any_bytes_are_read_or_left(pieces in prop::collection::vec(piece(), 0..24), behind in piece()) {
            let input = pieces.concat();
            let mut fields = room();
            if let Read::Whole(head) = read(&input, &mut fields) {
                prop_assert!(head.bytes <= input.len());
                prop_assert!(input[..head.bytes].ends_with(b"\n"));
                let lengths = head.all(&CONTENT_LENGTH).count();
                prop_assert!(lengths == usize::from(head.body_bytes > 0) || head.body_bytes == 0);
                prop_assert_eq!(head.all(&TRANSFER_ENCODING).count(), 0);
                if let Some(request) = head.request(Bytes::new()) {
                    prop_assert_eq!(request.uri().path(), head.path);
                    prop_assert_eq!(request.headers().len(), head.fields.len());
                }
                let (bytes, body_bytes) = (head.bytes, head.body_bytes);
                let longer = [&input[..], &behind].concat();
                let mut fields = room();
                match read(&longer, &mut fields) {
                    Read::Whole(again) => prop_assert_eq!((again.bytes, again.body_bytes), (bytes, body_bytes)),
                    _ => prop_assert!(false, "what follows changed what came before"),
                }
            }
        }
    }

    fn read_as(text: &str) -> &'static str {
        let mut fields = room();
        match read(text.as_bytes(), &mut fields) {
            Read::More => "more",
            Read::NotOurs => "not ours",
            Read::Whole(head) => match (head.body_bytes, head.path) {
                (5, "/a") => "whole",
                (0, "/a") => "empty",
                _ => "wrong",
            },
        }
    }

    /// Two parsers must never disagree about where a request ends.
    #[test]
    fn only_plain_requests_are_ours() {
        let with = |field: &str| format!("POST /a?b=c HTTP/1.1\r\nhost: x\r\n{field}\r\n\r\n");
        assert_eq!(read_as(&with("Content-Length: 5")), "whole");
        assert_eq!(read_as(&with("connection: Keep-Alive")), "empty");
        for field in [
            "content-length: 5\r\ncontent-length: 5",
            "content-length: 5\r\ncontent-length: 6",
            "content-length: +5",
            "content-length: 5, 5",
            "content-length: 99999999999999999999",
            "content-length:",
            "transfer-encoding: chunked",
            "Transfer-Encoding: identity\r\ncontent-length: 5",
            "expect: 100-continue",
            "connection: close",
            "connection: upgrade\r\nupgrade: h2c",
        ] {
            assert_eq!(read_as(&with(field)), "not ours", "{field}");
        }
        assert_eq!(read_as("POST /a HTTP/1.0\r\ncontent-length: 5\r\n\r\n"), "not ours");
        assert_eq!(read_as("POST http://x/a HTTP/1.1\r\ncontent-length: 5\r\n\r\n"), "not ours");
        assert_eq!(read_as("POST /a HTTP/1.1\r\nbad field: 5\r\n\r\n"), "not ours");
        assert_eq!(read_as("POST /a HTTP/1.1\r\ncontent-length : 5\r\n\r\n"), "not ours");
    }

    #[test]
    fn a_head_that_is_cut_waits_for_the_rest() {
        let text = "POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read_as(&text[..end]), "more", "{end}");
        }
        assert_eq!(
            read_as(&format!("POST /a HTTP/1.1\r\nx: {}", "y".repeat(OWN_HEAD_BYTES_MAX))),
            "not ours"
        );
    }
}
