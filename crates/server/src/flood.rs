//! Floods of HTTP/2 frames that carry no request.
//!
//! A peer may send PING, SETTINGS, PRIORITY, RST_STREAM, empty DATA or unknown frames without end: each is read and
//! most are answered. h2 limits the state they leave, not their number. So they are counted, and a connection with too
//! many of them is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::io::ReadFilter;
use crate::limits::{HTTP2_CONTROL_FRAMES_MAX, HTTP2_CONTROL_WINDOW};

/// The preface that a client sends first.
const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;

/// Counts the frames of an HTTP/2 connection as they are read.
pub(crate) struct FrameCounter {
    frames: Frames,
    /// Connections that were closed.
    cut: Counter,
}

impl FrameCounter {
    pub(crate) fn new(cut: Counter) -> FrameCounter {
        FrameCounter { frames: Frames::new(), cut }
    }
}

/// Parses frame headers from bytes that arrive in any pieces.
struct Frames {
    /// Bytes to skip: the preface, or the payload of a frame.
    skip: usize,
    head: [u8; FRAME_HEAD_BYTES],
    read: usize,
    began: Instant,
    count: u32,
}

impl Frames {
    fn new() -> Frames {
        Frames { skip: PREFACE_BYTES, head: [0; FRAME_HEAD_BYTES], read: 0, began: Instant::now(), count: 0 }
    }

    /// Reads bytes; false if there were too many frames.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (FRAME_HEAD_BYTES - self.read).min(bytes.len());
            self.head[self.read..self.read + wanted].copy_from_slice(&bytes[..wanted]);
            self.read += wanted;
            bytes = &bytes[wanted..];
            if self.read == FRAME_HEAD_BYTES {
                self.read = 0;
                let [a, b, c, kind, ..] = self.head;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if carries_no_request(kind, self.skip) && !self.count_one() {
                    return false;
                }
            }
        }
        true
    }

    fn count_one(&mut self) -> bool {
        if self.began.elapsed() > HTTP2_CONTROL_WINDOW {
            (self.began, self.count) = (Instant::now(), 0);
        }
        self.count += 1;
        self.count <= HTTP2_CONTROL_FRAMES_MAX
    }
}

/// DATA, HEADERS, CONTINUATION and WINDOW_UPDATE carry requests. All other frames do not, nor do empty ones.
fn carries_no_request(kind: u8, payload_bytes: usize) -> bool {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const WINDOW_UPDATE: u8 = 8;
    const CONTINUATION: u8 = 9;
    match kind {
        DATA | CONTINUATION => payload_bytes == 0,
        HEADERS | WINDOW_UPDATE => false,
        _ => true,
    }
}

impl ReadFilter for FrameCounter {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(inner).poll_read(cx, buf))?;
        if self.frames.take(&buf.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        self.cut.inc();
        Poll::Ready(Err(io::Error::other("the peer sends too many frames that carry no request")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let [.., a, b, c] = u32::try_from(payload).unwrap().to_be_bytes();
        [vec![a, b, c, kind, 0, 0, 0, 0, 1], vec![7; payload]].concat()
    }

    /// S06: frames are counted in whatever pieces they arrive; those that carry requests are not counted.
    #[tokio::test(start_paused = true)]
    async fn floods_are_counted_in_any_pieces() {
        let (ping, data) = (frame(6, 8), frame(0, 1_000));
        let most = HTTP2_CONTROL_FRAMES_MAX as usize;
        for piece in [1, 7, 17, 4_096] {
            let mut frames = Frames::new();
            let feed =
                |frames: &mut Frames, bytes: &[u8]| bytes.chunks(piece).all(|piece| frames.take(piece));
            assert!(feed(&mut frames, &[0; PREFACE_BYTES]));
            assert!(feed(&mut frames, &data.repeat(50)), "data carries requests");
            assert!(feed(&mut frames, &ping.repeat(most)));
            assert!(feed(&mut frames, &data.repeat(50)));
            assert!(!feed(&mut frames, &ping), "{piece}");
            tokio::time::advance(HTTP2_CONTROL_WINDOW * 2).await;
            assert!(feed(&mut Frames { skip: 0, ..frames }, &ping), "a new window begins");
        }
        for (kind, payload) in [(4, 6), (3, 4), (2, 5), (0, 0), (9, 0), (200, 3)] {
            let mut frames = Frames { skip: 0, ..Frames::new() };
            assert!(frames.take(&frame(kind, payload).repeat(most)));
            assert!(!frames.take(&frame(kind, payload)), "{kind}");
        }
    }
}
