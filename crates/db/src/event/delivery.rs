//! Deliveries: webhooks are claimed under a lease and their results recorded here; the sender is elsewhere (E08).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use towpath_model::id::DeliveryId;
use towpath_model::job::Attempt;
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::job::{LeaseOwner, whole_seconds};
use crate::{Database, Error, Parameter};

/// Proof that this process owns one attempt to deliver.
///
/// Only a claim creates one, and finishing consumes it. Not `Clone` for that reason.
#[derive(Debug)]
pub struct DeliveryLease {
    delivery_id: DeliveryId,
    owner: LeaseOwner,
    attempt: Attempt,
}

/// A delivery and everything needed to send it.
#[derive(Debug)]
pub struct Delivery {
    /// Proof of owning this attempt.
    pub lease: DeliveryLease,
    /// The same for every attempt and replay, so that receivers can detect duplicates.
    pub webhook_id: String,
    /// The route that made it.
    pub route_name: String,
    /// The event's position.
    pub position: i64,
    /// The event.
    pub event_id: Uuid,
    /// How often the event was replayed on this route before.
    pub generation: i32,
    /// The URL.
    pub url: String,
    /// The route's own headers.
    pub headers: BTreeMap<String, String>,
    /// The timeout.
    pub timeout: Duration,
    /// Identical bytes for every attempt.
    pub body: String,
    /// The current key and, during a rotation, the previous one.
    pub signing_keys: Vec<String>,
}

/// A delivery without a valid request: its route's target is invalid.
#[derive(Debug)]
pub struct UnreadableDelivery {
    /// Proof of owning this attempt, to finish it.
    pub lease: DeliveryLease,
    /// The route that made it.
    pub route_name: String,
    /// What is invalid.
    pub why: String,
}

/// The result of a claim.
#[derive(Debug)]
pub struct Claimed {
    /// To send now.
    pub deliveries: Vec<Delivery>,
    /// Cannot be sent: each fails by itself, and the others are sent.
    pub unreadable: Vec<UnreadableDelivery>,
    /// Attempts of others whose lease expired; they are due again.
    pub lost: i64,
    /// When the next one becomes due.
    pub next_at: Option<Timestamp>,
    /// The duration of the leases: `event.delivery.lease_sec`.
    pub lease: Duration,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOutcome {
    /// The HTTP status, if the receiver responded.
    pub status_code: Option<i32>,
    /// How long it took.
    pub duration: Duration,
    /// The remote address, if known.
    pub address: Option<String>,
    /// The start of the response.
    pub answer: Option<String>,
}

/// How an attempt failed, as in `fn_delivery_fail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The receiver responded with a status other than 2xx.
    Status,
    /// It timed out.
    Timeout,
    /// No connection, or it broke.
    Connect,
    /// The connection could not be encrypted.
    Tls,
    /// The address is not allowed.
    Forbidden,
    /// The route's target is invalid.
    Setup,
}

impl FailureClass {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            FailureClass::Status => "status",
            FailureClass::Timeout => "timeout",
            FailureClass::Connect => "connect",
            FailureClass::Tls => "tls",
            FailureClass::Forbidden => "forbidden",
            FailureClass::Setup => "setup",
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// How.
    pub class: FailureClass,
    /// The error message.
    pub error: String,
    /// The delay requested by the receiver.
    pub retry_after: Option<Duration>,
}

/// The state of a delivery after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AfterDelivery {
    /// `waiting`, or `dead`: a dead letter.
    pub state: String,
    /// When it is retried.
    pub next_at: Option<Timestamp>,
    /// The target's circuit now.
    pub circuit: String,
    /// The route was disabled because of this failure.
    pub route_disabled: bool,
}

/// An attempt whose outcome could not be recorded. It may have been recorded after all, so retry: a finished attempt
/// returns [`Error::LeaseLost`].
#[derive(Debug)]
pub struct Unended {
    /// What went wrong.
    pub error: Error,
    /// The attempt.
    pub lease: DeliveryLease,
}

#[derive(Deserialize)]
struct ClaimAnswer {
    deliveries: Vec<Value>,
    lost: i64,
    next_at: Option<Timestamp>,
    lease_seconds: f64,
}

/// The database's part of a delivery.
#[derive(Deserialize)]
struct Head {
    delivery_id: DeliveryId,
    attempt: Attempt,
    route_name: String,
}

/// What to send; url, headers and timeout are as the route has them.
#[derive(Deserialize)]
struct Row {
    webhook_id: String,
    position: i64,
    event_id: Uuid,
    generation: i32,
    url: String,
    headers: BTreeMap<String, String>,
    timeout_seconds: u64,
    body: String,
    signing_keys: Vec<String>,
}

