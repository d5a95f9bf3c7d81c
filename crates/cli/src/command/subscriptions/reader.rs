//! `towpath subscriptions reader add | list | remove`: who may read events as a recipient (R05).

use clap::{Args, Subcommand};
use serde_json::json;
use towpath_db::event::{EventActor, EventActorSpec};
use towpath_db::{Database, Error};

use crate::command::Actor;
use crate::output::{Output, table_or};

#[derive(Subcommand)]
pub(crate) enum Reader {
    /// Register a recipient and who may read as it; adding it again replaces that
    Add(Add),
    /// List registered recipients
    List,
    /// Remove a recipient's registration
    Remove {
        /// The recipient
        recipient: String,
    },
}

#[derive(Args)]
pub(crate) struct Add {
    /// Recipient: role:NAME, agency:NAME, user:NAME or agent:NAME
    recipient: String,
    /// Database login, or group of logins, that may read as it
    #[arg(long, value_name = "ROLE")]
    login: Option<String>,
    /// Executor whose tokens may read as it over HTTP
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
    /// Notes for operators
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(reader: Reader, database: &Database, output: &Output) -> anyhow::Result<()> {
    match reader {
        Reader::Add(add) => {
            let spec = EventActorSpec {
                recipient_ref: &add.recipient,
                login_role: add.login.as_deref(),
                executor_id: add.executor.as_deref(),
                notes: add.notes.as_deref(),
                actor: &add.by.name(),
            };
            database.event_actor_put(&spec).await?;
            output.show(&json!({ "recipient_ref": add.recipient }), |_| {
                let who = match (&add.login, &add.executor) {
                    (None, None) => "no one".to_owned(),
                    (Some(login), None) => format!("login {login}"),
                    (None, Some(executor)) => format!("tokens of {executor}"),
                    (Some(login), Some(executor)) => format!("login {login} and tokens of {executor}"),
                };
                format!("registered {}, readable by {who}", add.recipient)
            });
        }
        Reader::List => output.show(&database.event_actor_list().await?, |rows| list(rows)),
        Reader::Remove { recipient } => {
            match database.event_actor_delete(&recipient).await {
                Err(Error::NotFound(_)) => {
                    anyhow::bail!(
                        "{recipient} is not registered; list recipients with: towpath subscriptions reader list"
                    )
                }
                other => other?,
            }
            output.show(&json!({ "removed": recipient }), |_| format!("removed reader {recipient}"));
        }
    }
    Ok(())
}

fn list(rows: &[EventActor]) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let rows = rows.iter().map(|row| {
        [
            row.recipient_ref.clone(),
            text(&row.login_role),
            text(&row.executor_id),
            row.subscriptions.to_string(),
            format!("{:.0} by {}", row.registered_at, row.registered_by),
        ]
    });
    let head = ["RECIPIENT", "LOGIN", "EXECUTOR", "SUBSCRIPTIONS", "REGISTERED"];
    table_or("no readers; register one with: towpath subscriptions reader add", head, rows)
}
