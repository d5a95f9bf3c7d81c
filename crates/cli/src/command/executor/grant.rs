//! `towpath executor grant add | list | revoke`: what producers may enqueue.

use clap::{ArgGroup, Subcommand};
use serde_json::json;
use towpath_db::subscription::ProducerGrant;
use towpath_db::{Database, Error};
use towpath_model::id::GrantId;

use crate::output::{Output, table};

#[derive(Subcommand)]
pub(crate) enum Grant {
    /// Let a producer enqueue
    #[command(group = ArgGroup::new("scope").required(true).multiple(true).args(["job_kind", "executor", "any_kind"]))]
    Add {
        /// A database login, or executor:NAME for the tokens of an executor
        producer: String,
        /// This kind of jobs
        #[arg(long, value_name = "KIND")]
        job_kind: Option<String>,
        /// Jobs for this kind of executor; without it, for any
        #[arg(long, value_name = "KIND")]
        executor: Option<String>,
        /// Every kind of jobs, also those that there will be
        #[arg(long, conflicts_with = "job_kind")]
        any_kind: bool,
        /// Who, for the record; user@host if not given
        #[arg(long, value_name = "ACTOR")]
        by: Option<String>,
    },
    /// Who may enqueue what
    List {
        /// Only of this producer
        producer: Option<String>,
    },
    /// Take a grant back
    Revoke {
        /// Its id, as `grant list` shows it
        grant: GrantId,
    },
}

pub(crate) async fn run(grant: Grant, database: &Database, output: &Output) -> anyhow::Result<()> {
    match grant {
        Grant::Add { producer, job_kind, executor, any_kind: _, by } => {
            let actor = by.unwrap_or_else(crate::command::actor);
            let (kind, executor) = (job_kind.as_deref(), executor.as_deref());
            let granted = database.producer_grant_put(&producer, kind, executor, &actor).await?;
            output.show(&granted, |granted| {
                let kind =
                    kind.map_or_else(|| "every kind of jobs".into(), |kind| format!("jobs of kind {kind}"));
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
                    anyhow::bail!("there is no grant {grant}; see: towpath executor grant list")
                }
                other => other?,
            }
            output.show(&json!({ "revoked": grant }), |_| format!("grant {grant} is taken back"));
        }
    }
    Ok(())
}

fn list(rows: &[ProducerGrant]) -> String {
    if rows.is_empty() {
        return "no grants; only administrators may enqueue".into();
    }
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "any".into());
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            [
                row.grant_id.to_string(),
                row.producer.clone(),
                any(&row.job_kind),
                any(&row.executor),
                format!("{:.0} by {}", row.granted_at, row.granted_by),
            ]
        })
        .collect();
    table(["GRANT", "PRODUCER", "KIND", "EXECUTOR", "GRANTED"], &rows)
}
