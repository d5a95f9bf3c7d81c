//! `towpath subscriptions list | add | mute | unmute | remove | explain | broadcasts | reader`.

mod reader;

use clap::{Args, Subcommand};
use serde_json::json;
use towpath_db::Database;
use towpath_db::event::{BroadcastUsed, EventSubscription, EventSubscriptionSpec};
use towpath_model::id::SubscriptionId;

use super::events::{Thought, recipients_in_words};
use crate::command::Actor;
use crate::input;
use crate::output::{Exit, Output, done, table, table_or};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Subscriptions {
    /// List event subscriptions
    List {
        /// Only of this recipient
        recipient: Option<String>,
    },
    /// Subscribe a recipient to events of a domain, or exclude it with --mute
    Add(Add),
    /// Mute a subscription: its recipient does not receive matching events
    Mute(Named),
    /// Unmute a subscription
    Unmute(Named),
    /// Remove a subscription; the recipient's broader subscriptions then apply
    Remove {
        /// Its id, as `subscriptions list` shows it
        subscription: SubscriptionId,
    },
    /// Explain who would receive an event and by which rule; changes nothing
    Explain(Thought),
    /// Show events of the last 24 hours without a subscriber
    Broadcasts,
    /// Manage who may read events as a recipient: a database login, or the tokens of an executor
    #[command(subcommand)]
    Reader(reader::Reader),
}

#[derive(Args)]
pub(crate) struct Add {
    /// Recipient: role:NAME, agency:NAME, user:NAME or agent:NAME
    recipient: String,
    /// Event domain
    domain: String,
    /// Only of this type (default: any)
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of this stream (default: any)
    #[arg(long)]
    stream: Option<String>,
    /// Only about this table (default: any)
    #[arg(long, value_name = "TABLE")]
    subject_table: Option<String>,
    /// Only if the payload contains this JSON object
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    /// Exclude these events instead, whatever broader subscriptions allow
    #[arg(long)]
    mute: bool,
    /// Notes for operators
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    by: Actor,
}

#[derive(Args)]
pub(crate) struct Named {
    /// Its id, as `subscriptions list` shows it
    subscription: SubscriptionId,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(which: Subscriptions, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match which {
            Subscriptions::List { recipient } => {
                let rows = database.event_subscription_list(recipient.as_deref()).await?;
                output.show(&rows, |rows| list(rows));
            }
            Subscriptions::Add(add) => put(add, &database, output).await?,
            Subscriptions::Mute(named) => {
                let id = named.subscription;
                database.event_subscription_mute(id, &named.by.name()).await?;
                output.show(&json!({ "subscription_id": id, "mute": true }), |_| {
                    format!("muted subscription {id}; undo with: towpath subscriptions unmute {id}")
                });
            }
            Subscriptions::Unmute(named) => {
                let id = named.subscription;
                database.event_subscription_unmute(id, &named.by.name()).await?;
                output.show(&json!({ "subscription_id": id, "mute": false }), |_| {
                    format!("unmuted subscription {id}")
                });
            }
            Subscriptions::Remove { subscription } => {
                database.event_subscription_delete(subscription).await?;
                output.show(&json!({ "removed": subscription }), |_| {
                    format!("removed subscription {subscription}")
                });
            }
            Subscriptions::Explain(thought) => {
                output.show(&database.resolve_recipients(&thought.question()?).await?, recipients_in_words);
            }
            Subscriptions::Broadcasts => {
                output.show(&database.event_broadcasts().await?, |rows| broadcasts(rows));
            }
            Subscriptions::Reader(reader) => reader::run(reader, &database, output).await?,
        }
        done()
    })
    .await
}

async fn put(add: Add, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = add.by.name();
    let spec = EventSubscriptionSpec {
        recipient_ref: &add.recipient,
        event_domain: &add.domain,
        event_type: add.event_type.as_deref(),
        event_stream: add.stream.as_deref(),
        scope_subject_table: add.subject_table.as_deref(),
        scope_filter: input::object(add.filter.as_deref(), "filter")?,
        mute: add.mute,
        notes: add.notes.as_deref(),
        actor: &actor,
    };
    let made = database.event_subscription_put(&spec).await?;
    output.show(&made, |made| {
        let what = if add.mute { "is excluded from" } else { "is subscribed to" };
        let done = if made.created { "" } else { ", unchanged" };
        format!("{} {what} {} (subscription {}{done})", add.recipient, add.domain, made.subscription_id)
    });
    Ok(())
}

fn list(rows: &[EventSubscription]) -> String {
    if rows.is_empty() {
        return "no subscriptions, so every event is a broadcast; \
                add one with: towpath subscriptions add role:NAME DOMAIN"
            .into();
    }
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "any".into());
    let rows = rows.iter().map(|row| {
        let filter = row.scope_filter.to_string();
        [
            row.subscription_id.to_string(),
            row.recipient_ref.clone(),
            row.event_domain.clone(),
            any(&row.event_type),
            any(&row.event_stream),
            any(&row.scope_subject_table),
            if filter == "{}" { String::new() } else { filter },
            if row.mute { "muted" } else { "" }.to_owned(),
        ]
    });
    table(["SUBSCRIPTION", "RECIPIENT", "DOMAIN", "TYPE", "STREAM", "TABLE", "FILTER", ""], rows)
}

fn broadcasts(rows: &[BroadcastUsed]) -> String {
    let rows = rows.iter().map(|row| {
        [
            row.event_domain.clone(),
            row.event_type.clone(),
            row.broadcast_events_24h.to_string(),
            row.events_24h.to_string(),
            format!("{} %", row.broadcast_percent),
        ]
    });
    let head = ["DOMAIN", "TYPE", "BROADCAST", "EVENTS", "SHARE"];
    table_or("every event of the last 24 hours had a subscriber", head, rows)
}
