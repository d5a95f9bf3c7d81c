//! Live reads: server-sent events, and the limit on concurrent live readers.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use towpath_model::stream::content_type::Mode;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::sse::{self, Control, Form, State};
use towpath_streams::{Batch, Follower, Step, StreamId};

use super::read::{End, next_cursor, nothing_new, refuse_beyond};
use super::refusal::Refusal;
use super::{Answer, Streams, headers, with_body};
use crate::body::{Body, Chunk};
use crate::budget::Share;
use crate::limits;
use crate::project::Pass;
use crate::stop::Stop;
use crate::unsent::{Source, Unsent};

/// What a `live=sse` request asks for.
pub(super) struct Follow {
    pub(super) start: Start,
    pub(super) cursor: Option<String>,
    /// `Last-Event-ID`: a browser's `EventSource` reconnects, with the URL it began with.
    pub(super) last_id: Option<Offset>,
    pub(super) form: Form,
}

impl Streams {
    /// `live=sse`: events until the stream ends, the client disconnects, or the connection's lifetime is over.
    pub(super) fn events(&self, (name, share): (StreamName, Share), pass: Pass, follow: Follow) -> Answer {
        let Follow { start, cursor, last_id, form } = follow;
        let start = last_id.map_or(start, Start::At);
        let reader = self.0.readers.enter(&name.project)?;
        let head = self.store().head(&name)?;
        refuse_beyond(start, head.tail)?;
        let follower = self.store().follow(&name, start)?;
        if last_id.is_some() && follower.is_closed() && follower.offset() == follower.tail() {
            // The one answer after which an EventSource does not reconnect.
            return Ok(nothing_new(follower.offset(), End::Closed));
        }
        let mode = head.content_type.mode();
        let heartbeat_every = match head.expiry {
            // An open reader keeps renewing a sliding expiry.
            Expiry::Sliding { seconds } => {
                Duration::from_millis(seconds * 500).max(Duration::from_millis(500))
            }
            Expiry::Never | Expiry::At(_) => limits::HEARTBEAT_EVERY,
        };
        let mut events = Events {
            streams: self.clone(),
            name,
            id: head.id,
            share,
            last: Event {
                form,
                mode,
                from: follower.offset(),
                to: follower.offset(),
                state: State::Closed,
                bytes: 0,
            },
            follower,
            cursor: next_cursor(cursor.as_deref()),
            heartbeat_every: heartbeat_every.min(limits::HEARTBEAT_EVERY),
            alarm: Box::pin(tokio::time::sleep_until(Instant::now())),
            ends_at: Instant::now() + self.settings().sse_lifetime,
            stop: self.0.stop.clone(),
            stopped: Box::pin(self.0.stop.set()),
            armed: false,
            ended: match pass {
                Pass::Open => None,
                pass => Some(Box::pin(pass.ended())),
            },
            stage: if form == Form::Messages { Stage::Greet } else { Stage::Start },
            _reader: (reader, Following::new(self.0.metrics.http().sse_clients.clone())),
        };
        events.set_alarm();
        let mut response = with_body(StatusCode::OK, Body::Events(Box::new(events), None));
        let out = response.headers_mut();
        out.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        out.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if mode == Mode::Bytes {
            out.insert(headers::SSE_DATA_ENCODING, HeaderValue::from_static("base64"));
        }
        Ok(response)
    }
}

/// One connection that follows a stream.
pub(crate) struct Events {
    streams: Streams,
    name: StreamName,
    id: StreamId,
    /// The memory budget that pays for unsent events.
    share: Share,
    /// The last data event.
    last: Event,
    follower: Follower,
    /// The lowest cursor to send: greater than the one the client sent.
    cursor: u64,
    heartbeat_every: Duration,
    /// Set once for many messages: setting a timer costs more than sending a message.
    alarm: Pin<Box<Sleep>>,
    ends_at: Instant,
    stop: Stop,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whether `alarm` and `stopped` have this task's waker.
    armed: bool,
    /// The end of the reader's token, if it needed one.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    stage: Stage,
    _reader: (Reader, Following),
}

/// What is sent next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// How soon an `EventSource` reconnects; browsers wait for three seconds or more by themselves.
    Greet,
    /// A first control event, if there is no data to send.
    Start,
    /// New data.
    Follow,
    /// Nothing.
    Done,
}

