//! Our own HTTP/1.1 parser: the way in which bytes arrive must make no difference, and no other parser may read
//! another request in them.

use bytes::Bytes;
use hyper::Request;

use super::head::{Head, Read, read, room};
use crate::stream;
use crate::upload::Upload;

/// Larger bodies go to hyper; small here, so that the fuzzer reaches the limit.
const BODY_BYTES_MAX: usize = 64;

/// How reading a connection ended.
#[derive(Debug, PartialEq)]
enum End {
    More,
    Body,
    NotOurs,
}

/// What was read of a connection.
#[derive(Debug, PartialEq)]
struct Seen {
    requests: Vec<String>,
    left: usize,
    end: End,
}

/// The first byte is the size of the pieces; the rest are the bytes of the connection.
pub fn http1(data: &[u8]) {
    let Some((step, input)) = data.split_first() else { return };
    let at_once = seen(&[input]);
    let pieces: Vec<&[u8]> = input.chunks(usize::from(*step).max(1)).collect();
    assert_eq!(seen(&pieces), at_once, "the pieces made a difference");
}

/// Parses a connection whose bytes arrive in pieces.
fn seen(pieces: &[&[u8]]) -> Seen {
    let mut seen = Seen { requests: vec![], left: 0, end: End::More };
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while seen.end != End::NotOurs {
            match next(&buffer) {
                Ok((bytes, request)) => {
                    seen.requests.push(request);
                    buffer.drain(..bytes);
                }
                Err(end) => {
                    seen.end = end;
                    break;
                }
            }
        }
    }
    seen.left = buffer.len();
    seen
}

fn next(buffer: &[u8]) -> Result<(usize, String), End> {
    let mut fields = room();
    let head = match read(buffer, &mut fields) {
        Read::More => return Err(End::More),
        Read::NotOurs => return Err(End::NotOurs),
        Read::Whole(head) => head,
    };
    if head.body_bytes > BODY_BYTES_MAX {
        return Err(End::NotOurs);
    }
    plainly(&buffer[..head.bytes], &head);
    let bytes = head.bytes + head.body_bytes;
    let body = buffer.get(head.bytes..bytes).ok_or(End::Body)?;
    let request = head.request(Bytes::copy_from_slice(body)).ok_or(End::NotOurs)?;
    assert_eq!(request.uri().path(), head.path);
    Ok((bytes, shown(&request, body)))
}

fn shown(request: &Request<Upload>, body: &[u8]) -> String {
    format!("{} {} {:?} {body:?}", request.method(), request.uri(), request.headers())
}

/// Parses a head line by line, as a careless proxy would: it must find the same body length.
fn plainly(head: &[u8], ours: &Head<'_>) {
    let text = String::from_utf8_lossy(head);
    let mut lengths = vec![];
    for line in text.split('\n').skip(1) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = name.trim().to_ascii_lowercase();
        assert_ne!(name, "transfer-encoding", "a chunked body was accepted");
        if name == "content-length" {
            lengths.push(value.trim().parse::<usize>().ok());
        }
    }
    match lengths[..] {
        [] => assert_eq!(ours.body_bytes, 0),
        [Some(length)] => assert_eq!(ours.body_bytes, length),
        _ => panic!("an ambiguous length was accepted: {lengths:?}"),
    }
}

/// The input is a query, a line end, header fields, an empty line and a body. An append must mean the same, whether our
/// own loop or hyper parsed its head.
pub fn append(data: &[u8]) {
    let (line, rest) = cut(data, b"\n");
    if let Ok(line) = std::str::from_utf8(line) {
        stream::fuzz::parameters(line);
    }
    let (fields, body) = cut(rest, b"\r\n\r\n");
    let input = [b"POST /v1/stream/a HTTP/1.1\r\n", fields, b"\r\n\r\n"].concat();
    let mut fields = room();
    let Read::Whole(head) = read(&input, &mut fields) else { return };
    let request = head.request(Bytes::new()).expect("a head we accept is a valid request");
    let (ours, others) = (stream::fuzz::append(&head, body), stream::fuzz::append(request.headers(), body));
    assert_eq!(ours, others, "the two parsers differ");
}

fn cut<'a>(data: &'a [u8], at: &[u8]) -> (&'a [u8], &'a [u8]) {
    match data.windows(at.len()).position(|window| window == at) {
        Some(found) => (&data[..found], &data[found + at.len()..]),
        None => (data, &[]),
    }
}
