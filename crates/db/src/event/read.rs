//! Reading events: one in full, a page, a consumer's events, and explanations (`sql/functions/event_read.sql`,
//! `route_decide.sql`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::actor;
use towpath_model::event::recipient::Step;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::{DeliveryId, EventId, SubscriptionId};
use uuid::Uuid;

use super::RouteDeadLetter;
use crate::answer::{given, read};
use crate::{Database, Error};

/// An event as receivers and readers see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of event_outbox; 0004_event.sql says what each holds")]
pub struct Event {
    pub event_id: EventId,
    /// None until the sequencer has processed it.
    pub position: Option<i64>,
    pub event_domain: String,
    pub event_type: String,
    pub event_stream: Option<String>,
    pub subject_table: Option<String>,
    pub subject_ref: Option<String>,
    pub ordering_key: Option<String>,
    pub actor: String,
    pub created_at: Timestamp,
    pub payload: Value,
    /// The login, if it named another actor; shown to operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
}

impl Event {
    /// The actor, and the login if it differs.
    pub fn who(&self) -> String {
        actor::in_words(&self.actor, self.login.as_deref())
    }
}

/// A filter of events; absent fields match everything.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name; the payload by containment")]
pub struct EventFilter {
    pub event_domain: Option<String>,
    pub event_type: Option<String>,
    pub event_stream: Option<String>,
    pub subject_table: Option<String>,
    pub subject_ref: Option<String>,
    pub actor: Option<String>,
    pub payload: Option<Value>,
}

/// Where a page of events starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The newest ones, newest first.
    Newest,
    /// Those before a position, newest first.
    Before(i64),
    /// Those after a position, oldest first.
    After(i64),
}

/// A page of events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventPage {
    /// The consumer it was read as, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// The events.
    pub events: Vec<Event>,
    /// Where to continue; an empty page with `more` is not the end.
    pub position: i64,
    /// The highest position.
    pub last_position: i64,
    /// Retention dropped everything before this position; absent for consumers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<i64>,
    /// Whether there are more.
    pub more: bool,
}

/// One event, its decisions and deliveries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventWhole {
    /// The event.
    pub event: Event,
    /// Who gets it, by the present subscriptions.
    pub recipients: Recipients,
    /// The routing decisions.
    pub attempts: Vec<RouteAttempt>,
    /// Its dead letters.
    pub dead_letters: Vec<RouteDeadLetter>,
    /// Sent and waiting deliveries.
    pub deliveries: DeliveryHistory,
}

/// Who gets an event (R02).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recipients {
    /// The most specific step by which a recipient gets it.
    pub step: Step,
    /// Whether no recipient gets it by its own subscription.
    pub broadcast: bool,
    /// Whether subscriptions are resolved (R04).
    pub resolution_enabled: bool,
    /// Who gets it.
    pub recipients: Vec<Recipient>,
    /// Recipients whose most specific subscription is muted.
    pub suppressed: Vec<Recipient>,
}

/// One recipient and the subscription that decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recipient {
    /// The recipient.
    pub recipient_ref: String,
    /// The step of the row.
    pub step: Step,
    /// The row.
    pub subscription_id: SubscriptionId,
}

/// A worker's decision about an event and a route, or no route.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of route_attempt; 0004_event.sql says what each holds")]
pub struct RouteAttempt {
    pub worker_name: String,
    pub route_name: Option<String>,
    pub mode: Mode,
    pub generation: i32,
    pub decision: Decision,
    pub reason: Option<String>,
    pub step: Step,
    pub recipients: Option<Vec<String>>,
    pub suppressed: Option<Vec<String>>,
    pub result_id: Option<Uuid>,
    pub error: Option<String>,
    pub attempted_at: Timestamp,
}

/// Finished and unfinished deliveries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeliveryHistory {
    /// Finished attempts, oldest first.
    pub attempts: Vec<Value>,
    /// Unfinished deliveries.
    pub waiting: Vec<Value>,
}

/// What a worker would decide about an event, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explained {
    /// Who gets it.
    #[serde(flatten)]
    pub recipients: Recipients,
    /// The worker.
    pub worker_name: String,
    /// Its decisions.
    pub decisions: Vec<WouldDecide>,
}

/// One decision that would be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WouldDecide {
    /// The route; none if no route matches.
    pub route_name: Option<String>,
    /// The route's mode.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// The decision.
    pub decision: Decision,
    /// The reason, if it is not the mode.
    pub reason: Option<String>,
    /// The target kind.
    #[serde(default)]
    pub target_kind: Option<String>,
}

/// A stored event, or a hypothetical one.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Question {
    /// A stored one.
    Stored {
        /// Its id.
        event_id: EventId,
    },
    /// One that is only described.
    Imagined {
        /// Its domain.
        event_domain: String,
        /// Its type.
        event_type: String,
        /// Its stream.
        event_stream: Option<String>,
        /// The table it is about.
        subject_table: Option<String>,
        /// Its payload.
        payload: Value,
    },
}

impl Database {
    /// One event, its decisions and deliveries.
    pub async fn event_show(&self, event_id: EventId) -> Result<EventWhole, Error> {
        let answer = self.call("select towpath.fn_event_show($1)", &[&event_id.uuid()]).await?;
        read(answer).map_err(|error| no_such_event(error, event_id))
    }

    /// A page of events, for operators.
    pub async fn event_list(&self, filter: &EventFilter, from: From, limit: i32) -> Result<EventPage, Error> {
        let filter = given(filter);
        let (after, before) = match from {
            From::Newest => (None, None),
            From::Before(position) => (None, Some(position)),
            From::After(position) => (Some(position), None),
        };
        let sql = "select towpath.fn_event_list($1, $2, $3, $4)";
        read(self.call(sql, &[&filter, &after, &limit, &before]).await?)
    }

    /// The events after a position that a consumer has a subscription for (R05).
    pub async fn event_read(&self, consumer: &str, after: i64, limit: i32) -> Result<EventPage, Error> {
        read(self.call("select towpath.fn_event_read($1, $2, $3)", &[&consumer, &after, &limit]).await?)
    }

    /// Who gets an event.
    pub async fn resolve_recipients(&self, question: &Question) -> Result<Recipients, Error> {
        let event = serde_json::to_value(question).expect("a question is plain data");
        read(self.call("select towpath.fn_resolve_recipients($1)", &[&event]).await?)
    }

    /// What a worker would decide about an event. Changes nothing.
    pub async fn route_explain(&self, question: &Question, worker_name: &str) -> Result<Explained, Error> {
        let event = serde_json::to_value(question).expect("a question is plain data");
        let answer = self.call("select towpath.fn_route_explain($1, $2)", &[&event, &worker_name]).await?;
        let no_worker = answer["worker_name"].is_string();
        read(answer).map_err(|error| match (error, question) {
            (Error::NotFound(_), _) if no_worker => Error::NotFound(format!(
                "there is no route worker {worker_name}; list them with: towpath routes worker"
            )),
            (error, Question::Stored { event_id }) => no_such_event(error, *event_id),
            (error, _) => error,
        })
    }

    /// The attempts of one delivery.
    pub async fn delivery_history(&self, delivery_id: DeliveryId) -> Result<DeliveryHistory, Error> {
        read(self.call("select towpath.fn_delivery_history($1)", &[&delivery_id.uuid()]).await?)
    }
}

pub(super) fn no_such_event(error: Error, event_id: EventId) -> Error {
    match error {
        Error::NotFound(_) => {
            Error::NotFound(format!("there is no event {event_id}, or retention dropped it"))
        }
        other => other,
    }
}
