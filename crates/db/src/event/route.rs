//! Routes: events, target and mode (`sql/functions/route.sql`, `route_replay.sql`).

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::EventId;

use super::read::no_such_event;
use crate::answer::{read, read_field};
use crate::{Attribution, Database, Error, Parameter};

/// One route with its health.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of outbound_route; 0004_event.sql says what each holds")]
pub struct Route {
    pub route_name: String,
    pub worker_name: String,
    pub event_domain: Option<String>,
    pub event_type: Option<String>,
    pub event_stream: Option<String>,
    pub recipient_filter: Option<String>,
    pub payload_filter: Value,
    pub target_kind: String,
    pub target: Value,
    pub mode: Mode,
    pub mode_reason: String,
    pub ordering: String,
    pub retry_seconds: Vec<i32>,
    pub rate_limit_per_second: Option<f64>,
    pub notes: Option<String>,
    pub changed_by: String,
    pub changed_at: Timestamp,
    pub retired_at: Option<Timestamp>,
    /// The scheme, host and port of the webhook target.
    pub target_key: Option<String>,
    /// `closed`, `open` or `half_open`.
    pub circuit: Option<String>,
    /// Deliveries are paused until this time.
    pub blocked_until: Option<Timestamp>,
    /// Whether it has a signing key.
    pub signed: bool,
    /// Until when the previous key also signs.
    pub previous_key_until: Option<Timestamp>,
    /// Why the last delivery failed, until one succeeds.
    pub last_error: Option<String>,
    pub deliveries_waiting: i64,
    pub dead_letters_open: i64,
}

/// A route to create or change.
#[derive(Debug, Clone)]
pub struct RouteSpec<'a> {
    /// Its name, which cannot change.
    pub route_name: &'a str,
    /// `job`, `stream` or `webhook`.
    pub target_kind: &'a str,
    /// The target's parameters: a `job_kind`, a `url`.
    pub target: Value,
    /// Of which domain; none for any.
    pub event_domain: Option<&'a str>,
    /// Of which type; none for any.
    pub event_type: Option<&'a str>,
    /// Of which stream; none for any.
    pub event_stream: Option<&'a str>,
    /// For whom: one recipient, or all of a kind as `role:*`; none for everyone who gets it.
    pub recipient_filter: Option<&'a str>,
    /// What the payload must contain.
    pub payload_filter: Value,
    /// `none`, or `key`: in order, one at a time per ordering key.
    pub ordering: &'a str,
    /// The retry delays; none for the default ones over a day.
    pub retry_seconds: Option<&'a [i32]>,
    /// Rate limit per second; none for no limit.
    pub rate_limit_per_second: Option<f64>,
    /// The worker it belongs to.
    pub worker_name: &'a str,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// The outcome of creating or changing a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoutePut {
    /// Its name.
    pub route_name: String,
    /// Its mode; a new route is off.
    pub mode: Mode,
    /// Whether it is new.
    pub created: bool,
}

/// The outcome of a mode change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModeSet {
    /// The route.
    pub route_name: String,
    /// Its mode now.
    pub mode: Mode,
    /// Its previous mode.
    pub old_mode: Mode,
}

/// The outcome of retiring a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteRetired {
    /// The route.
    pub route_name: String,
    /// Cancelled deliveries.
    pub cancelled: i64,
}

/// A new signing key, returned only once.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretRotated {
    /// The route.
    pub route_name: String,
    /// The key for verifying signatures.
    pub signing_key: String,
    /// Until when the previous key also signs.
    pub previous_until: Option<Timestamp>,
}

/// Not derived, so that the key does not end up in a log.
impl fmt::Debug for SecretRotated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretRotated({})", self.route_name)
    }
}

/// What a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Only count.
    Count,
    /// Send.
    Send,
}

/// Positions after the first, up to and including the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Exclusive.
    pub after: i64,
    /// Inclusive.
    pub to: i64,
}

/// One step of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The route.
    pub route_name: String,
    /// Matching events.
    pub matched: i64,
    /// Jobs and deliveries created.
    pub sent: i64,
    /// Only recorded, because the route is in dry run.
    pub dry_run: i64,
    /// Dead letters created.
    pub failed: i64,
    /// Where to continue.
    pub position: i64,
    /// Whether there is more.
    pub more: bool,
}

/// One event that was sent through one route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteSent {
    /// The route.
    pub route_name: String,
    /// The event.
    pub event_id: EventId,
    /// The result.
    pub decision: Decision,
    /// How often it was replayed before.
    pub generation: i32,
    /// The error, if it failed.
    pub detail: Option<String>,
}

/// A test webhook and everything needed to send it.
#[derive(Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct RouteTest {
    pub route_name: String,
    pub url: String,
    pub webhook_id: String,
    pub headers: BTreeMap<String, String>,
    pub timeout_seconds: u32,
    pub body: String,
    /// The signing keys, all of which sign.
    pub signing_keys: Vec<String>,
}

/// Not derived, so that the keys do not end up in a log.
impl fmt::Debug for RouteTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RouteTest({} to {})", self.route_name, self.url)
    }
}

