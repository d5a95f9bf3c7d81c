//! Routes: which events go where, in which mode (`sql/functions/route.sql`, `route_replay.sql`).

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::EventId;

use super::read::no_such_event;
use crate::answer::{read, read_field};
use crate::{Attribution, Database, Error};

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
    /// The scheme, host and port that webhooks go to.
    pub target_key: Option<String>,
    /// `closed`, `open` or `half_open`.
    pub circuit: Option<String>,
    /// Nothing is sent before this moment.
    pub blocked_until: Option<Timestamp>,
    /// Whether it has a signing key.
    pub signed: bool,
    /// Until when the previous key signs too.
    pub previous_key_until: Option<Timestamp>,
    /// Why the last delivery failed, until one works again.
    pub last_error: Option<String>,
    pub deliveries_waiting: i64,
    pub dead_letters_open: i64,
}

/// A route to be made or changed.
#[derive(Debug, Clone)]
pub struct RouteSpec<'a> {
    /// Its name, for ever.
    pub route_name: &'a str,
    /// `job`, `stream` or `webhook`.
    pub target_kind: &'a str,
    /// What the kind needs: a `job_kind`, a `url`.
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
    /// `none`, or `key`: one at a time and in order for each ordering key.
    pub ordering: &'a str,
    /// The waits between attempts; none for the usual ones over a day.
    pub retry_seconds: Option<&'a [i32]>,
    /// At most this many a second; none for no limit.
    pub rate_limit_per_second: Option<f64>,
    /// The worker it belongs to.
    pub worker_name: &'a str,
    /// What people should know.
    pub notes: Option<&'a str>,
    /// Who makes it.
    pub actor: &'a str,
}

/// The outcome of making or changing a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoutePut {
    /// Its name.
    pub route_name: String,
    /// How far it goes; a new one is off.
    pub mode: Mode,
    /// Whether it is new.
    pub created: bool,
}

/// The outcome of a change of mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModeSet {
    /// The route.
    pub route_name: String,
    /// How far it goes now.
    pub mode: Mode,
    /// How far it went before.
    pub old_mode: Mode,
}

/// The outcome of ending a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteRetired {
    /// The route.
    pub route_name: String,
    /// Deliveries that will not be sent.
    pub cancelled: i64,
}

/// A new signing key. It is in no other answer.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretRotated {
    /// The route.
    pub route_name: String,
    /// What receivers check signatures with.
    pub signing_key: String,
    /// Until when the previous key signs too.
    pub previous_until: Option<Timestamp>,
}

/// By hand, so that the key does not end up in a log.
impl fmt::Debug for SecretRotated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretRotated({})", self.route_name)
    }
}

/// What a replay is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Only count.
    Count,
    /// Send.
    Send,
}

/// Positions after the first, up to and with the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Not this one.
    pub after: i64,
    /// This one too.
    pub to: i64,
}

/// One step of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The route.
    pub route_name: String,
    /// Events it takes.
    pub matched: i64,
    /// Jobs and deliveries made.
    pub sent: i64,
    /// Noted only, because the route is in a dry run.
    pub dry_run: i64,
    /// Dead letters made.
    pub failed: i64,
    /// Where to go on.
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

/// A made-up webhook and everything needed to send it.
#[derive(Clone, Deserialize)]
pub struct RouteTest {
    /// The route.
    pub route_name: String,
    /// Where to.
    pub url: String,
    /// The id receivers see.
    pub webhook_id: String,
    /// The route's own headers.
    pub headers: BTreeMap<String, String>,
    /// How long the receiver may take.
    pub timeout_seconds: u32,
    /// What to send.
    pub body: String,
    /// Every one of them signs.
    pub signing_keys: Vec<String>,
}

/// By hand, so that the keys do not end up in a log.
impl fmt::Debug for RouteTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RouteTest({} to {})", self.route_name, self.url)
    }
}

/// A worker to register or to change.
#[derive(Debug, Clone, Copy)]
pub struct RouteWorkerSpec<'a> {
    /// Its name.
    pub worker_name: &'a str,
    /// Into how many slices its work is cut.
    pub slices: i32,
    /// Where it starts; none: where it is, or for a new one at now.
    pub from_position: Option<i64>,
    /// The only domain a new one reads; none: every domain, or as it was registered.
    pub event_domain: Option<&'a str>,
    /// Who, for the record.
    pub actor: &'a str,
}

/// The outcome of registering a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteWorkerPut {
    /// The worker.
    pub worker_name: String,
    /// Into how many slices its work is cut.
    pub slices: i32,
    /// The only domain it reads.
    pub event_domain: Option<String>,
    /// Where they start.
    pub position: i64,
    /// Whether it is new.
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

    /// Makes a route, switched off, or changes one without touching its mode.
    pub async fn route_put(&self, spec: &RouteSpec<'_>) -> Result<RoutePut, Error> {
        let sql = "select towpath.fn_route_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                   $11::double precision::numeric, $12, $13, $14)";
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 14] = [
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

    /// Sets how far a route goes.
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

    /// Ends a route for good.
    pub async fn route_retire(&self, route_name: &str, by: Attribution<'_>) -> Result<RouteRetired, Error> {
        let sql = "select towpath.fn_route_retire($1, $2, $3)";
        let answer = self.call(sql, &[&route_name, &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Gives a webhook route a new signing key; the old one signs beside it for the overlap.
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

    /// A made-up webhook for a route's receiver, whatever the route's mode; the caller sends it.
    pub async fn route_test(&self, route_name: &str) -> Result<RouteTest, Error> {
        let answer = self.call("select towpath.fn_route_test($1)", &[&route_name]).await?;
        read(answer).map_err(|error| no_such_route(error, route_name))
    }

    /// Sends stored events through a route, as a new generation; at most `limit`, and at most 1,000, in
    /// one call.
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

    /// One stored event through one route, whether or not the route would take it.
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

    /// Registers a worker, or cuts its work into another number of slices (E09). A new one
    /// starts at a position, or at now.
    pub async fn route_worker_put(&self, worker: &RouteWorkerSpec<'_>) -> Result<RouteWorkerPut, Error> {
        let sql = "select towpath.fn_route_worker_put($1, $2, $3, $4, $5)";
        let RouteWorkerSpec { worker_name, slices, from_position, event_domain, actor } = worker;
        read(self.call(sql, &[worker_name, slices, from_position, actor, event_domain]).await?)
    }
}

fn no_route(route_name: &str) -> Error {
    Error::NotFound(format!("there is no route {route_name}; see: towpath routes list"))
}

fn no_such_route(error: Error, route_name: &str) -> Error {
    match error {
        Error::NotFound(_) => no_route(route_name),
        other => other,
    }
}
