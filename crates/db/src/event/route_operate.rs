//! Routes as operators see them (`sql/functions/route_operate.sql`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use towpath_model::event::recipient::Step;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::{DeliveryId, EventId};
use uuid::Uuid;

use crate::answer::read;
use crate::{Attribution, Database, Error};

/// A route's latest activity, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteAttempts {
    /// The route.
    pub route_name: String,
    /// Its decisions.
    pub decisions: Vec<RouteDecision>,
    /// Its webhook attempts.
    pub deliveries: Vec<DeliveryAttempt>,
}

/// A route's decision about one event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of route_attempt; 0004_event.sql says what each holds")]
pub struct RouteDecision {
    pub position: i64,
    pub event_id: EventId,
    pub mode: Mode,
    pub generation: i32,
    pub decision: Decision,
    pub reason: Option<String>,
    pub step: Step,
    pub result_id: Option<Uuid>,
    pub error: Option<String>,
    pub attempted_at: Timestamp,
}

/// One finished webhook attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of delivery_attempt; 0004_event.sql says what each holds")]
pub struct DeliveryAttempt {
    pub delivery_id: DeliveryId,
    pub attempt: i32,
    pub route_name: String,
    pub position: i64,
    pub event_id: EventId,
    pub lease_owner: String,
    pub ended_at: Timestamp,
    /// `delivered`, `retry`, `lost`, `released`, `dead` or `cancelled`.
    pub outcome: String,
    pub status_code: Option<i32>,
    pub duration_ms: Option<i32>,
    pub address: Option<String>,
    pub error: Option<String>,
    pub answer: Option<String>,
    /// When it is retried.
    pub next_at: Option<Timestamp>,
}

/// The outcome of closing a circuit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CircuitClosed {
    /// The route.
    pub route_name: String,
    /// The scheme, host and port of the circuit.
    pub target_key: String,
    /// Its previous state.
    pub old_circuit: String,
    /// False if it was already closed.
    pub changed: bool,
}

impl Database {
    /// A route's latest decisions and deliveries.
    pub async fn route_attempts(&self, route_name: &str, limit: i32) -> Result<RouteAttempts, Error> {
        let answer = self.call("select towpath.fn_route_attempts($1, $2)", &[&route_name, &limit]).await?;
        read(answer).map_err(|error| no_route(error, route_name))
    }

    /// Forgets the failures of a webhook route's target, so that waiting deliveries are sent immediately.
    pub async fn route_circuit_close(
        &self,
        route_name: &str,
        by: Attribution<'_>,
    ) -> Result<CircuitClosed, Error> {
        let sql = "select towpath.fn_route_circuit_close($1, $2, $3)";
        read(self.call(sql, &[&route_name, &by.actor, &by.reason]).await?)
            .map_err(|error| no_route(error, route_name))
    }
}

fn no_route(error: Error, route_name: &str) -> Error {
    match error {
        Error::NotFound(_) => {
            Error::NotFound(format!("there is no route {route_name}; list them with: towpath routes list"))
        }
        other => other,
    }
}
