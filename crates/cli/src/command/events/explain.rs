//! `towpath events explain`: who would receive an event, and what routes would do with it.

use anyhow::bail;
use clap::Args;
use towpath_db::Database;
use towpath_db::event::{Explained, Question, Recipient, Recipients};
use towpath_model::event::recipient::Step;
use towpath_model::id::EventId;

use crate::input;
use crate::output::{Exit, Output, done, table};

#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    thought: Thought,
    /// Route worker
    #[arg(long, default_value = "default")]
    worker: String,
}

/// A stored event, or a hypothetical one.
#[derive(Args)]
pub(crate) struct Thought {
    /// Id of a stored event
    #[arg(conflicts_with_all = ["domain", "event_type", "stream", "subject_table", "payload"])]
    event: Option<EventId>,
    /// Domain of a hypothetical event
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
            _ => bail!("give the id of a stored event, or describe one with --domain and --type"),
        })
    }
}

pub(crate) async fn run(explain: Explain, database: &Database, output: &Output) -> Exit {
    let question = explain.thought.question()?;
    output.show(&database.route_explain(&question, &explain.worker).await?, in_words);
    done()
}

fn in_words(explained: &Explained) -> String {
    let rows = explained.decisions.iter().map(|one| {
        [
            one.route_name.clone().unwrap_or_else(|| "-".into()),
            one.mode.map_or_else(String::new, |mode| mode.to_string()),
            one.decision.to_string(),
            one.reason.clone().unwrap_or_default(),
            one.target_kind.clone().unwrap_or_default(),
        ]
    });
    let decisions = table(["ROUTE", "MODE", "DECISION", "REASON", "TARGET"], rows);
    format!("{}\n\n{decisions}", recipients_in_words(&explained.recipients))
}

/// Who receives it, by which rule, and who muted it.
pub(crate) fn recipients_in_words(resolved: &Recipients) -> String {
    let mut lines = vec![];
    if !resolved.resolution_enabled {
        lines
            .push("subscriptions are disabled (gate queue.subscription_resolution.enabled is closed)".into());
    }
    lines.push(match resolved.broadcast {
        true => "no subscription matches, so it is a broadcast: every matching route receives it".to_owned(),
        false => format!("recipients: {} ({})", names(&resolved.recipients), in_plain_words(resolved.step)),
    });
    if !resolved.suppressed.is_empty() {
        lines.push(format!("muted by {}", names(&resolved.suppressed)));
    }
    lines.join("\n")
}

fn names(recipients: &[Recipient]) -> String {
    recipients.iter().map(|one| one.recipient_ref.as_str()).collect::<Vec<_>>().join(", ")
}

fn in_plain_words(step: Step) -> &'static str {
    match step {
        Step::ExactMatch => "a subscription to this type and stream",
        Step::DomainWildcard => "a subscription to this stream and any type",
        Step::StreamWildcard => "a subscription to this type and any stream",
        Step::DomainOnly => "a subscription to the whole domain",
        Step::BroadcastFallback => "no subscription",
    }
}
