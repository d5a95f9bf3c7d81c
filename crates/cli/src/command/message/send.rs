//! `towpath message send`.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use towpath_db::Database;
use towpath_db::message::{Channel, SendOptions};

use crate::command::process::follow;
use crate::moment;
use crate::output::Output;

#[derive(Args)]
pub(crate) struct Send {
    /// To whom: an address, or a number; an e-mail may have several
    #[arg(long, value_name = "ADDRESS", required = true)]
    to: Vec<String>,
    /// The subject of an e-mail
    #[arg(long, required_unless_present = "sms", conflicts_with = "sms")]
    subject: Option<String>,
    /// The text; - reads standard input
    #[arg(long, required_unless_present = "html")]
    text: Option<String>,
    /// The text in HTML; - reads standard input
    #[arg(long, conflicts_with = "sms")]
    html: Option<String>,
    /// From whom, if not from mail_from or sms_from
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// An SMS, not an e-mail
    #[arg(long)]
    sms: bool,
    /// Not before this moment, or this long from now
    #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
    at: Option<Timestamp>,
    /// A second send with this key answers the first one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Who sends it; user@host if not given
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// Follow it until it was accepted or given up; code 0 or 4, 3 if a person must decide
    #[arg(long)]
    wait: bool,
    /// With --wait: stop following after this many seconds, with code 3
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
}

pub(crate) async fn run(send: Send, database: &Database, output: &Output) -> anyhow::Result<ExitCode> {
    let actor = send.by.clone().unwrap_or_else(crate::command::actor);
    let options =
        SendOptions { idempotency_key: send.key.as_deref(), scheduled_at: send.at, actor: Some(&actor) };
    let channel = if send.sms { Channel::Sms } else { Channel::Email };
    let sent = database.message_send(channel, &send.message()?, options).await?;
    output.show(&sent, |sent| {
        let again = if sent.duplicate { "was sent before" } else { "is on its way" };
        let follow = format!("follow with: towpath process watch {}", sent.process_id);
        let follow = if send.wait { String::new() } else { format!("\n{follow}") };
        format!("message {} {again}{follow}", sent.message_id)
    });
    if !send.wait {
        return Ok(ExitCode::SUCCESS);
    }
    follow(sent.process_id, send.timeout, database, output).await
}

impl Send {
    fn message(&self) -> anyhow::Result<Value> {
        let to = match (&self.to[..], self.sms) {
            ([one], _) => json!(one),
            (many, false) => json!(many),
            (_, true) => anyhow::bail!("an SMS goes to one number; send one each"),
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
