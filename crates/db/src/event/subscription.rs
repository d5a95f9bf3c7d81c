//! Who gets which events, who may read them, who may emit them: `sql/functions/event_subscription.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::id::{GrantId, SubscriptionId};

use crate::answer::{read, read_field};
use crate::subscription::SubscriptionPut;
use crate::{Database, Error, Parameter};

/// One subscription (R01).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of event_subscription; 0004_event.sql says what each holds")]
pub struct EventSubscription {
    pub subscription_id: SubscriptionId,
    pub recipient_ref: String,
    pub event_domain: String,
    pub event_type: Option<String>,
    pub event_stream: Option<String>,
    pub scope_subject_table: Option<String>,
    pub scope_filter: Value,
    pub mute: bool,
    pub notes: Option<String>,
    pub registered_by: String,
    pub registered_at: Timestamp,
}

/// A subscription to create or change.
#[derive(Debug, Clone)]
pub struct EventSubscriptionSpec<'a> {
    /// `role:`, `agency:`, `user:` or `agent:` and a name.
    pub recipient_ref: &'a str,
    /// Of which domain.
    pub event_domain: &'a str,
    /// Of which type; none for any.
    pub event_type: Option<&'a str>,
    /// Of which stream; none for any.
    pub event_stream: Option<&'a str>,
    /// About which table; none for any.
    pub scope_subject_table: Option<&'a str>,
    /// What the payload must contain.
    pub scope_filter: Value,
    /// Whether it excludes the recipient.
    pub mute: bool,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// A registered recipient: who may read events as it (R05).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of event_actor; 0004_event.sql says what each holds")]
pub struct EventActor {
    pub recipient_ref: String,
    pub login_role: Option<String>,
    pub executor_id: Option<String>,
    pub notes: Option<String>,
    pub registered_by: String,
    pub registered_at: Timestamp,
    pub subscriptions: i64,
}

/// A recipient to register, and who may read as it.
#[derive(Debug, Clone, Default)]
pub struct EventActorSpec<'a> {
    /// The recipient.
    pub recipient_ref: &'a str,
    /// The login, or group of logins, that reads as it.
    pub login_role: Option<&'a str>,
    /// The executor whose tokens read as it over HTTP.
    pub executor_id: Option<&'a str>,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// Who registers it.
    pub actor: &'a str,
}

/// What one producer may emit; none means any.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of event_grant; 0004_event.sql says what each holds")]
pub struct EventGrant {
    pub grant_id: GrantId,
    pub producer: String,
    pub event_domain: Option<String>,
    pub event_type: Option<String>,
    pub granted_by: String,
    pub granted_at: Timestamp,
}

/// The outcome of granting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventGranted {
    /// Its id.
    pub grant_id: GrantId,
    /// False if it already existed.
    pub created: bool,
}

impl Database {
    /// The subscriptions of one recipient or of all.
    pub async fn event_subscription_list(
        &self,
        recipient_ref: Option<&str>,
    ) -> Result<Vec<EventSubscription>, Error> {
        let sql = "select towpath.fn_event_subscription_list($1)";
        read_field(self.call(sql, &[&recipient_ref]).await?, "subscriptions")
    }

    /// Creates a subscription, or changes its mute flag and notes.
    pub async fn event_subscription_put(
        &self,
        spec: &EventSubscriptionSpec<'_>,
    ) -> Result<SubscriptionPut, Error> {
        let sql = "select towpath.fn_event_subscription_put($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let EventSubscriptionSpec { recipient_ref, event_domain, event_type, event_stream, .. } = spec;
        let EventSubscriptionSpec { scope_subject_table, scope_filter, mute, notes, actor, .. } = spec;
        let parameters: [Parameter<'_>; 9] = [
            recipient_ref,
            event_domain,
            event_type,
            event_stream,
            scope_subject_table,
            scope_filter,
            mute,
            notes,
            actor,
        ];
        read(self.call(sql, &parameters).await?)
    }

    /// Mutes a subscription, which then excludes its recipient.
    pub async fn event_subscription_mute(&self, id: SubscriptionId, actor: &str) -> Result<(), Error> {
        self.set_mute(id, true, actor).await
    }

    /// Unmutes a subscription.
    pub async fn event_subscription_unmute(&self, id: SubscriptionId, actor: &str) -> Result<(), Error> {
        self.set_mute(id, false, actor).await
    }

    async fn set_mute(&self, id: SubscriptionId, mute: bool, actor: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_event_subscription_mute($1, $2, $3)";
        let answer = self.call(sql, &[&id.uuid(), &mute, &actor]).await?;
        read_field::<bool>(answer, "mute").map(drop).map_err(|error| no_such_subscription(error, id))
    }

    /// Deletes a subscription; the recipient's broader ones then apply.
    pub async fn event_subscription_delete(&self, id: SubscriptionId) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_event_subscription_delete($1)", &[&id.uuid()]).await?;
        let gone = read_field::<SubscriptionId>(answer, "subscription_id");
        gone.map(drop).map_err(|error| no_such_subscription(error, id))
    }

    /// The registered recipients.
    pub async fn event_actor_list(&self) -> Result<Vec<EventActor>, Error> {
        read_field(self.call("select towpath.fn_event_actor_list()", &[]).await?, "actors")
    }

    /// Registers a recipient, and who may read as it.
    pub async fn event_actor_put(&self, spec: &EventActorSpec<'_>) -> Result<(), Error> {
        let sql = "select towpath.fn_event_actor_put($1, $2, $3, $4, $5)";
        let EventActorSpec { recipient_ref, login_role, executor_id, notes, actor } = spec;
        let answer = self.call(sql, &[recipient_ref, login_role, notes, actor, executor_id]).await?;
        read_field::<String>(answer, "recipient_ref").map(drop)
    }

    /// Takes a recipient out of the registry, so that no one can read as it.
    pub async fn event_actor_delete(&self, recipient_ref: &str) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_event_actor_delete($1)", &[&recipient_ref]).await?;
        read_field::<String>(answer, "recipient_ref").map(drop)
    }

    /// Who may emit what.
    pub async fn event_grant_list(&self, producer: Option<&str>) -> Result<Vec<EventGrant>, Error> {
        read_field(self.call("select towpath.fn_event_grant_list($1)", &[&producer]).await?, "grants")
    }

    /// Allows a login to emit events of a domain and a type; none means any.
    pub async fn event_grant_put(
        &self,
        producer: &str,
        event_domain: Option<&str>,
        event_type: Option<&str>,
        actor: &str,
    ) -> Result<EventGranted, Error> {
        let sql = "select towpath.fn_event_grant_put($1, $2, $3, $4)";
        read(self.call(sql, &[&producer, &event_domain, &event_type, &actor]).await?)
    }

    /// Revokes one grant.
    pub async fn event_grant_revoke(&self, id: GrantId) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_event_grant_revoke($1)", &[&id.uuid()]).await?;
        read_field::<GrantId>(answer, "grant_id").map(drop)
    }
}

fn no_such_subscription(error: Error, id: SubscriptionId) -> Error {
    match error {
        Error::NotFound(_) => Error::NotFound(format!(
            "there is no subscription {id}; list them with: towpath subscriptions list"
        )),
        other => other,
    }
}
