//! The body of an answer: nothing, a few shared pieces, or events that keep coming.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Frame, SizeHint};

/// What is sent. Pieces are shared with the store and with other clients, never copied.
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// One piece.
    Piece(Bytes),
    /// A JSON page: `[`, the values, `]`.
    Array(Array),
    /// Events until the stream, the client or the server ends it.
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// Whatever the other pages answer with.
    Other(axum::body::Body),
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
            Body::Events(events) => ready!(events.as_mut().poll_next(cx)),
            Body::Other(body) => return Pin::new(body).poll_frame(cx),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Piece(_) | Body::Events(_) => false,
            Body::Array(array) => array.left() == 0,
            Body::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Piece(piece) => SizeHint::with_exact(piece.len() as u64),
            Body::Array(array) => SizeHint::with_exact(array.left()),
            Body::Events(_) => SizeHint::default(),
            Body::Other(body) => body.size_hint(),
        }
    }
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

    #[tokio::test]
    async fn an_array_is_as_long_as_promised() {
        let stored = Bytes::from_static(b"1,{\"a\":2},");
        assert_eq!(sent(Body::array(stored)).await, (Some(11), Bytes::from_static(b"[1,{\"a\":2}]")));
        assert_eq!(sent(Body::array(Bytes::new())).await, (Some(2), Bytes::from_static(b"[]")));
        assert_eq!(sent(Body::from(Bytes::new())).await, (Some(0), Bytes::new()));
    }
}
