//! Live pages: an internal stream names the topics that changed.
//!
//! While a page is open, one task reads a fingerprint of each topic every second and appends the names of those
//! that changed to a reserved stream. Pages follow it as server-sent events and reload.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_model::stream::state::Shape;
use towpath_streams::{Append, Create, Messages, Retention, Step, Store};

use crate::App;
use crate::access::Viewer;
use crate::fault::Fault;
use crate::limits::{LAGGING_MAX, LIVE_SECONDS, LIVE_TICK};

/// Watches for changes.
#[derive(Clone)]
pub(crate) struct Live {
    watchers: Arc<AtomicUsize>,
    wake: Arc<Notify>,
    /// Open pages must not hold up a stop.
    shutdown: CancellationToken,
}

impl Live {
    pub(crate) fn new(database: Database, store: Arc<dyn Store>, shutdown: CancellationToken) -> Live {
        let live = Live { watchers: Arc::default(), wake: Arc::default(), shutdown: shutdown.clone() };
        tokio::spawn(shutdown.run_until_cancelled_owned(live.clone().watch(database, store)));
        live
    }

    /// Checks for changes at once, after an action.
    pub(crate) fn nudge(&self) {
        self.wake.notify_one();
    }

    async fn watch(self, database: Database, store: Arc<dyn Store>) {
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        loop {
            if self.watchers.load(Ordering::Relaxed) == 0 {
                self.wake.notified().await;
            }
            let now = fingerprints(&database, store.as_ref()).await;
            let moved: Vec<&str> = now
                .iter()
                .filter(|(topic, print)| known.get(*topic) != Some(*print))
                .map(|(topic, _)| topic.as_str())
                .collect();
            if !moved.is_empty()
                && let Err(error) = append_topics(store.as_ref(), &moved.join(" ")).await
            {
                tracing::warn!("cannot publish changes to live pages: {error}");
            }
            known = now;
            let _ = tokio::time::timeout(LIVE_TICK, self.wake.notified()).await;
            // An action may have changed more in the meantime.
            tokio::task::yield_now().await;
        }
    }
}

/// A fingerprint of each topic. A database that does not respond has none.
async fn fingerprints(database: &Database, store: &dyn Store) -> BTreeMap<String, String> {
    let marks = database.health_marks().await.unwrap_or_default();
    let mut prints: BTreeMap<_, _> =
        marks.into_iter().map(|(topic, mark)| (topic, mark.unwrap_or_default())).collect();
    prints.insert("streams".into(), store.count("default").to_string());
    let sessions = format!("{:?}{:?}", store.session_counts(), store.lagging(LAGGING_MAX));
    prints.insert("sessions".into(), sessions);
    prints
}

fn name() -> StreamName {
    StreamName::reserved("default", "ui/live").expect("a plain name")
}

/// Appends one line, and creates the stream if it is missing. It keeps one hour.
async fn append_topics(store: &dyn Store, topics: &str) -> Result<(), towpath_streams::Error> {
    let append = Append { messages: Messages::one(topics.to_owned()), ..Append::default() };
    match store.append(name(), append.clone()).await {
        Err(towpath_streams::Error::NotFound(_)) => {
            open(store).await?;
            store.append(name(), append).await.map(drop)
        }
        other => other.map(drop),
    }
}

async fn open(store: &dyn Store) -> Result<(), towpath_streams::Error> {
    let create = Create {
        shape: Shape {
            content_type: ContentType::parse("text/plain"),
            expiry: None,
            closed: false,
            fork: None,
        },
        messages: Messages::default(),
        retention: Retention { age_seconds: Some(3_600), bytes: None },
    };
    store.create(name(), create).await.map(drop)
}

/// Counts an open connection.
struct Watching(Arc<AtomicUsize>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `GET /ui/live`: the topics that change, as server-sent events.
pub(crate) async fn follow(
    _: Viewer,
    State(app): State<App>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Fault> {
    let follower = match app.store.follow(&name(), Start::Now) {
        Err(towpath_streams::Error::NotFound(_)) => {
            open(app.store.as_ref()).await?;
            app.store.follow(&name(), Start::Now)?
        }
        other => other?,
    };
    app.live.watchers.fetch_add(1, Ordering::Relaxed);
    let watching = Watching(app.live.watchers.clone());
    app.live.nudge();
    let end = Instant::now() + Duration::from_secs(LIVE_SECONDS);
    let shutdown = app.live.shutdown.clone();
    let state = (follower, watching, shutdown);
    let events = futures_util::stream::unfold(state, move |(mut follower, watching, shutdown)| async move {
        let next = tokio::time::timeout_at(end, follower.next());
        match shutdown.run_until_cancelled(next).await {
            Some(Ok(Ok(Step::Data { batch, .. }))) => {
                let topics: Vec<_> =
                    batch.messages().map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
                Some((Ok(Event::default().data(topics.join(" "))), (follower, watching, shutdown)))
            }
            _ => None,
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
