//! Deliveries to streams: one lease per stream, in order (E08).

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::job::{LeaseOwner, whole_seconds};
use crate::{Database, Error};

/// A stream with waiting events, and proof of owning its lease.
///
/// Only a claim creates one, and finishing consumes it. Not `Clone` for that reason.
#[derive(Debug)]
pub struct StreamDelivery {
    route_stream_no: i32,
    attempt: i32,
    owner: LeaseOwner,
    /// The route that made it.
    pub route_name: String,
    /// The stream's project.
    pub project: String,
    /// The stream's id.
    pub stream: String,
    /// The producer id for appends.
    pub producer: Uuid,
    /// The highest assigned number; a stream with a higher one survived a restore of the database.
    pub last_number: i64,
    /// What to append, in this order.
    pub events: Vec<StreamEvent>,
}

/// One event for a stream.
#[derive(Debug, Clone, Deserialize)]
pub struct StreamEvent {
    /// Its number among the route's deliveries to this stream, from 1.
    pub number: i64,
    /// JSON, identical bytes for every attempt.
    pub body: String,
}

/// The result of a claim.
#[derive(Debug)]
pub struct ClaimedStreams {
    /// The claimed streams.
    pub streams: Vec<StreamDelivery>,
    /// When the next one becomes due.
    pub next_at: Option<Timestamp>,
}

/// The progress of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamOutcome {
    /// The highest number in the stream.
    pub appended: Option<i64>,
    /// Why the next one failed.
    pub failure: Option<StreamFailure>,
}

/// Why an event could not be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFailure {
    /// The error message.
    pub error: String,
    /// Whether a retry cannot succeed.
    pub permanent: bool,
    /// Whether the stream has numbers that the database lost.
    pub restored: bool,
}

/// A lease whose outcome could not be recorded; retry it.
#[derive(Debug)]
pub struct UnendedStream {
    /// What went wrong.
    pub error: Error,
    /// The lease.
    pub delivery: StreamDelivery,
}

#[derive(Deserialize)]
struct Answer {
    streams: Vec<Row>,
    next_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Row {
    route_stream_no: i32,
    attempt: i32,
    route_name: String,
    project: String,
    stream: String,
    producer: Uuid,
    last_number: i64,
    events: Vec<StreamEvent>,
}

impl Database {
    /// Claims up to `limit` streams with waiting events.
    pub async fn stream_delivery_claim(
        &self,
        owner: &LeaseOwner,
        limit: i32,
        lease: Duration,
    ) -> Result<ClaimedStreams, Error> {
        let sql = "select towpath.fn_stream_delivery_claim($1, $2, $3)";
        let answer: Answer = read(self.call(sql, &[&owner.as_str(), &limit, &whole_seconds(lease)]).await?)?;
        let with_lease = |row: Row| StreamDelivery {
            route_stream_no: row.route_stream_no,
            attempt: row.attempt,
            owner: owner.clone(),
            route_name: row.route_name,
            project: row.project,
            stream: row.stream,
            producer: row.producer,
            last_number: row.last_number,
            events: row.events,
        };
        Ok(ClaimedStreams {
            streams: answer.streams.into_iter().map(with_lease).collect(),
            next_at: answer.next_at,
        })
    }
}

impl StreamDelivery {
    /// The database's number of the route's stream.
    pub fn route_stream_no(&self) -> i32 {
        self.route_stream_no
    }

    /// Finishes the lease and records the progress.
    pub async fn end(self, database: &Database, outcome: &StreamOutcome) -> Result<(), UnendedStream> {
        let sql = "select towpath.fn_stream_delivery_end($1, $2, $3, $4, $5, $6, $7)";
        let failure = outcome.failure.as_ref();
        let error = failure.map(|failure| &failure.error);
        let permanent = failure.is_some_and(|failure| failure.permanent);
        let restored = failure.is_some_and(|failure| failure.restored);
        let answered = database
            .call(
                sql,
                &[
                    &self.route_stream_no,
                    &self.owner.as_str(),
                    &self.attempt,
                    &outcome.appended,
                    &error,
                    &permanent,
                    &restored,
                ],
            )
            .await;
        match answered.and_then(|answer| read_field::<i64>(answer, "appended")) {
            Ok(_) => Ok(()),
            Err(error) => Err(UnendedStream { error, delivery: self }),
        }
    }
}
