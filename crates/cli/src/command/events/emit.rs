//! `towpath events emit`.

use clap::Args;
use towpath_db::Database;
use towpath_db::event::NewEvent;
use towpath_model::id::EventId;

use crate::command::Actor;
use crate::input;
use crate::output::{Exit, Output, done};

#[derive(Args)]
pub(crate) struct Emit {
    /// Its domain, such as orders
    domain: String,
    /// What happened, such as created
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// Stream within the domain, such as audit or alert
    #[arg(long)]
    stream: Option<String>,
    /// The table it is about
    #[arg(long, value_name = "TABLE")]
    subject_table: Option<String>,
    /// The row it is about
    #[arg(long, value_name = "REF")]
    subject_ref: Option<String>,
    /// JSON object for receivers, with references and no secrets; @FILE reads a file, - standard input
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Ordering key: events with the same key are routed in order (default: the subject)
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Your own id, a UUID v7 of about now; emitting it again changes nothing
    #[arg(long, value_name = "UUID")]
    event_id: Option<EventId>,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(emit: Emit, database: &Database, output: &Output) -> Exit {
    let emitted = database.event_emit(&emit.into_event()?).await?;
    output.show(&emitted, |emitted| match emitted.duplicate {
        true => format!("event {} already exists", emitted.event_id),
        false => format!("emitted event {}", emitted.event_id),
    });
    done()
}

impl Emit {
    fn into_event(self) -> anyhow::Result<NewEvent> {
        let payload = input::object(self.payload.as_deref(), "payload")?;
        let mut event = NewEvent::new(self.domain, self.event_type).payload(&payload)?.actor(self.by.name());
        let texts = [
            (self.stream, NewEvent::stream as fn(NewEvent, String) -> NewEvent),
            (self.subject_table, NewEvent::subject_table),
            (self.subject_ref, NewEvent::subject_ref),
            (self.key, NewEvent::ordering_key),
        ];
        for (text, set) in texts {
            if let Some(text) = text {
                event = set(event, text);
            }
        }
        Ok(match self.event_id {
            Some(id) => event.event_id(id),
            None => event,
        })
    }
}