impl Events {
    /// The next event, or a data event with its control event.
    pub(crate) fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        match std::mem::replace(&mut self.stage, Stage::Follow) {
            Stage::Greet => {
                self.stage = Stage::Start;
                return Poll::Ready(Some(Chunk::write(16, |out| out.extend_from_slice(b"retry:500\n\n"))));
            }
            Stage::Start if self.follower.offset() == self.follower.tail() && !self.follower.is_closed() => {
                return Poll::Ready(Some(self.up_to_date()));
            }
            Stage::Start | Stage::Follow => {}
            Stage::Done => return Poll::Ready(None),
        }
        let Poll::Ready(step) = self.follower.poll_next(cx) else { return self.poll_quiet(cx) };
        Poll::Ready(match step {
            Ok(Step::Data { batch, up_to_date, closed }) => {
                if closed {
                    self.stage = Stage::Done;
                }
                Some(self.events_of(&batch, up_to_date, closed))
            }
            Ok(Step::Closed) => {
                self.stage = Stage::Done;
                Some(self.control(State::Closed))
            }
            Ok(Step::Gone) => None,
            Err(error) => {
                tracing::warn!(%error, stream = %self.name, "a live reader was disconnected and must reconnect");
                None
            }
        })
    }

    /// No data: sends a control event or ends when it is time. The alarm and the stop get the waker
    /// once and are only checked after that, so that a message to thousands of followers does not set
    /// thousands of timers.
    fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        if self.stop.is_set() || (!self.armed && self.stopped.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        if self.armed && !self.alarm.is_elapsed() {
            return Poll::Pending;
        }
        self.armed = true;
        if self.alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if Instant::now() >= self.ends_at || self.streams.store().touch(&self.name).is_err() {
            return Poll::Ready(None);
        }
        self.set_alarm();
        Poll::Ready(Some(self.up_to_date()))
    }

    /// The unsent `rest` of the last event, in this form.
    pub(crate) fn unsent(&self, rest: &Bytes, form: fn(Chunk) -> Bytes) -> Unsent {
        let Events { streams, name, id, share, .. } = self;
        let source =
            Source { store: streams.0.store.clone(), name: name.clone(), id: *id, share: share.clone() };
        Unsent::event(source, self.last, form, rest)
    }

    /// The data event of a batch and the control event that must follow it. They are rendered once
    /// for all followers that keep up.
    fn events_of(&mut self, batch: &Batch, up_to_date: bool, closed: bool) -> Chunk {
        let state = match (closed, up_to_date) {
            (true, _) => State::Closed,
            (false, true) => State::UpToDate { cursor: self.cursor() },
            (false, false) => State::Behind { cursor: self.cursor() },
        };
        self.last = Event { from: batch.start(), to: batch.end(), state, bytes: 0, ..self.last };
        if up_to_date && !closed && self.last.form == Form::Batches {
            let last = &mut self.last;
            let (cursor, events) = batch.rendered(|batch| {
                let cursor = next_cursor(None);
                let event = Event { state: State::UpToDate { cursor }, ..*last };
                (cursor, event.render(batch.data()).into_wire())
            });
            if cursor >= self.cursor {
                self.last.state = State::UpToDate { cursor };
                return Chunk::from_wire(events);
            }
        }
        let chunk = self.last.render(batch.data());
        self.last.bytes = chunk.len();
        chunk
    }

    fn set_alarm(&mut self) {
        let next = (Instant::now() + self.heartbeat_every).min(self.ends_at);
        self.alarm.as_mut().reset(next);
        self.armed = false;
    }

    fn up_to_date(&self) -> Chunk {
        self.control(State::UpToDate { cursor: self.cursor() })
    }

    fn cursor(&self) -> u64 {
        self.cursor.max(next_cursor(None))
    }

    fn control(&self, state: State) -> Chunk {
        let control = Control { next: self.follower.offset(), state, alone: true };
        Chunk::write(200, |out| sse::write_control(out, control))
    }
}

/// A data event and the control event behind it: all that is needed to render them again from stored bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    form: Form,
    mode: Mode,
    /// The stored bytes it carries.
    pub(crate) from: Offset,
    to: Offset,
    state: State,
    /// Its length, if it was rendered by itself.
    bytes: usize,
}

impl Event {
    /// How many stored bytes it carries.
    pub(crate) fn data_bytes(&self) -> usize {
        (self.to.bytes() - self.from.bytes()) as usize
    }

    /// Its approximate length: base64 makes four bytes of three. Short messages grow more, by their ids.
    pub(crate) fn bytes_guess(&self) -> usize {
        self.bytes.max(self.data_bytes() * 4 / 3 + 240)
    }

    pub(crate) fn render(&self, data: &[u8]) -> Chunk {
        Chunk::write(self.bytes_guess(), |out| {
            sse::write_data(out, self.form, self.mode, self.from, &[data]);
            sse::write_control(out, Control { next: self.to, state: self.state, alone: false });
        })
    }
}

/// Counts live readers by project.
pub(super) struct Readers {
    max: usize,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One live reader, counted until it is dropped.
pub(super) struct Reader {
    project: Arc<str>,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One SSE reader, counted until it is dropped.
struct Following(Gauge);

impl Following {
    fn new(gauge: Gauge) -> Following {
        gauge.inc();
        Following(gauge)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Readers {
    pub(super) fn new(max: usize) -> Readers {
        Readers { max, counts: Arc::default() }
    }

    pub(super) fn enter(&self, project: &Arc<str>) -> Result<Reader, Refusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(project.clone()).or_default();
        if *count >= self.max {
            return Err(Refusal::too_many("live readers", self.max));
        }
        *count += 1;
        Ok(Reader { project: project.clone(), counts: self.counts.clone() })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.project) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.project);
            }
        }
    }
}
