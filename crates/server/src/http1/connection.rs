//! One connection: bytes in, bytes out, and how long to wait for either.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CONNECTION, HeaderValue};
use prometheus_client::metrics::counter::Counter;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::HandedOver;
use super::answer::{Framing, put_append, put_head};
use crate::body::Body;
use crate::limits::{
    AHEAD_BYTES_MAX, BODY_WAIT_MAX, IDLE_WAIT_MAX, OUTPUT_BYTES_KEPT, READ_BYTES, WRITE_WAIT_MAX,
};
use crate::stop::Stop;
use crate::stream::{Done, Streams};

/// The connection is over: the client left, was silent for too long, or the server stops.
pub(super) struct Gone;

/// Why a body is not there.
pub(super) enum Unread {
    Late,
    Gone,
}

pub(super) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
    stop: Stop,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Rings when the connection may have rested for too long. It is moved on when it rings,
    /// not with every request: arming a timer costs more than asking the clock.
    alarm: Pin<Box<Sleep>>,
    rests_since: Instant,
    /// Whether `stopped` and `alarm` know whom to wake.
    armed: bool,
    /// Peers that do not read, all together.
    given_up: Counter,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, stop: Stop, given_up: Counter) -> Connection {
        let now = Instant::now();
        Connection {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
            stopped: Box::pin(stop.set()),
            stop,
            alarm: Box::pin(sleep_until(now + IDLE_WAIT_MAX)),
            rests_since: now,
            armed: false,
            given_up,
        }
    }

    /// What was read and not yet taken.
    pub(super) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Drops bytes that were understood.
    pub(super) fn take(&mut self, bytes: usize) {
        self.input.advance(bytes);
    }

    pub(super) fn hand_over(self) -> HandedOver {
        HandedOver { stream: self.stream, read: self.input.freeze() }
    }

    /// Waits for bytes of a request.
    pub(super) async fn read(&mut self) -> Result<(), Gone> {
        let Connection { stream, input, stop, stopped, alarm, rests_since, armed, .. } = self;
        input.reserve(READ_BYTES);
        if input.is_empty() {
            *rests_since = Instant::now();
        }
        let mut is_first = true;
        poll_fn(|cx| {
            if let Poll::Ready(read) = pin!(stream.read_buf(input)).poll(cx) {
                return Poll::Ready(if matches!(read, Ok(1..)) { Ok(()) } else { Err(Gone) });
            }
            // Whoever wakes this task without bytes is the alarm or the stop. The first look
            // cannot have been woken by them, unless they rang while it was busy.
            let rang = alarm.is_elapsed() || stop.is_set();
            if *armed && is_first && !rang {
                is_first = false;
                return Poll::Pending;
            }
            *armed = true;
            if stop.is_set() || stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            while alarm.as_mut().poll(cx).is_ready() {
                let until = *rests_since + IDLE_WAIT_MAX;
                if Instant::now() >= until {
                    return Poll::Ready(Err(Gone));
                }
                alarm.as_mut().reset(until);
            }
            is_first = false;
            Poll::Pending
        })
        .await
    }

    /// Waits until `bytes` have been read in all.
    pub(super) async fn read_body(&mut self, bytes: usize) -> Result<(), Unread> {
        self.input.reserve(bytes.saturating_sub(self.input.len()));
        let read = async {
            while self.input.len() < bytes {
                if !matches!(self.stream.read_buf(&mut self.input).await, Ok(1..)) {
                    return Err(Unread::Gone);
                }
            }
            Ok(())
        };
        timeout(BODY_WAIT_MAX, read).await.unwrap_or(Err(Unread::Late))
    }

    /// Says that the body did not come, and ends.
    pub(super) async fn answer_late(&mut self, streams: &Streams) -> Result<(), Gone> {
        let mut response = streams.slow_body();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        self.send_response(response, false).await?;
        Err(Gone)
    }

    /// Answers an append.
    pub(super) async fn answer_append(&mut self, done: Result<Done, Response<Body>>) -> Result<(), Gone> {
        match done {
            Ok(done) => {
                self.output.clear();
                put_append(&mut self.output, &done);
                self.send(&[]).await
            }
            Err(response) => self.send_response(response, false).await,
        }
    }

    /// Answers with what `work` comes to, unless the client leaves before.
    pub(super) async fn answer(
        &mut self,
        is_head: bool,
        work: impl Future<Output = Response<Body>>,
    ) -> Result<(), Gone> {
        let response = self.while_here(work).await?;
        self.send_response(response, is_head).await
    }

    async fn send_response(&mut self, response: Response<Body>, is_head: bool) -> Result<(), Gone> {
        self.output.clear();
        let framing = put_head(&mut self.output, &response, is_head);
        let mut body = response.into_body();
        match framing {
            Framing::Nothing => self.send(&[]).await,
            Framing::Chunks => self.send_chunks(body).await,
            Framing::Length => {
                let mut pieces: Vec<Bytes> = Vec::new();
                while let Some(frame) = body.frame().await {
                    pieces.extend(frame.ok().and_then(|frame| frame.into_data().ok()));
                }
                let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                self.send(&pieces).await
            }
        }
    }

    /// Sends pieces as they come. A follower may wait for hours: it keeps no buffers.
    async fn send_chunks(&mut self, mut body: Body) -> Result<(), Gone> {
        loop {
            let frame = self.while_here(body.frame()).await?;
            let Some(frame) = frame else { break };
            let Ok(Ok(data)) = frame.map(hyper::body::Frame::into_data) else { return Err(Gone) };
            let (digits, first) = hex(data.len());
            self.send(&[&digits[first..], b"\r\n", &data, b"\r\n"]).await?;
            if self.output.capacity() > 0 {
                (self.output, self.input) = (Vec::new(), BytesMut::new());
            }
        }
        self.send(&[b"0\r\n\r\n"]).await
    }

    /// Waits for `work`, and notices when nobody waits for its result any more. What the
    /// client sends meanwhile is kept, up to a bound.
    async fn while_here<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        let Connection { stream, input, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            while input.len() < AHEAD_BYTES_MAX && stream.poll_read_ready(cx).is_ready() {
                input.reserve(READ_BYTES);
                match pin!(stream.read_buf(input)).poll(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(Gone)),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends what is in `output`, then `pieces`, in one system call if the socket takes it.
    async fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Gone> {
        let Connection { stream, output, given_up, .. } = self;
        let mut slices = [IoSlice::new(&[]); 8];
        let all = std::iter::once(&output[..]).chain(pieces.iter().copied()).filter(|it| !it.is_empty());
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(all) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        let mut left = &mut slices[..count];
        loop {
            match stream.try_write_vectored(left) {
                Ok(0) => return Err(Gone),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A peer that takes no byte for so long has gone, and holds memory.
                    match timeout(WRITE_WAIT_MAX, stream.writable()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Err(Gone),
                        Err(_) => {
                            given_up.inc();
                            return Err(Gone);
                        }
                    }
                }
                Err(_) => return Err(Gone),
            }
            if left.is_empty() {
                break;
            }
        }
        output.clear();
        output.shrink_to(OUTPUT_BYTES_KEPT);
        Ok(())
    }
}

/// A number in hexadecimal digits, and where they begin.
fn hex(mut number: usize) -> ([u8; 16], usize) {
    let (mut digits, mut first) = ([b'0'; 16], 15);
    loop {
        digits[first] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 || first == 0 {
            return (digits, first);
        }
        first -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_chunks_are_hexadecimal() {
        for number in [0, 1, 9, 15, 16, 255, 4096, 1_048_577, usize::MAX] {
            let (digits, first) = hex(number);
            assert_eq!(std::str::from_utf8(&digits[first..]).unwrap(), format!("{number:x}"));
        }
    }
}
