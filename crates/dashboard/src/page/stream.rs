//! `/ui/stream`: one stream and its messages, live.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use serde::Deserialize;
use tokio::time::Instant;
use towpath_model::stream::content_type::Mode;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_model::stream::state::Accepted;
use towpath_streams::{Head, Step};

use crate::App;
use crate::access::Viewer;
use crate::fault::{Answer, Fault};
use crate::filters::{self, percent};
use crate::limits::{LIVE_SECONDS, MESSAGE_CHARS_MAX, PRODUCERS_MAX, STREAM_PAGE_BYTES};
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    project: String,
    id: String,
    offset: String,
}

impl Asked {
    fn name(&self) -> Result<StreamName, Fault> {
        let project = if self.project.is_empty() { "default" } else { &self.project };
        StreamName::new(project, &self.id)
            .ok_or_else(|| Fault::NotFound(format!("{:?} is not a stream", self.id)))
    }

    fn start(&self) -> Result<Start, Fault> {
        let text = if self.offset.is_empty() { "-1" } else { &self.offset };
        Start::parse(text).ok_or_else(|| Fault::Invalid(format!("{text:?} is not an offset of this stream")))
    }
}

#[derive(Template)]
#[template(path = "stream.html")]
struct Page {
    shell: Shell,
    project: String,
    id: String,
    head: Head,
    /// Idempotent producers and their last sequence numbers.
    producers: Vec<(Arc<str>, Accepted)>,
    messages: Vec<String>,
    /// Where the next page starts, if there is one.
    next: Option<String>,
    /// Where the browser continues live, if this page reached the tail.
    follow: Option<String>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Query(asked): Query<Asked>) -> Answer {
    let name = asked.name()?;
    let page = app.store.read(&name, asked.start()?, STREAM_PAGE_BYTES).await?;
    let place =
        format!("project={}&id={}&offset={}", percent(&name.project), percent(&name.id), page.batch.end());
    let up_to_date = page.is_up_to_date();
    let page = Page {
        shell: shell.at("/ui/streams", name.id.to_string()),
        project: name.project.to_string(),
        id: name.id.to_string(),
        producers: app.store.producers(&name, PRODUCERS_MAX)?,
        messages: page.batch.messages().map(|message| text(&message, &page.head)).collect(),
        next: (!up_to_date).then(|| format!("/ui/stream?{place}")),
        follow: (up_to_date && !page.head.closed).then(|| format!("/ui/stream/follow?{place}")),
        head: page.head,
    };
    shell::render(&page)
}

/// New messages as server-sent events.
pub(crate) async fn follow(
    _: Viewer,
    State(app): State<App>,
    Query(asked): Query<Asked>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Fault> {
    let name = asked.name()?;
    let head = app.store.head(&name)?;
    let follower = app.store.follow(&name, asked.start()?)?;
    let end = Instant::now() + Duration::from_secs(LIVE_SECONDS);
    let events = futures_util::stream::unfold((follower, head), move |(mut follower, head)| async move {
        let event = match tokio::time::timeout_at(end, follower.next()).await {
            Ok(Ok(Step::Data { batch, .. })) => {
                let messages: Vec<String> = batch.messages().map(|message| text(&message, &head)).collect();
                Event::default().event("messages").id(batch.end().to_string()).json_data(messages).ok()?
            }
            _ => return None,
        };
        Some((Ok(event), (follower, head)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// A message as text; a JSON value is stored with a trailing comma.
pub(super) fn text(bytes: &[u8], head: &Head) -> String {
    let bytes = match head.content_type.mode() {
        Mode::Json => bytes.strip_suffix(b",").unwrap_or(bytes),
        Mode::Text | Mode::Bytes => bytes,
    };
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], bytes.len()),
        None => text.into_owned(),
    }
}
