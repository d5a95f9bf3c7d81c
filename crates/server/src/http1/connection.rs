//! One connection: reads, writes, and their time limits.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CONNECTION, HeaderValue};
use prometheus_client::metrics::counter::Counter;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::HandedOver;
use super::answer::{Framing, put_append, put_head};
use crate::body::{Body, Chunk};
use crate::limits::{
    AHEAD_BYTES_MAX, BODY_WAIT_MAX, IDLE_WAIT_MAX, OUTPUT_BYTES_KEPT, READ_BYTES, READER_PAUSE_MAX,
    WRITE_WAIT_MAX,
};
use crate::stop::Stop;
use crate::stream::{AppendReply, Events, Streams};
use crate::unsent::Unsent;

/// The connection has ended: the client closed it, a time limit fired, or the server stops.
pub(crate) struct Gone;

/// Why a body was not read.
pub(super) enum Unread {
    Late,
    Gone,
}

/// The socket and its buffers.
struct Wire {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
    /// Peers that were disconnected because they did not read.
    given_up: Counter,
}

pub(crate) struct Connection {
    wire: Wire,
    stop: Stop,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the connection may have been idle for too long. It is set again when it fires,
    /// not with every request: setting a timer costs more than reading the clock.
    alarm: Pin<Box<Sleep>>,
    idle_since: Instant,
    /// Whether `stopped` and `alarm` have this task's waker.
    armed: bool,
}

