//! `towpath message send`.

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::io::Read;
use towpath_db::Database;
use towpath_db::message::{Channel, SendOptions};

use crate::command::Actor;
use crate::command::process::follow;
use crate::moment;
use crate::output::{Exit, Output, done};

#[derive(Args)]
pub(crate) struct Send {
    /// Recipient: an e-mail address or a phone number; repeatable for e-mail
    #[arg(long, value_name = "ADDRESS", required = true)]
    to: Vec<String>,
    /// Subject of an e-mail
    #[arg(long, required_unless_present = "sms", conflicts_with = "sms")]
    subject: Option<String>,
    /// Plain text; - reads standard input
    #[arg(long, required_unless_present = "html")]
    text: Option<String>,
    /// HTML text; - reads standard input
    #[arg(long, conflicts_with = "sms")]
    html: Option<String>,
    /// Sender (default: mail_from or sms_from)
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Send an SMS instead of an e-mail
    #[arg(long)]
    sms: bool,
    /// Send no earlier than this time, or this duration from now
    #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
    at: Option<Timestamp>,
    /// Idempotency key: sending again with it returns the first message
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    by: Actor,
    /// Watch it until it is accepted (exit code 0), given up (4) or held for a decision (3)
    #[arg(long)]
    wait: bool,
    /// With --wait: stop watching after this many seconds and exit with code 3
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
}

pub(crate) async fn run(send: Send, database: &Database, output: &Output) -> Exit {
    let actor = send.by.name();
    let options =
        SendOptions { idempotency_key: send.key.as_deref(), scheduled_at: send.at, actor: Some(&actor) };
    let channel = if send.sms { Channel::Sms } else { Channel::Email };
    let sent = database.message_send(channel, &send.message()?, options).await?;
    output.show(&sent, |sent| {
        let again = if sent.duplicate { "already exists" } else { "is queued" };
        let follow = format!("watch it with: towpath process watch {}", sent.process_id);
        let follow = if send.wait { String::new() } else { format!("\n{follow}") };
        format!("message {} {again}{follow}", sent.message_id)
    });
    if !send.wait {
        return done();
    }
    follow(sent.process_id, send.timeout, database, output).await
}

impl Send {
    fn message(&self) -> anyhow::Result<Value> {
        let to = match (&self.to[..], self.sms) {
            ([one], _) => json!(one),
            (many, false) => json!(many),
            (_, true) => anyhow::bail!("an SMS has one recipient; send one SMS per number"),
        };
        let mut message = Map::from_iter([("to".to_owned(), to)]);
        for (field, value) in [("from", &self.from), ("subject", &self.subject)] {
            if let Some(value) = value {
                message.insert(field.into(), json!(value));
            }
        }
        for (field, value) in [("text", &self.text), ("html", &self.html)] {
            if let Some(value) = value {
                message.insert(field.into(), json!(given(value)?));
            }
        }
        Ok(Value::Object(message))
    }
}

fn given(value: &str) -> anyhow::Result<String> {
    if value != "-" {
        return Ok(value.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(text)
}
