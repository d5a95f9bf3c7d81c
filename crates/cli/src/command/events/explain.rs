//! `towpath events explain`: who would hear an event, and what routes would do with it.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use towpath_db::Database;
use towpath_db::event::{Explained, Question, Recipient, Recipients};
use towpath_model::event::recipient::Step;
use towpath_model::id::EventId;

use crate::input;
use crate::output::{Output, table};

#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    thought: Thought,
    /// The route worker that is asked
    #[arg(long, default_value = "default")]
    worker: String,
}

/// An event to ask about: a stored one, or one only thought of.
#[derive(Args)]
pub(crate) struct Thought {
    /// A stored event
    #[arg(conflicts_with_all = ["domain", "event_type", "stream", "subject_table", "payload"])]
    event: Option<EventId>,
    /// The domain of one only thought of
    #[arg(long)]
    domain: Option<String>,
    /// Its type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Its stream
    #[arg(long)]
    stream: Option<String>,
    /// The table it is about
    #[arg(long, value_name = "TABLE")]
    subject_table: Option<String>,
    /// Its payload, a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
}

impl Thought {
    pub(crate) fn question(self) -> anyhow::Result<Question> {
        Ok(match (self.event, self.domain, self.event_type) {
            (Some(event_id), ..) => Question::Stored { event_id },
            (None, Some(event_domain), Some(event_type)) => Question::Imagined {
                event_domain,
                event_type,
                event_stream: self.stream,
                subject_table: self.subject_table,
                payload: input::object(self.payload.as_deref(), "payload")?,
            },
            _ => bail!("name a stored event by its id, or describe one with --domain and --type"),
        })
    }
}

pub(crate) async fn run(explain: Explain, database: &Database, output: &Output) -> anyhow::Result<ExitCode> {
    let question = explain.thought.question()?;
    output.show(&database.route_explain(&question, &explain.worker).await?, in_words);
    Ok(ExitCode::SUCCESS)
}

fn in_words(explained: &Explained) -> String {
    let rows: Vec<_> = explained
        .decisions
        .iter()
        .map(|one| {
            [
                one.route_name.clone().unwrap_or_else(|| "-".into()),
                one.mode.map_or_else(String::new, |mode| mode.to_string()),
                one.decision.to_string(),
                one.reason.clone().unwrap_or_default(),
                one.target_kind.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let decisions = table(["ROUTE", "MODE", "DECISION", "REASON", "TARGET"], &rows);
    format!("{}\n\n{decisions}", recipients_in_words(&explained.recipients))
}

/// Who hears it, by which rule, and who does not.
pub(crate) fn recipients_in_words(heard: &Recipients) -> String {
    let mut lines = vec![];
    if !heard.resolution_enabled {
        lines.push("subscriptions are switched off (queue.subscription_resolution.enabled)".into());
    }
    lines.push(match heard.broadcast {
        true => "nobody subscribed it: a broadcast, for every route that takes it".to_owned(),
        false => format!("heard by {} ({})", names(&heard.recipients), in_plain_words(heard.step)),
    });
    if !heard.suppressed.is_empty() {
        lines.push(format!("muted for {}", names(&heard.suppressed)));
    }
    lines.join("\n")
}

fn names(recipients: &[Recipient]) -> String {
    recipients.iter().map(|one| one.recipient_ref.as_str()).collect::<Vec<_>>().join(", ")
}

fn in_plain_words(step: Step) -> &'static str {
    match step {
        Step::ExactMatch => "a subscription with this type and stream",
        Step::DomainWildcard => "a subscription with this stream and any type",
        Step::StreamWildcard => "a subscription with this type and any stream",
        Step::DomainOnly => "a subscription with nothing but the domain",
        Step::BroadcastFallback => "no subscription",
    }
}
