//! The body of an answer: empty, a few shared pieces, or events without end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::budget::{Held, Share};
use crate::stream::Events;
use crate::unsent::{Lost, Unsent};

/// The body of an answer. Pieces are shared with the store and with other clients.
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// One piece.
    Piece(Bytes),
    /// A JSON page: `[`, the values, `]`.
    Array(Array),
    /// A page of a stream, which can be dropped and read again.
    Page(Box<Unsent>),
    /// Events until the stream, the client or the server ends, and what hyper has not taken of the last one.
    Events(Box<Events>, Option<Box<Unsent>>),
    /// An answer of the router, and the memory it holds if it is large.
    Other(axum::body::Body, Option<Box<(Share, Held)>>),
}

/// A chunk in the chunked coding of HTTP/1.1: its length, the bytes, a line end. It is rendered once for all
/// readers and sent with one write.
#[derive(Debug, Clone)]
pub(crate) struct Chunk(Bytes);

/// Room for the length of a chunk and the end of its line.
const CHUNK_HEAD_BYTES: usize = 10;

impl Chunk {
    /// A chunk of what `write` writes into a buffer with room for `bytes`.
    pub(crate) fn write(bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Chunk {
        let mut out = Vec::with_capacity(CHUNK_HEAD_BYTES + bytes + 2);
        out.resize(CHUNK_HEAD_BYTES, b'0');
        write(&mut out);
        let length = out.len() - CHUNK_HEAD_BYTES;
        let head = format!("{length:x}\r\n");
        let begin = CHUNK_HEAD_BYTES - head.len();
        out[begin..CHUNK_HEAD_BYTES].copy_from_slice(head.as_bytes());
        out.extend_from_slice(b"\r\n");
        Chunk(Bytes::from(out).slice(begin..))
    }

    /// The chunk that [`Chunk::into_wire`] gave.
    pub(crate) fn from_wire(wire: Bytes) -> Chunk {
        Chunk(wire)
    }

    /// Everything, as it is sent.
    pub(crate) fn into_wire(self) -> Bytes {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The data without its framing.
    pub(crate) fn into_data(self) -> Bytes {
        let begin = self.0.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.0.slice(begin..self.0.len() - 2)
    }
}

/// What is left to send of a JSON array.
pub(crate) struct Array {
    values: Bytes,
    next: Part,
}

enum Part {
    Open,
    Values,
    Close,
    Done,
}

impl Body {
    /// The array of a run of stored values, each of which ends in a comma.
    pub(crate) fn array(stored: Bytes) -> Body {
        let values = match stored.len() {
            0 => stored,
            length => stored.slice(..length - 1),
        };
        Body::Array(Array { values, next: Part::Open })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        match bytes.is_empty() {
            true => Body::Empty,
            false => Body::Piece(bytes),
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::from(Bytes::from(text))
    }
}

impl Array {
    fn next(&mut self) -> Option<Bytes> {
        let (piece, next) = match self.next {
            Part::Open if self.values.is_empty() => (Bytes::from_static(b"[]"), Part::Done),
            Part::Open => (Bytes::from_static(b"["), Part::Values),
            Part::Values => (std::mem::take(&mut self.values), Part::Close),
            Part::Close => (Bytes::from_static(b"]"), Part::Done),
            Part::Done => return None,
        };
        self.next = next;
        Some(piece)
    }

    fn left(&self) -> u64 {
        let values = self.values.len() as u64;
        match self.next {
            Part::Open => values + 2,
            Part::Values => values + 1,
            Part::Close => 1,
            Part::Done => 0,
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = match &mut *self {
            Body::Empty => None,
            Body::Piece(piece) => {
                let piece = std::mem::take(piece);
                *self = Body::Empty;
                Some(piece)
            }
            Body::Array(array) => array.next(),
            Body::Page(page) => ready!(page.poll_piece(cx)).transpose().map_err(|_| no_room())?,
            Body::Events(events, unsent) => {
                ready!(poll_events(events, unsent, cx)).transpose().map_err(|_| no_room())?
            }
            Body::Other(body, held) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map(|frame| given(frame, held))));
            }
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Piece(_) | Body::Events(..) => false,
            Body::Array(array) => array.left() == 0,
            Body::Page(page) => page.left() == 0,
            Body::Other(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Piece(piece) => SizeHint::with_exact(piece.len() as u64),
            Body::Array(array) => SizeHint::with_exact(array.left()),
            Body::Page(page) => SizeHint::with_exact(page.left()),
            Body::Events(..) => SizeHint::default(),
            Body::Other(body, _) => body.size_hint(),
        }
    }
}

/// The next piece of an event.
fn poll_events(
    events: &mut Events,
    unsent: &mut Option<Box<Unsent>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, Lost>>> {
    loop {
        if let Some(rest) = unsent {
            if let Some(piece) = ready!(rest.poll_piece(cx)) {
                return Poll::Ready(Some(piece));
            }
            *unsent = None;
        }
        match ready!(events.poll_events(cx)) {
            Some(chunk) => *unsent = Some(Box::new(events.unsent(&chunk.into_data(), Chunk::into_data))),
            None => return Poll::Ready(None),
        }
    }
}

/// The data of a large answer; its memory is free when hyper has sent it.
fn given(frame: Frame<Bytes>, held: &mut Option<Box<(Share, Held)>>) -> Frame<Bytes> {
    match (frame.into_data(), held.take().map(|held| *held)) {
        (Ok(data), Some((share, held))) => Frame::data(share.give(data, held)),
        (Ok(data), None) => Frame::data(data),
        (Err(frame), _) => frame,
    }
}

fn no_room() -> axum::Error {
    axum::Error::new("the memory for readers is used up")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;

    async fn sent(body: Body) -> (Option<u64>, Bytes) {
        let promised = body.size_hint().exact();
        (promised, body.collect().await.unwrap().to_bytes())
    }

    #[test]
    fn a_chunk_says_its_length() {
        for length in [1, 9, 15, 16, 255, 4096, 1_048_577] {
            let data = vec![b'\n'; length];
            let chunk = Chunk::write(0, |out| out.extend_from_slice(&data));
            let wire = chunk.clone().into_wire();
            assert!(wire.starts_with(format!("{length:x}\r\n\n").as_bytes()) && wire.ends_with(b"\n\r\n"));
            assert_eq!(Chunk::from_wire(wire).into_data(), data);
        }
    }

    #[tokio::test]
    async fn an_array_is_as_long_as_promised() {
        let stored = Bytes::from_static(b"1,{\"a\":2},");
        assert_eq!(sent(Body::array(stored)).await, (Some(11), Bytes::from_static(b"[1,{\"a\":2}]")));
        assert_eq!(sent(Body::array(Bytes::new())).await, (Some(2), Bytes::from_static(b"[]")));
        assert_eq!(sent(Body::from(Bytes::new())).await, (Some(0), Bytes::new()));
    }
}