/// A connection that follows a stream. There may be thousands, for hours, so it is kept small.
pub(crate) struct Following {
    wire: Wire,
    events: Box<Events>,
    /// What the socket did not take of the last piece.
    rest: Bytes,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, stop: Stop, given_up: Counter) -> Connection {
        Connection::on(Wire { stream, input: BytesMut::new(), output: Vec::new(), given_up }, stop)
    }

    fn on(wire: Wire, stop: Stop) -> Connection {
        let now = Instant::now();
        Connection {
            wire,
            stopped: Box::pin(stop.set()),
            stop,
            alarm: Box::pin(sleep_until(now + IDLE_WAIT_MAX)),
            idle_since: now,
            armed: false,
        }
    }

    /// Bytes that were read and not parsed yet.
    pub(super) fn input(&self) -> &[u8] {
        &self.wire.input
    }

    /// Drops bytes that were parsed.
    pub(super) fn take(&mut self, bytes: usize) {
        self.wire.input.advance(bytes);
    }

    pub(super) fn hand_over(self) -> HandedOver {
        HandedOver { stream: self.wire.stream, read: self.wire.input.freeze() }
    }

    pub(super) fn follow(self, events: Box<Events>) -> Following {
        Following { wire: self.wire, events, rest: Bytes::new() }
    }

    /// Waits for bytes of a request.
    pub(super) async fn read(&mut self) -> Result<(), Gone> {
        let Connection { wire: Wire { stream, input, .. }, stop, stopped, alarm, idle_since, armed } = self;
        input.reserve(READ_BYTES);
        if input.is_empty() {
            *idle_since = Instant::now();
        }
        let mut is_first = true;
        poll_fn(|cx| {
            if let Poll::Ready(read) = pin!(stream.read_buf(input)).poll(cx) {
                return Poll::Ready(if matches!(read, Ok(1..)) { Ok(()) } else { Err(Gone) });
            }
            // A wake-up without bytes comes from the alarm or the stop. The first poll is not one,
            // unless they fired while the connection was busy.
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
                let until = *idle_since + IDLE_WAIT_MAX;
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
        let Wire { stream, input, .. } = &mut self.wire;
        input.reserve(bytes.saturating_sub(input.len()));
        let read = async {
            while input.len() < bytes {
                if !matches!(stream.read_buf(input).await, Ok(1..)) {
                    return Err(Unread::Gone);
                }
            }
            Ok(())
        };
        timeout(BODY_WAIT_MAX, read).await.unwrap_or(Err(Unread::Late))
    }

    /// Answers that the body did not arrive in time, and ends.
    pub(super) async fn answer_late(&mut self, streams: &Streams) -> Result<(), Gone> {
        let mut response = streams.slow_body();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        self.send_response(response, false).await?;
        Err(Gone)
    }

    /// Answers an append.
    pub(super) async fn answer_append(
        &mut self,
        reply: Result<AppendReply, Box<Response<Body>>>,
    ) -> Result<(), Gone> {
        match reply {
            Ok(reply) => {
                self.wire.output.clear();
                put_append(&mut self.wire.output, &reply);
                self.wire.send(&[]).await
            }
            Err(response) => self.send_response(*response, false).await.map(drop),
        }
    }

    /// Sends the response of `work`, unless the client closes the connection before. Events are returned, to be
    /// followed.
    pub(super) async fn answer(
        &mut self,
        is_head: bool,
        work: impl Future<Output = Response<Body>>,
    ) -> Result<Option<Box<Events>>, Gone> {
        let mut work = pin!(work);
        let response = poll_fn(|cx| self.wire.poll_while_here(cx, |cx| work.as_mut().poll(cx))).await?;
        self.send_response(response, is_head).await
    }

    async fn send_response(
        &mut self,
        response: Response<Body>,
        is_head: bool,
    ) -> Result<Option<Box<Events>>, Gone> {
        self.wire.output.clear();
        let framing = put_head(&mut self.wire.output, &response, is_head);
        match (framing, response.into_body()) {
            (Framing::Nothing, _) => self.wire.send(&[]).await?,
            (Framing::Chunks, Body::Events(events, _)) => return Ok(Some(events)),
            // No other body of a stream's response has an unknown length.
            (Framing::Chunks, _) => return Err(Gone),
            (Framing::Length, Body::Page(page)) => Box::pin(self.wire.send_unsent(*page)).await?,
            (Framing::Length, mut body) => {
                let mut pieces: Vec<Bytes> = Vec::new();
                while let Some(frame) = body.frame().await {
                    pieces.extend(frame.ok().and_then(|frame| frame.into_data().ok()));
                }
                let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                self.wire.send(&pieces).await?;
            }
        }
        Ok(None)
    }
}

impl Following {
    /// Sends events as they come. At their end the connection is ready for the next request.
    ///
    /// The future that waits for a socket is boxed: most sockets take a message at once, and thousands of idle
    /// followers do not need its memory.
    pub(crate) async fn run(&mut self) -> Result<(), Gone> {
        while poll_fn(|cx| self.poll_pieces(cx)).await? {
            let rest = std::mem::take(&mut self.rest);
            let unsent = self.events.unsent(&rest, Chunk::into_wire);
            drop(rest);
            Box::pin(self.wire.send_unsent(unsent)).await?;
            self.wire.drop_buffers();
        }
        Box::pin(self.wire.send(&[b"0\r\n\r\n"])).await
    }

    /// Sends events until there are no more (false) or the socket takes no more (true).
    fn poll_pieces(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Gone>> {
        let Following { wire, events, rest } = self;
        loop {
            match ready!(wire.poll_while_here(cx, |cx| events.poll_events(cx)))? {
                Some(chunk) => *rest = chunk.into_wire(),
                None => return Poll::Ready(Ok(false)),
            }
            wire.send_at_once(rest)?;
            if !rest.is_empty() {
                return Poll::Ready(Ok(true));
            }
            wire.drop_buffers();
        }
    }

    pub(crate) fn into_connection(self, stop: Stop) -> Connection {
        Connection::on(self.wire, stop)
    }
}

impl Wire {
    /// Polls `work`, and notices when the client closes the connection. What the client sends
    /// meanwhile is kept, up to a limit.
    fn poll_while_here<T>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Gone>> {
        if let Poll::Ready(done) = work(cx) {
            return Poll::Ready(Ok(done));
        }
        let Wire { stream, input, .. } = self;
        while input.len() < AHEAD_BYTES_MAX && stream.poll_read_ready(cx).is_ready() {
            input.reserve(READ_BYTES);
            match pin!(stream.read_buf(input)).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Err(Gone)),
            }
        }
        Poll::Pending
    }

    /// Frees the buffers: it may be long until the next event.
    fn drop_buffers(&mut self) {
        self.output = Vec::new();
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// Sends what the socket takes of a piece without waiting, unless the head must be sent first.
    fn send_at_once(&mut self, piece: &mut Bytes) -> Result<(), Gone> {
        if !self.output.is_empty() {
            return Ok(());
        }
        match self.stream.try_write(piece) {
            Ok(0) => Err(Gone),
            Ok(written) => {
                piece.advance(written);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    /// Sends what is in `output`, then `pieces`, in one system call if the socket takes it.
    async fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Gone> {
        let Wire { stream, output, given_up, .. } = self;
        let mut slices = [IoSlice::new(&[]); 8];
        let mut left = gather(&mut slices, std::iter::once(&output[..]).chain(pieces.iter().copied()));
        loop {
            match write(stream, left) {
                Ok(0) => return Err(Gone),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match Box::pin(timeout(WRITE_WAIT_MAX, stream.writable())).await {
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

    /// Sends what is in `output`, then a page or an event, as fast as its reader takes it.
    async fn send_unsent(&mut self, mut unsent: Unsent) -> Result<(), Gone> {
        while unsent.left() > 0 || !self.output.is_empty() {
            unsent.load().await.map_err(|_| Gone)?;
            let mut slices = [IoSlice::new(&[]); 4];
            let left = gather(&mut slices, std::iter::once(&self.output[..]).chain(unsent.parts()));
            match write(&self.stream, left) {
                Ok(0) => return Err(Gone),
                Ok(written) => {
                    let head = written.min(self.output.len());
                    self.output.drain(..head);
                    unsent.advance(written - head);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_for_reader(&mut unsent).await?;
                }
                Err(_) => return Err(Gone),
            }
        }
        self.output.shrink_to(OUTPUT_BYTES_KEPT);
        Ok(())
    }

    /// Waits until the socket takes bytes again. Meanwhile the unsent bytes are dropped if other readers need the
    /// memory.
    async fn wait_for_reader(&self, unsent: &mut Unsent) -> Result<(), Gone> {
        let let_go = async {
            sleep(READER_PAUSE_MAX).await;
            unsent.let_go_when_tight().await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            writable = self.stream.writable() => writable.map_err(|_| Gone),
            () = sleep(WRITE_WAIT_MAX) => {
                self.given_up.inc();
                Err(Gone)
            }
            never = let_go => match never {},
        }
    }
}

/// The pieces that are not empty, as slices for one write.
fn gather<'a, 'p>(
    slices: &'a mut [IoSlice<'p>],
    pieces: impl Iterator<Item = &'p [u8]>,
) -> &'a mut [IoSlice<'p>] {
    let mut count = 0;
    for (slot, piece) in slices.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
        *slot = IoSlice::new(piece);
        count += 1;
    }
    &mut slices[..count]
}

/// Writes what the socket takes, with one system call.
fn write(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    match slices {
        [one] => stream.try_write(one),
        many => stream.try_write_vectored(many),
    }
}
