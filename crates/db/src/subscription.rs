//! Subscriptions, registered executors and producer grants: `sql/functions/subscription.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;
use towpath_model::id::{GrantId, SubscriptionId};

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// What one executor claims.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of job_subscription; 0002_job.sql says what each holds")]
pub struct Subscription {
    pub subscription_id: SubscriptionId,
    pub executor_id: String,
    pub executor_kind: String,
    pub job_kind: Option<String>,
    pub event_domain: Option<String>,
    pub priority_floor: i32,
    pub max_parallel: Option<i32>,
    pub enabled: bool,
    pub notes: Option<String>,
    pub registered_by: String,
    pub registered_at: Timestamp,
    /// Its leased jobs, if it has a limit.
    pub held: Option<i64>,
}

/// A subscription to create or change.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionSpec<'a> {
    /// Its executor.
    pub executor_id: &'a str,
    /// The executor kind.
    pub executor_kind: &'a str,
    /// The job kind; none for any.
    pub job_kind: Option<&'a str>,
    /// The event domain; none for any.
    pub event_domain: Option<&'a str>,
    /// The lowest priority it claims.
    pub priority_floor: i32,
    /// Maximum concurrent jobs; none for no limit.
    pub max_parallel: Option<i32>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// The outcome of creating or changing a subscription.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubscriptionPut {
    /// Its id.
    pub subscription_id: SubscriptionId,
    /// Whether it is new.
    pub created: bool,
}

/// A registered executor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct Consumer {
    pub executor_id: String,
    pub executor: String,
    /// The only login that may claim as it, if set.
    pub login_role: Option<String>,
    pub notes: Option<String>,
    pub registered_by: String,
    pub registered_at: Timestamp,
}

/// What one producer may enqueue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProducerGrant {
    /// Its id.
    pub grant_id: GrantId,
    /// The login role, or `executor:NAME` for an executor's tokens.
    pub producer: String,
    /// The job kind; none for any.
    pub job_kind: Option<String>,
    /// The executor kind; none for any.
    pub executor: Option<String>,
    /// Who granted it.
    pub granted_by: String,
    /// When.
    pub granted_at: Timestamp,
}

/// The outcome of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProducerGranted {
    /// Its id.
    pub grant_id: GrantId,
    /// Whether it is new.
    pub created: bool,
}

impl Database {
    /// The subscriptions of one executor or of all.
    pub async fn subscription_list(&self, executor_id: Option<&str>) -> Result<Vec<Subscription>, Error> {
        let answer = self.call("select towpath.fn_job_subscription_list($1)", &[&executor_id]).await?;
        read_field(answer, "subscriptions")
    }

    /// Creates or changes an executor's subscription for a kind and a domain.
    pub async fn subscription_put(&self, spec: &SubscriptionSpec<'_>) -> Result<SubscriptionPut, Error> {
        let sql = "select towpath.fn_job_subscription_put($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        read(
            self.call(
                sql,
                &[
                    &spec.executor_id,
                    &spec.executor_kind,
                    &spec.job_kind,
                    &spec.event_domain,
                    &spec.priority_floor,
                    &spec.max_parallel,
                    &spec.enabled,
                    &spec.notes,
                    &spec.actor,
                ],
            )
            .await?,
        )
    }

    /// Deletes a subscription without leased jobs.
    pub async fn subscription_delete(&self, id: SubscriptionId) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_job_subscription_delete($1)", &[&id.uuid()]).await?;
        read_field::<SubscriptionId>(answer, "subscription_id").map(drop)
    }

    /// The registered executors.
    pub async fn consumer_list(&self) -> Result<Vec<Consumer>, Error> {
        read_field(self.call("select towpath.fn_consumer_list()", &[]).await?, "consumers")
    }

    /// Registers an executor, or changes its entry.
    pub async fn consumer_put(
        &self,
        executor_id: &str,
        executor: &str,
        login_role: Option<&str>,
        notes: Option<&str>,
        actor: &str,
    ) -> Result<(), Error> {
        let sql = "select towpath.fn_consumer_put($1, $2, $3, $4, $5)";
        let answer = self.call(sql, &[&executor_id, &executor, &login_role, &notes, &actor]).await?;
        read_field::<String>(answer, "executor_id").map(drop)
    }

    /// Registers an executor and subscribes it to kinds, as far as an administrator has not. Answers the kinds that are
    /// new.
    pub async fn executor_register(&self, executor: &str, kinds: &[String]) -> Result<Vec<String>, Error> {
        let sql = "select towpath.fn_executor_register($1, $2)";
        let answer = self.call(sql, &[&executor, &kinds]).await.map_err(|error| match error {
            Error::Postgres(denied) if denied.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                Error::NotAuthorised(format!(
                    "registering executors needs the role workflow_admin; an administrator does it with: \
                     towpath executor add {executor} --executor PG_worker --job-kind {} --enable",
                    kinds.join(" --job-kind ")
                ))
            }
            other => other,
        });
        read_field(answer?, "added")
    }

    /// The executor kinds.
    pub async fn executor_kinds(&self) -> Result<Vec<String>, Error> {
        read_field(self.call("select towpath.fn_executor_kinds()", &[]).await?, "kinds")
    }

    /// Removes an executor from the registry.
    pub async fn consumer_delete(&self, executor_id: &str) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_consumer_delete($1)", &[&executor_id]).await?;
        read_field::<String>(answer, "executor_id").map(drop)
    }

    /// What one producer or all may enqueue.
    pub async fn producer_grant_list(&self, producer: Option<&str>) -> Result<Vec<ProducerGrant>, Error> {
        read_field(self.call("select towpath.fn_producer_grant_list($1)", &[&producer]).await?, "grants")
    }

    /// Allows a producer to enqueue a kind for an executor kind; none means any.
    pub async fn producer_grant_put(
        &self,
        producer: &str,
        job_kind: Option<&str>,
        executor: Option<&str>,
        actor: &str,
    ) -> Result<ProducerGranted, Error> {
        // The caller has already confirmed that both are any.
        let any_kind = job_kind.is_none();
        let sql = "select towpath.fn_producer_grant_put($1, $2, $3, $4, $5)";
        read(self.call(sql, &[&producer, &job_kind, &executor, &actor, &any_kind]).await?)
    }

    /// Revokes one grant.
    pub async fn producer_grant_revoke(&self, id: GrantId) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_producer_grant_revoke($1)", &[&id.uuid()]).await?;
        read_field::<GrantId>(answer, "grant_id").map(drop)
    }
}
