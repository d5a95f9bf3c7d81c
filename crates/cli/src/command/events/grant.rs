//! `towpath events grant add | list | revoke`: what producers may emit.

use clap::{ArgGroup, Subcommand};
use serde_json::json;
use towpath_db::event::EventGrant;
use towpath_db::{Database, Error};
use towpath_model::id::GrantId;

use crate::command::Actor;
use crate::output::{Exit, Output, done, table_or};

#[derive(Subcommand)]
pub(crate) enum Grant {
    /// Allow a producer to emit
    #[command(group = ArgGroup::new("scope").required(true).multiple(true).args(["domain", "event_type", "any_domain"]))]
    Add {
        /// Database login
        producer: String,
        /// Events of this domain
        #[arg(long)]
        domain: Option<String>,
        /// Events of this type (default: any)
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Events of every domain, including future ones
        #[arg(long, conflicts_with = "domain")]
        any_domain: bool,
        #[command(flatten)]
        by: Actor,
    },
    /// List who may emit what
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

pub(crate) async fn run(grant: Grant, database: &Database, output: &Output) -> Exit {
    match grant {
        Grant::Add { producer, domain, event_type, any_domain: _, by } => {
            let actor = by.name();
            let granted =
                database.event_grant_put(&producer, domain.as_deref(), event_type.as_deref(), &actor);
            output.show(&granted.await?, |granted| {
                let kind = event_type.as_ref().map_or_else(String::new, |name| format!(" of type {name}"));
                let whence =
                    domain.as_ref().map_or_else(|| "any domain".into(), |name| format!("domain {name}"));
                let may = if granted.created { "may now emit" } else { "could already emit" };
                format!("{producer} {may} events{kind} of {whence} (grant {})", granted.grant_id)
            });
        }
        Grant::List { producer } => {
            output.show(&database.event_grant_list(producer.as_deref()).await?, |rows| list(rows));
        }
        Grant::Revoke { grant } => {
            match database.event_grant_revoke(grant).await {
                Err(Error::NotFound(_)) => {
                    anyhow::bail!("there is no grant {grant}; list them with: towpath events grant list")
                }
                other => other?,
            }
            output.show(&json!({ "revoked": grant }), |_| format!("revoked grant {grant}"));
        }
    }
    done()
}

fn list(rows: &[EventGrant]) -> String {
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "any".into());
    let rows = rows.iter().map(|row| {
        [
            row.grant_id.to_string(),
            row.producer.clone(),
            any(&row.event_domain),
            any(&row.event_type),
            format!("{:.0} by {}", row.granted_at, row.granted_by),
        ]
    });
    let head = ["GRANT", "PRODUCER", "DOMAIN", "TYPE", "GRANTED"];
    table_or("no grants; only administrators may emit", head, rows)
}
