//! The body of a request: read already, or still arriving.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::BODY_WAIT_MAX;

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Upload {
    /// Read already.
    Here(Bytes),
    /// Read piece by piece.
    Coming(Incoming),
}

/// Why reading a body failed.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct Late;

/// A body with a time limit, whatever reads it.
pub(crate) struct Timely {
    body: Incoming,
    ends_at: Instant,
    /// Exists only while bytes are missing.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Timely {
    pub(crate) fn new(body: Incoming) -> Timely {
        Timely { body, ends_at: Instant::now() + BODY_WAIT_MAX, alarm: None }
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        let ends_at = self.ends_at;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(ends_at)));
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new(Late))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
