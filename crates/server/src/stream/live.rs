//! Live reading: server-sent events, and how many may read live at once.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use towpath_model::stream::content_type::Mode;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_model::stream::sse::{self, Control, State};
use towpath_streams::{Batch, Follower, Step};

use super::read::{next_cursor, refuse_beyond};
use super::refusal::Refusal;
use super::{Answer, Streams, headers, with_body};
use crate::body::Body;
use crate::limits;
use crate::project::Pass;

impl Streams {
    /// `live=sse`: events until the stream ends, the client leaves, or its time is up.
    pub(super) fn events(
        &self,
        name: StreamName,
        pass: Pass,
        start: Start,
        sent_cursor: Option<&str>,
    ) -> Answer {
        let reader = self.0.readers.enter(&name.project)?;
        let head = self.store().head(&name)?;
        refuse_beyond(start, head.tail)?;
        let follower = self.store().follow(&name, start)?;
        let mode = head.content_type.mode();
        let beat = match head.expiry {
            // A reader that stays keeps a short life alive.
            Expiry::Sliding { seconds } => {
                Duration::from_millis(seconds * 500).max(Duration::from_millis(500))
            }
            Expiry::Never | Expiry::At(_) => limits::HEARTBEAT_EVERY,
        };
        let mut events = Events {
            streams: self.clone(),
            name,
            follower,
            mode,
            cursor: next_cursor(sent_cursor),
            beat: beat.min(limits::HEARTBEAT_EVERY),
            alarm: Box::pin(tokio::time::sleep_until(Instant::now())),
            ends_at: Instant::now() + self.settings().sse_lifetime,
            shutdown: Box::pin(self.0.shutdown.clone().cancelled_owned()),
            ended: match pass {
                Pass::Open => None,
                pass => Some(Box::pin(pass.ended())),
            },
            stage: Stage::Start,
            _reader: reader,
        };
        events.set_alarm();
        let body = Body::Events(Box::pin(futures_util::stream::unfold(events, Events::next)));
        let mut response = with_body(StatusCode::OK, body);
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
struct Events {
    streams: Streams,
    name: StreamName,
    follower: Follower,
    mode: Mode,
    /// At least this cursor: beyond whatever the client sent.
    cursor: u64,
    beat: Duration,
    /// Set once for many messages: arming a timer for each would cost more than sending it.
    alarm: Pin<Box<Sleep>>,
    ends_at: Instant,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The end of the reader's token, if it needed one.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    stage: Stage,
    _reader: Reader,
}

/// What is sent next.
enum Stage {
    /// A first sign of life, if there is nothing else to send.
    Start,
    /// Whatever comes.
    Follow,
    /// The control event that belongs to the data just sent.
    Control(Bytes),
    /// The control event after which nothing follows.
    Last(Bytes),
    Done,
}

impl Events {
    async fn next(mut self) -> Option<(Bytes, Events)> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Follow) {
                Stage::Start
                    if self.follower.offset() == self.follower.tail() && !self.follower.is_closed() =>
                {
                    return Some((self.up_to_date(), self));
                }
                Stage::Start | Stage::Follow => {}
                Stage::Control(control) => return Some((control, self)),
                Stage::Last(control) => {
                    self.stage = Stage::Done;
                    return Some((control, self));
                }
                Stage::Done => return None,
            }
            let step = tokio::select! {
                biased;
                () = over(&mut self.ended) => return None,
                step = self.follower.next() => step,
                () = self.alarm.as_mut() => {
                    if Instant::now() >= self.ends_at || self.streams.store().touch(&self.name).is_err() {
                        return None;
                    }
                    self.set_alarm();
                    return Some((self.up_to_date(), self));
                }
                () = self.shutdown.as_mut() => return None,
            };
            match step {
                Ok(Step::Data { batch, up_to_date, closed }) => {
                    self.stage = match (closed, up_to_date) {
                        (true, _) => Stage::Last(self.control(State::Closed)),
                        (false, true) => Stage::Control(self.up_to_date()),
                        (false, false) => {
                            Stage::Control(self.control(State::Behind { cursor: self.cursor() }))
                        }
                    };
                    let mode = self.mode;
                    return Some((batch.rendered(|batch| frame(mode, batch)), self));
                }
                Ok(Step::Closed) => self.stage = Stage::Last(self.control(State::Closed)),
                Ok(Step::Gone) => return None,
                Err(error) => {
                    tracing::warn!(%error, stream = %self.name, "a live reader must come back");
                    return None;
                }
            }
        }
    }

    fn set_alarm(&mut self) {
        let next = (Instant::now() + self.beat).min(self.ends_at);
        self.alarm.as_mut().reset(next);
    }

    fn up_to_date(&self) -> Bytes {
        self.control(State::UpToDate { cursor: self.cursor() })
    }

    fn cursor(&self) -> u64 {
        self.cursor.max(next_cursor(None))
    }

    fn control(&self, state: State) -> Bytes {
        let mut out = Vec::with_capacity(160);
        sse::write_control(&mut out, Control { next: self.follower.offset(), state });
        out.into()
    }
}

async fn over(ended: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match ended {
        Some(ended) => ended.as_mut().await,
        None => std::future::pending().await,
    }
}

/// The data event of a batch, made once for everybody who follows.
fn frame(mode: Mode, batch: &Batch) -> Bytes {
    let mut out = Vec::with_capacity(batch.data().len() * 4 / 3 + 32);
    sse::write_data(&mut out, mode, &[batch.data()]);
    out.into()
}

/// How many read live, by project.
pub(super) struct Readers {
    max: usize,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One live reader, counted until it is dropped.
pub(super) struct Reader {
    project: Arc<str>,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
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
