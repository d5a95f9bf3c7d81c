//! I/O objects: a time limit on writes, and filters for reads.
//!
//! hyper has a time limit for the head of a request, but none for writes: a reader that stops
//! reading would hold its page forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// An I/O object whose writes fail when the peer takes no byte for `wait_max`.
///
/// The timer exists only while a write waits, which on a healthy connection is never.
pub(crate) struct WriteBound<T> {
    inner: T,
    wait_max: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Peers that were disconnected.
    given_up: Counter,
}

impl<T> WriteBound<T> {
    pub(crate) fn new(inner: T, wait_max: Duration, given_up: Counter) -> WriteBound<T> {
        WriteBound { inner, wait_max, waiting: None, given_up }
    }

    fn judge<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let wait_max = self.wait_max;
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + wait_max)));
        ready!(waiting.as_mut().poll(cx));
        self.given_up.inc();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteBound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteBound<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, ended)
    }
}

/// An I/O object whose reads go through a filter. Writes go straight to it.
pub(crate) struct Filtered<T, F> {
    inner: T,
    filter: F,
}

impl<T, F> Filtered<T, F> {
    pub(crate) fn new(inner: T, filter: F) -> Filtered<T, F> {
        Filtered { inner, filter }
    }
}

/// A filter for the bytes that are read.
pub(crate) trait ReadFilter {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

/// Bytes that were read before come first.
impl ReadFilter for Bytes {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_empty() {
            return Pin::new(inner).poll_read(cx, buf);
        }
        let count = self.len().min(buf.remaining());
        buf.put_slice(&self.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin, F: ReadFilter + Unpin> AsyncRead for Filtered<T, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Filtered { inner, filter } = &mut *self;
        filter.poll_read(inner, cx, buf)
    }
}

impl<T: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Filtered<T, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// S06: a reader that stops reading loses its connection.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_disconnected() {
        let (_peer, ours) = tokio::io::duplex(16);
        let mut ours = WriteBound::new(ours, Duration::from_secs(30), Counter::default());
        let started = Instant::now();
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_not() {
        let (mut peer, ours) = tokio::io::duplex(16);
        let mut ours = WriteBound::new(ours, Duration::from_secs(30), Counter::default());
        let reader = tokio::spawn(async move {
            let mut byte = [0; 16];
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                peer.read_exact(&mut byte).await.unwrap();
            }
        });
        ours.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }
}