/// A route worker to register or change.
#[derive(Debug, Clone, Copy)]
pub struct RouteWorkerSpec<'a> {
    /// Its name.
    pub worker_name: &'a str,
    /// Its number of slices.
    pub slices: i32,
    /// Its start position; none keeps the current one, or for a new worker the end.
    pub from_position: Option<i64>,
    /// The only domain it handles; none for every domain, or as registered.
    pub event_domain: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// The outcome of registering a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct RouteWorkerPut {
    pub worker_name: String,
    pub slices: i32,
    pub event_domain: Option<String>,
    pub position: i64,
    pub created: bool,
}

impl Database {
    /// The routes with their health, by name.
    pub async fn route_list(&self) -> Result<Vec<Route>, Error> {
        read_field(self.call("select towpath.fn_route_list()", &[]).await?, "routes")
    }

    /// One route, retired or not.
    pub async fn route_show(&self, route_name: &str) -> Result<Route, Error> {
        let answer = self.call("select towpath.fn_route_list($1, true)", &[&route_name]).await?;
        read_field::<Vec<Route>>(answer, "routes")?.pop().ok_or_else(|| no_route(route_name))
    }

    /// Creates a route, off at first, or changes one without changing its mode.
    pub async fn route_put(&self, spec: &RouteSpec<'_>) -> Result<RoutePut, Error> {
        let sql = "select towpath.fn_route_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                   $11::double precision::numeric, $12, $13, $14)";
        let parameters: [Parameter<'_>; 14] = [
            &spec.route_name,
            &spec.target_kind,
            &spec.target,
            &spec.event_domain,
            &spec.event_type,
            &spec.event_stream,
            &spec.recipient_filter,
            &spec.payload_filter,
            &spec.ordering,
            &spec.retry_seconds,
            &spec.rate_limit_per_second,
            &spec.worker_name,
            &spec.notes,
            &spec.actor,
        ];
        read(self.call(sql, &parameters).await?)
    }

    /// Sets a route's mode.
    pub async fn route_mode_set(
        &self,
        route_name: &str,
        mode: Mode,
        by: Attribution<'_>,
    ) -> Result<ModeSet, Error> {
        let sql = "select towpath.fn_route_mode_set($1, $2, $3, $4)";
        let answer = self.call(sql, &[&route_name, &mode.word(), &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Retires a route permanently.
    pub async fn route_retire(&self, route_name: &str, by: Attribution<'_>) -> Result<RouteRetired, Error> {
        let sql = "select towpath.fn_route_retire($1, $2, $3)";
        let answer = self.call(sql, &[&route_name, &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Rotates a webhook route's signing key; both keys sign during the overlap.
    pub async fn route_secret_rotate(
        &self,
        route_name: &str,
        signing_key: Option<&str>,
        overlap_seconds: i32,
        actor: &str,
    ) -> Result<SecretRotated, Error> {
        let sql = "select towpath.fn_route_secret_rotate($1, $2, $3, $4)";
        read(self.call(sql, &[&route_name, &signing_key, &overlap_seconds, &actor]).await?)
    }

    /// A test webhook for a route's receiver, whatever its mode; the caller sends it.
    pub async fn route_test(&self, route_name: &str) -> Result<RouteTest, Error> {
        let answer = self.call("select towpath.fn_route_test($1)", &[&route_name]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Replays stored events through a route, as a new generation; at most `limit`, and at most 1,000, per call.
    pub async fn route_replay(
        &self,
        route_name: &str,
        span: Span,
        replay: Replay,
        limit: i32,
        actor: &str,
    ) -> Result<Replayed, Error> {
        let sql = "select towpath.fn_route_replay($1, $2, $3, $4, $5, $6)";
        let count = replay == Replay::Count;
        let answer = self.call(sql, &[&route_name, &span.after, &span.to, &actor, &count, &limit]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Sends one stored event through a route, whether or not it matches.
    pub async fn route_send(
        &self,
        route_name: &str,
        event_id: EventId,
        actor: &str,
    ) -> Result<RouteSent, Error> {
        let sql = "select towpath.fn_route_send($1, $2, $3)";
        let answer = self.call(sql, &[&route_name, &event_id.uuid(), &actor]).await?;
        let of_event = answer["event_id"].is_string();
        read(answer).map_err(|error| match of_event {
            true => no_such_event(error, event_id),
            false => no_such_route(error, route_name),
        })
    }

    /// Registers a route worker, or changes its slices (E09). A new one starts at the given position or at the end.
    pub async fn route_worker_put(&self, worker: &RouteWorkerSpec<'_>) -> Result<RouteWorkerPut, Error> {
        let sql = "select towpath.fn_route_worker_put($1, $2, $3, $4, $5)";
        let RouteWorkerSpec { worker_name, slices, from_position, event_domain, actor } = worker;
        read(self.call(sql, &[worker_name, slices, from_position, actor, event_domain]).await?)
    }
}

fn no_route(route_name: &str) -> Error {
    Error::NotFound(format!("there is no route {route_name}; list them with: towpath routes list"))
}

fn no_such_route(error: Error, route_name: &str) -> Error {
    match error {
        Error::NotFound(_) => no_route(route_name),
        other => other,
    }
}