impl Row {
    fn with_lease(self, lease: DeliveryLease, route_name: String) -> Delivery {
        Delivery {
            lease,
            webhook_id: self.webhook_id,
            route_name,
            position: self.position,
            event_id: self.event_id,
            generation: self.generation,
            url: self.url,
            headers: self.headers,
            timeout: Duration::from_secs(self.timeout_seconds),
            body: self.body,
            signing_keys: self.signing_keys,
        }
    }
}

impl Database {
    /// Claims up to `limit` due webhooks; targets take turns, and so do the routes to each.
    pub async fn delivery_claim(&self, owner: &LeaseOwner, limit: i32) -> Result<Claimed, Error> {
        let sql = "select towpath.fn_delivery_claim($1, $2)";
        let answer: ClaimAnswer = read(self.call(sql, &[&owner.as_str(), &limit]).await?)?;
        let (mut deliveries, mut unreadable) = (vec![], vec![]);
        for row in answer.deliveries {
            let Head { delivery_id, attempt, route_name } = Head::deserialize(&row)
                .map_err(|error| Error::Unreadable(format!("a delivery ({error})")))?;
            let lease = DeliveryLease { delivery_id, owner: owner.clone(), attempt };
            match serde_json::from_value::<Row>(row) {
                Ok(row) => deliveries.push(row.with_lease(lease, route_name)),
                Err(error) => {
                    let why = format!("the target of the route is invalid: {error}");
                    unreadable.push(UnreadableDelivery { lease, route_name, why });
                }
            }
        }
        let lease = Duration::from_secs_f64(answer.lease_seconds);
        Ok(Claimed { deliveries, unreadable, lost: answer.lost, next_at: answer.next_at, lease })
    }
}

/// The answer of a function that only names the delivery.
fn ended(answer: Value) -> Result<(), Error> {
    read_field::<DeliveryId>(answer, "delivery_id").map(drop)
}

impl DeliveryLease {
    /// The delivery.
    pub fn delivery_id(&self) -> DeliveryId {
        self.delivery_id
    }

    /// The number of the attempt.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Extends the lease to at least this long from now.
    pub async fn extend(&self, database: &Database, by: Duration) -> Result<(), Error> {
        let sql = "select towpath.fn_delivery_extend($1, $2, $3, $4)";
        let (id, owner, attempt) = self.fence();
        let answer = database.call(sql, &[&id, &owner, &attempt, &whole_seconds(by)]).await?;
        ended(answer)
    }

    /// leased -> delivered.
    pub async fn succeed(self, database: &Database, outcome: &DeliveryOutcome) -> Result<(), Unended> {
        let sql = "select towpath.fn_delivery_succeed($1, $2, $3, $4, $5, $6, $7)";
        let (id, owner, attempt) = self.fence();
        let DeliveryOutcome { status_code, duration, address, answer } = outcome;
        let duration = whole_ms(*duration);
        let parameters: [Parameter<'_>; 7] = [&id, &owner, &attempt, status_code, &duration, address, answer];
        let answered = database.call(sql, &parameters).await;
        answered.and_then(ended).map_err(|error| Unended { error, lease: self })
    }

    /// leased -> waiting, or dead.
    pub async fn fail(
        self,
        database: &Database,
        failure: &DeliveryFailure,
        outcome: &DeliveryOutcome,
    ) -> Result<AfterDelivery, Unended> {
        let sql = "select towpath.fn_delivery_fail($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let (id, owner, attempt) = self.fence();
        let retry_after = failure.retry_after.map(|wait| wait.as_secs_f64());
        let DeliveryOutcome { status_code, duration, address, answer } = outcome;
        let (class, error, duration) = (failure.class.word(), &failure.error, whole_ms(*duration));
        let parameters: [Parameter<'_>; 10] =
            [&id, &owner, &attempt, &class, error, status_code, &retry_after, &duration, address, answer];
        let answered = database.call(sql, &parameters).await;
        answered.and_then(read).map_err(|error| Unended { error, lease: self })
    }

    /// Releases a delivery that was claimed and not sent.
    pub async fn release(self, database: &Database) -> Result<(), Unended> {
        let sql = "select towpath.fn_delivery_release($1, $2, $3)";
        let (id, owner, attempt) = self.fence();
        let answered = database.call(sql, &[&id, &owner, &attempt]).await;
        answered.and_then(ended).map_err(|error| Unended { error, lease: self })
    }

    fn fence(&self) -> (Uuid, &str, i32) {
        (self.delivery_id.uuid(), self.owner.as_str(), self.attempt.number())
    }
}

fn whole_ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
