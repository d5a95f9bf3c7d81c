//! Bulk actions on every job that matches a filter.
//!
//! The first request only counts and shows a preview. The second starts the work in the background; its progress
//! is a stream, which the page follows. An empty filter is refused, so that nobody acts on every job by mistake.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use towpath_db::Database;
use towpath_db::job_read::JobFilter;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_model::stream::state::Shape;
use towpath_streams::{Append, Create, Messages, Retention, Store};
use uuid::Uuid;

use super::jobs::Asked;
use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::{BULK_MAX, COUNT_BUDGET, STREAM_PAGE_BYTES};
use crate::shell::{self, Shell};

/// The bulk actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Cancel,
    Retry,
}

impl Verb {
    fn read(text: &str) -> Result<Verb, Fault> {
        match text {
            "cancel" => Ok(Verb::Cancel),
            "retry" => Ok(Verb::Retry),
            _ => Err(Fault::Invalid(format!("unknown bulk action {text:?}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Retry => "retry",
        }
    }
}

#[derive(Template)]
#[template(path = "bulk_preview.html")]
struct Preview {
    shell: Shell,
    asked: Asked,
    verb: &'static str,
    reason: String,
    count: i64,
    /// Counting stopped early.
    at_least: bool,
    query: String,
    command: String,
}

/// The progress of a bulk action.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Progress {
    verb: String,
    filter: String,
    total: i64,
    at_least: bool,
    done: i64,
    refused: i64,
    /// The last refusal, as an example.
    example: Option<String>,
    ended: bool,
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Running {
    shell: Shell,
    progress: Progress,
    percent: i64,
}

/// Counts, or starts.
pub(crate) async fn begin(State(app): State<App>, headers: HeaderMap, action: Action) -> Answer {
    let verb = Verb::read(action.text("do"))?;
    let field = |name| action.text(name).to_owned();
    let asked = Asked {
        state: field("state"),
        kind: field("kind"),
        executor: field("executor"),
        actor: field("actor"),
        key: field("key"),
        payload: field("payload"),
        error: field("error"),
        after: field("after"),
        before: field("before"),
        cursor: String::new(),
    };
    let filter = asked.filter()?;
    if filter.is_empty() {
        return Err(Fault::Invalid("set a filter first: bulk actions on every job are not allowed".into()));
    }
    let (count, at_least) = count(&app.database, &filter).await?;
    if action.text("sure") != "yes" {
        let page = Preview {
            shell: Shell::new(action.viewer.clone(), &headers)
                .at("/ui/jobs", format!("{} jobs", verb.name())),
            query: asked.query(),
            command: match verb {
                Verb::Cancel => format!("{} --yes --why …", asked.command("cancel")),
                Verb::Retry => format!("{} --yes", asked.command("retry")),
            },
            asked,
            verb: verb.name(),
            reason: field("reason"),
            count,
            at_least,
        };
        return shell::render(&page);
    }
    let what = format!("jobs matching {}", asked.query());
    action.record(&app, &format!("job {} --matching", verb.name()), &what, None).await?;
    let id = Uuid::now_v7();
    let progress = Progress {
        verb: verb.name().into(),
        filter: asked.query(),
        total: count,
        at_least,
        ..Progress::default()
    };
    open(app.store.as_ref(), id).await?;
    report(app.store.as_ref(), id, &progress).await?;
    let (who, why) = (action.viewer.name.clone(), action.text("reason").to_owned());
    tokio::spawn(work(app, id, filter, verb, progress, who, why));
    Ok(action.go(&format!("/ui/bulk/{id}"), "started", true))
}

/// How many match, counted for a limited time.
async fn count(database: &Database, filter: &JobFilter) -> Result<(i64, bool), Fault> {
    let (begun, mut count, mut cursor) = (Instant::now(), 0, None);
    loop {
        let page = database.job_list(filter, 1000, cursor).await?;
        count += i64::try_from(page.jobs.len()).unwrap_or(i64::MAX);
        cursor = page.cursor;
        match cursor {
            None => return Ok((count, false)),
            Some(_) if begun.elapsed() > COUNT_BUDGET => return Ok((count, true)),
            Some(_) => {}
        }
    }
}

/// Acts on every match, newest first, and reports progress.
async fn work(
    app: App,
    id: Uuid,
    filter: JobFilter,
    verb: Verb,
    mut progress: Progress,
    who: String,
    why: String,
) {
    let why = if why.is_empty() { "from the dashboard".to_owned() } else { why };
    let mut cursor = None;
    loop {
        let page = match app.database.job_list(&filter, 200, cursor).await {
            Ok(page) => page,
            Err(error) => {
                progress.example = Some(error.to_string());
                break;
            }
        };
        for job in &page.jobs {
            let result = match verb {
                Verb::Cancel => app.database.job_cancel(job.job_id, by(&who, &why)).await,
                Verb::Retry => app.database.job_retry(job.job_id, &who).await,
            };
            match result {
                Ok(_) => progress.done += 1,
                Err(error) => {
                    progress.refused += 1;
                    progress.example = Some(error.to_string());
                }
            }
        }
        progress.total = progress.total.max(progress.done + progress.refused);
        cursor = page.cursor;
        let _ = report(app.store.as_ref(), id, &progress).await;
        app.live.nudge();
        if cursor.is_none() || progress.done + progress.refused >= BULK_MAX {
            break;
        }
    }
    progress.ended = true;
    progress.at_least = false;
    let _ = report(app.store.as_ref(), id, &progress).await;
    app.live.nudge();
    tracing::info!(
        actor = who,
        done = progress.done,
        refused = progress.refused,
        "dashboard: bulk {} finished",
        verb.name()
    );
}

fn name(id: Uuid) -> StreamName {
    StreamName::reserved("default", &format!("ui/bulk-{id}")).expect("a plain name")
}

async fn open(store: &dyn Store, id: Uuid) -> Result<(), Fault> {
    let expiry = Some(towpath_model::stream::expiry::Expiry::Sliding { seconds: 86_400 });
    let create = Create {
        shape: Shape {
            content_type: ContentType::parse("application/json"),
            expiry,
            closed: false,
            fork: None,
        },
        messages: Messages::default(),
        retention: Retention { age_seconds: None, bytes: Some(64 << 10) },
    };
    Ok(store.create(name(id), create).await.map(drop)?)
}

async fn report(store: &dyn Store, id: Uuid, progress: &Progress) -> Result<(), Fault> {
    let line = serde_json::to_vec(progress).map_err(|error| Fault::Broken(error.to_string()))?;
    let append = Append { messages: Messages::one(line), ..Append::default() };
    Ok(store.append(name(id), append).await.map(drop)?)
}

/// Shows the progress.
pub(crate) async fn show(shell: Shell, State(app): State<App>, Path(id): Path<String>) -> Answer {
    let id = id.parse().map_err(|_| Fault::NotFound(format!("there is no bulk action {id:?}")))?;
    let store: &Arc<dyn Store> = &app.store;
    let page = store.read(&name(id), Start::Beginning, STREAM_PAGE_BYTES).await?;
    let last = page.batch.messages().last();
    let progress: Progress = last.and_then(|line| serde_json::from_slice(&line).ok()).unwrap_or_default();
    let percent = (progress.done + progress.refused) * 100 / progress.total.max(1);
    let shell = shell.at("/ui/jobs", format!("{} jobs", progress.verb)).live("jobs");
    shell::render(&Running { shell, progress, percent })
}
