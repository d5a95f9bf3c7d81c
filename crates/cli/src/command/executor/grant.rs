//! `towpath executor grant add | list | revoke`: what producers may enqueue.

use clap::Subcommand;
use serde_json::json;
use towpath_db::subscription::ProducerGrant;
use towpath_db::{Database, Error};
use towpath_model::id::GrantId;

use crate::output::{Output, table};

#[derive(Subcommand)]
pub(crate) enum Grant {
    /// Let a producer enqueue
    Add {
        /// A database login, or executor:NAME for the tokens of an executor
        producer: String,
        /// Only this kind of jobs [default: any]
        #[arg(long, value_name = "KIND")]
        job_kind: Option<String>,
        /// Only for this kind of executor [default: any]
        #[arg(long, value_name = "KIND")]
        executor: Option<String>,
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
        Grant::Add { producer, job_kind, executor, by } => {
            let actor = by.unwrap_or_else(crate::command::actor);
            let (kind, executor) = (job_kind.as_deref(), executor.as_deref());
            let granted = database.producer_grant_put(&producer, kind, executor, &actor).await?;
            output.show(&granted, |granted| match granted.created {
                true => format!("granted to {producer} ({})", granted.grant_id),
                false => format!("{producer} had this already ({})", granted.grant_id),
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
