//! `towpath events tail`.
//!
//! Following polls a few times a second; nothing depends on a notification.

use std::time::Duration;

use clap::Args;
use towpath_db::Database;
use towpath_db::event::{Event, EventFilter, From};

use crate::input;
use crate::output::{Exit, Output, done};

/// Often enough for a person; four cheap reads a second for the database.
const POLL: Duration = Duration::from_millis(250);
/// Events per call while following.
const PAGE: i32 = 500;

#[derive(Args)]
pub(crate) struct Tail {
    /// Only of this domain
    #[arg(long)]
    domain: Option<String>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of this stream
    #[arg(long)]
    stream: Option<String>,
    /// Only about this table
    #[arg(long, value_name = "TABLE")]
    subject_table: Option<String>,
    /// Only about this row
    #[arg(long, value_name = "REF")]
    subject_ref: Option<String>,
    /// Only caused by this actor
    #[arg(long)]
    actor: Option<String>,
    /// Only if the payload contains this, such as {"order": {"paid": true}}
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Start after this position, instead of with the newest
    #[arg(long, value_name = "POSITION")]
    after: Option<i64>,
    /// Maximum number to show
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=1000))]
    limit: i32,
    /// Print new events until interrupted
    #[arg(long, short)]
    follow: bool,
}

pub(crate) async fn run(tail: Tail, database: &Database, output: &Output) -> Exit {
    let (limit, follow, after) = (tail.limit, tail.follow, tail.after);
    let filter = tail.into_filter()?;
    let mut position = match after {
        Some(after) => forward(&filter, after, limit, database, output).await?,
        None => newest(&filter, limit, database, output).await?,
    };
    if !follow {
        return done();
    }
    let shutdown = crate::shutdown::on_signal()?;
    while !shutdown.is_cancelled() {
        let page = database.event_list(&filter, From::After(position), PAGE).await?;
        print(&page.events, output);
        position = page.position;
        if !page.more {
            let _ = tokio::time::timeout(POLL, shutdown.cancelled()).await;
        }
    }
    done()
}

/// Prints up to `limit` events after a position; returns where to continue.
async fn forward(
    filter: &EventFilter,
    mut after: i64,
    limit: i32,
    database: &Database,
    output: &Output,
) -> anyhow::Result<i64> {
    let mut room = limit;
    loop {
        let page = database.event_list(filter, From::After(after), room).await?;
        print(&page.events, output);
        room -= i32::try_from(page.events.len()).unwrap_or(room);
        after = page.position;
        if room == 0 || !page.more {
            return Ok(after);
        }
    }
}

/// Prints the newest `limit` events, oldest first; returns where to continue.
async fn newest(
    filter: &EventFilter,
    limit: i32,
    database: &Database,
    output: &Output,
) -> anyhow::Result<i64> {
    let (mut events, mut from, mut last) = (vec![], From::Newest, None);
    // The database reads a bounded number of events per call: a page may be empty.
    loop {
        let room = limit - i32::try_from(events.len()).unwrap_or(limit);
        let page = database.event_list(filter, from, room).await?;
        last = last.or(Some(page.last_position));
        events.extend(page.events);
        from = From::Before(page.position);
        if !page.more || events.len() >= limit as usize {
            break;
        }
    }
    events.reverse();
    print(&events, output);
    Ok(last.unwrap_or(0))
}

fn print(events: &[Event], output: &Output) {
    for event in events {
        output.event(event, in_a_line);
    }
}

fn in_a_line(event: &Event) -> String {
    let mut line = format!(
        "{:>8}  {:.3}  {}/{}",
        event.position.unwrap_or(0),
        event.created_at,
        event.event_domain,
        event.event_type
    );
    for (name, value) in
        [("stream", &event.event_stream), ("about", &event.subject_table), ("row", &event.subject_ref)]
    {
        if let Some(value) = value {
            line += &format!("  {name}={value}");
        }
    }
    format!("{line}  {}  {}", event.event_id, event.payload)
}

impl Tail {
    fn into_filter(self) -> anyhow::Result<EventFilter> {
        Ok(EventFilter {
            event_domain: self.domain,
            event_type: self.event_type,
            event_stream: self.stream,
            subject_table: self.subject_table,
            subject_ref: self.subject_ref,
            actor: self.actor,
            payload: self
                .payload
                .as_deref()
                .map(|given| input::object(Some(given), "payload"))
                .transpose()?,
        })
    }
}
