//! Deliveries to streams: the loop that appends events of routes to streams, in order.
//!
//! Exactly once needs no state here. The database numbers the events of a route for a stream, the
//! append carries the number as the epoch of an idempotent producer, and the stream refuses a
//! number that it has already (docs/decisions/0007).

mod local;
mod remote;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use towpath_db::event::{StreamDelivery, StreamFailure, StreamOutcome, UnendedStream};
use towpath_db::job::LeaseOwner;
use towpath_db::retry::Retry;
use towpath_db::{Database, Error};
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;

pub use local::Local;
pub use remote::Remote;

use crate::numbers::Numbers;
use crate::set_aside::set_aside;
use crate::wake::Wake;
use crate::{fail_point, limits};

/// Where the streams are.
pub trait Streams: Send + Sync + 'static {
    /// Appends one JSON text, and creates the stream if there is none.
    fn append(&self, append: EventAppend) -> Appending<'_>;
}

/// The result of an append, in the future.
pub type Appending<'a> = Pin<Box<dyn Future<Output = Result<(), Refused>> + Send + 'a>>;

/// An event to append to a stream.
#[derive(Debug, Clone)]
pub struct EventAppend {
    /// The stream.
    pub name: StreamName,
    /// The producer and its request.
    pub producer: Producer,
    /// The event as JSON.
    pub body: String,
}

/// Why an append was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The stream has a higher number already.
    Seen {
        /// That number.
        newest: u64,
    },
    /// It will never be accepted.
    Never(String),
    /// Try again later.
    Later(String),
}

pub(crate) struct StreamSender<'a> {
    pub(crate) database: &'a Database,
    pub(crate) wake: &'a Wake,
    pub(crate) owner: &'a LeaseOwner,
    pub(crate) streams: Arc<dyn Streams>,
    pub(crate) numbers: &'a Numbers,
}

impl StreamSender<'_> {
    pub(crate) async fn run(&self, shutdown: &CancellationToken) {
        let mut retry = Retry::of("delivering to streams");
        let mut woken = self.wake.watch_streams();
        while !shutdown.is_cancelled() {
            woken.mark_unchanged();
            let wait = match self.round().await {
                Ok(None) => {
                    retry.succeeded();
                    continue;
                }
                Ok(Some(wait)) => {
                    retry.succeeded();
                    wait
                }
                Err(error) => retry.failed(&error),
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = woken.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Claims once and appends all of it; answers how long to sleep, `None` for not at all.
    async fn round(&self) -> Result<Option<Duration>, Error> {
        let claimed =
            self.database.stream_delivery_claim(self.owner, limits::STREAMS, limits::STREAM_LEASE).await?;
        let found = !claimed.streams.is_empty();
        join_all(claimed.streams.into_iter().map(|delivery| self.deliver(delivery))).await;
        let due_in = claimed.next_at.map_or(limits::DELIVERY_POLL_MAX, |due| {
            Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO)
        });
        let wait = due_in.clamp(limits::DELIVERY_POLL_MIN, limits::DELIVERY_POLL_MAX);
        Ok((!found).then_some(wait))
    }

    async fn deliver(&self, mut delivery: StreamDelivery) {
        fail_point::hit("stream.before_append");
        let outcome = self.append_all(&delivery).await;
        fail_point::hit("stream.after_append");
        if let Some(failure) = &outcome.failure {
            tracing::warn!(
                route = delivery.route_name,
                stream = delivery.stream,
                "stream append failed: {}",
                failure.error
            );
        }
        let mut retry = Retry::of("recording the outcome of appends");
        let began = Instant::now();
        loop {
            let Err(UnendedStream { error, delivery: again }) = delivery.end(self.database, &outcome).await
            else {
                return;
            };
            match error {
                Error::LeaseLost(_) => return,
                // The other streams wait for this one.
                error if !error.is_passing() => {
                    let item = again.route_stream_no().to_string();
                    return set_aside(self.database, "stream_delivery", &item, &error).await;
                }
                _ if began.elapsed() > limits::STREAM_LEASE => return,
                error => tokio::time::sleep(retry.failed(&error)).await,
            }
            delivery = again;
        }
    }

    /// Appends in order until something fails or time is up.
    async fn append_all(&self, delivery: &StreamDelivery) -> StreamOutcome {
        let began = Instant::now();
        let mut outcome = StreamOutcome::default();
        for event in &delivery.events {
            if began.elapsed() > limits::STREAM_BATCH_MAX {
                break;
            }
            let number = u64::try_from(event.number).unwrap_or_default();
            let append = append(delivery, number, &event.body);
            let appended = match append {
                Ok(append) => self.streams.append(append).await,
                Err(words) => Err(Refused::Never(words)),
            };
            match appended {
                Ok(()) => self.numbers.appended("appended"),
                Err(Refused::Seen { newest }) if newest <= delivery.last_number.unsigned_abs() => {}
                Err(refused) => {
                    self.numbers.appended("failed");
                    outcome.failure = Some(failure(refused, delivery.last_number));
                    break;
                }
            }
            outcome.appended = Some(event.number);
            fail_point::hit("stream.between");
        }
        outcome
    }
}

fn append(delivery: &StreamDelivery, number: u64, body: &str) -> Result<EventAppend, String> {
    let name = StreamName::new(&delivery.project, &delivery.stream)
        .ok_or_else(|| format!("{}/{} is not a valid stream name", delivery.project, delivery.stream))?;
    let producer = Producer::new(&format!("route:{}", delivery.producer), number, 0)
        .map_err(|invalid| format!("invalid number {number}: {invalid:?}"))?;
    Ok(EventAppend { name, producer, body: body.to_owned() })
}

fn failure(refused: Refused, last_number: i64) -> StreamFailure {
    let (error, permanent, restored) = match refused {
        Refused::Never(words) => (words, true, false),
        Refused::Later(words) => (words, false, false),
        Refused::Seen { newest } => (
            format!(
                "the stream has number {newest}, but the database only {last_number}: the database was restored from an older backup"
            ),
            false,
            true,
        ),
    };
    StreamFailure { error, permanent, restored }
}
