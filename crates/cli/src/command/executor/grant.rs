//! `towpath executor grant add | list | revoke`: what producers may enqueue.

use clap::{ArgGroup, Subcommand};
use serde_json::json;
use towpath_db::subscription::ProducerGrant;
use towpath_db::{Database, Error};
use towpath_model::id::GrantId;

use crate::command::Actor;
use crate::output::{Output, table_or};

#[derive(Subcommand)]
pub(crate) enum Grant {
    /// Allow a producer to enqueue
    #[command(group = ArgGroup::new("scope").required(true).multiple(true).args(["job_kind", "executor", "any_kind"]))]
    Add {
        /// Database login, or executor:NAME for the tokens of an executor
        producer: String,
        /// This job kind
        #[arg(long, value_name = "KIND")]
        job_kind: Option<String>,
        /// Jobs for this executor kind (default: any)
        #[arg(long, value_name = "KIND")]
        executor: Option<String>,
        /// Every job kind, including future ones
        #[arg(long, conflicts_with = "job_kind")]
        any_kind: bool,
        #[command(flatten)]
        by: Actor,
    },
    /// List who may enqueue what
    List {
        /// Only of this producer
        producer: Option<String>,
    },
    /// Revoke a grant
    Revoke {
        /// Its id, as `grant list` shows it
        grant: GrantId,
    },
}

pub(crate) async fn run(grant: Grant, database: &Database, output: &Output) -> anyhow::Result<()> {
    match grant {
        Grant::Add { producer, job_kind, executor, any_kind: _, by } => {
            let actor = by.name();
            let (kind, executor) = (job_kind.as_deref(), executor.as_deref());
            let granted = database.producer_grant_put(&producer, kind, executor, &actor).await?;
            output.show(&granted, |granted| {
                let kind =
                    kind.map_or_else(|| "jobs of every kind".into(), |kind| format!("jobs of kind {kind}"));
                let whom = executor.map_or_else(|| "any executor".into(), |name| format!("executor {name}"));
                let may = if granted.created { "may now enqueue" } else { "could already enqueue" };
                format!("{producer} {may} {kind} for {whom} (grant {})", granted.grant_id)
            });
        }
        Grant::List { producer } => {
            output.show(&database.producer_grant_list(producer.as_deref()).await?, |rows| list(rows));
        }
        Grant::Revoke { grant } => {
            match database.producer_grant_revoke(grant).await {
                Err(Error::NotFound(_)) => {
                    anyhow::bail!("there is no grant {grant}; list them with: towpath executor grant list")
                }
                other => other?,
            }
            output.show(&json!({ "revoked": grant }), |_| format!("revoked grant {grant}"));
        }
    }
    Ok(())
}

fn list(rows: &[ProducerGrant]) -> String {
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "any".into());
    let rows = rows.iter().map(|row| {
        [
            row.grant_id.to_string(),
            row.producer.clone(),
            any(&row.job_kind),
            any(&row.executor),
            format!("{:.0} by {}", row.granted_at, row.granted_by),
        ]
    });
    let head = ["GRANT", "PRODUCER", "KIND", "EXECUTOR", "GRANTED"];
    table_or("no grants; only administrators may enqueue", head, rows)
}
