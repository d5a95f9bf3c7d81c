//! The reserved `__ds` API: consumers that are woken when streams grow, by a webhook or by
//! a message in a stream they follow.
//!
//! `routes` answers requests, `worker` sends wakes and ends leases, `journal` makes every change
//! durable before it is answered. `towpath_model::stream::subscription` decides.

mod journal;
mod keys;
mod routes;
mod webhook;
mod worker;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::subscription::{Change, Subscription};
use towpath_streams::{Error, Store, Watch};

use super::settings::Settings;
use crate::limits;
use journal::{Journal, Key};
use keys::Keys;
#[cfg(test)]
pub(crate) use routes::template;
pub(super) use routes::{brings_its_own_token, unavailable};
use webhook::{Reach, Sender};

/// All subscriptions of this server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Subscriptions(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    keys: Keys,
    sender: Sender,
    reach: Reach,
    /// The public URL of this server, for URLs in webhooks.
    base_url: String,
    all: RwLock<BTreeMap<Key, Arc<Entry>>>,
    count: AtomicUsize,
    /// Held while a subscription is created, so that no two get the same name.
    creating: tokio::sync::Mutex<()>,
    /// Streams that grew or were deleted since the last look of the worker: a set, so that a busy
    /// stream is looked at once.
    grown: Mutex<HashSet<StreamName>>,
    news: Notify,
    deliveries: Arc<Semaphore>,
}

/// One subscription. Its lock is held while a change becomes durable, so that
/// decisions about it are made one after the other.
struct Entry {
    key: Key,
    state: tokio::sync::Mutex<State>,
}

struct State {
    subscription: Subscription,
    journal: Journal,
    /// Set when it is deleted; a request may still wait for the lock then.
    is_gone: bool,
}

impl Subscriptions {
    /// Reads the stored subscriptions.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        settings: &Settings,
        base_url: String,
    ) -> Result<Subscriptions, Error> {
        let reach = if settings.webhook_local { Reach::AndLocal } else { Reach::Public };
        let sender = Sender::new(reach).map_err(|error| Error::Io {
            context: "cannot create a webhook client".to_owned(),
            message: error.to_string(),
            kind: std::io::ErrorKind::Other,
        })?;
        let keys = Keys::open(&*store).await?;
        let found = Journal::read_all(&*store).await?;
        let all: BTreeMap<_, _> = found
            .into_iter()
            .map(|(key, subscription, journal)| (key.clone(), Entry::new(key, subscription, journal)))
            .collect();
        Ok(Subscriptions(Arc::new(Inner {
            store,
            keys,
            sender,
            reach,
            base_url,
            count: AtomicUsize::new(all.len()),
            all: RwLock::new(all),
            creating: tokio::sync::Mutex::default(),
            grown: Mutex::default(),
            news: Notify::new(),
            deliveries: Arc::new(Semaphore::new(limits::WEBHOOKS_MAX)),
        })))
    }

    /// For the store. Weak, because this holds the store.
    pub(crate) fn watcher(&self) -> Weak<dyn Watch> {
        let inner: Arc<dyn Watch> = self.0.clone();
        Arc::downgrade(&inner)
    }

    /// The streams of a project that grew since the last look of the worker.
    fn grown_in(&self, project: &str) -> Vec<StreamName> {
        let grown = self.0.grown.lock().unwrap_or_else(PoisonError::into_inner);
        grown.iter().filter(|name| *name.project == *project).cloned().collect()
    }

    fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.all.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.0.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn insert(&self, entry: Arc<Entry>) {
        let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(entry.key.clone(), entry);
        self.0.count.store(all.len(), Ordering::Relaxed);
    }

    fn remove(&self, key: &Key) {
        let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
        self.0.count.store(all.len(), Ordering::Relaxed);
    }

    fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The tail of a followed stream; zero if the stream does not exist.
    fn tail(&self, project: &str, stream: &str) -> Offset {
        let name = StreamName::new(project, stream);
        name.and_then(|name| self.store().head(&name).ok()).map_or(Offset::ZERO, |head| head.tail)
    }
}

impl Inner {
    /// A stream grew or was deleted. Costs next to nothing without subscriptions.
    fn note_change(&self, name: &StreamName) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        if !grown.contains(name) {
            grown.insert(name.clone());
            self.news.notify_one();
        }
    }
}

/// Sees every change of a stream: by a request, a route or a delivery.
impl Watch for Inner {
    fn changed(&self, name: &StreamName, _: Offset, _: bool) {
        // Changes of the subscriptions' own streams wake no worker.
        if !name.is_reserved() {
            self.note_change(name);
        }
    }

    fn wants_sessions(&self, project: &str) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.keys().any(|key| *key.project == *project)
    }
}

impl Entry {
    fn new(key: Key, subscription: Subscription, journal: Journal) -> Arc<Entry> {
        let state = State { subscription, journal, is_gone: false };
        Arc::new(Entry { key, state: tokio::sync::Mutex::new(state) })
    }
}

impl State {
    /// Makes changes durable, then applies them.
    async fn write(&mut self, store: &dyn Store, changes: Vec<Change>) -> Result<(), Error> {
        self.journal.write(store, &mut self.subscription, changes).await
    }
}

/// An unguessable name for a wake.
fn wake_id() -> String {
    format!("w_{}", keys::random(12))
}

fn now() -> Timestamp {
    Timestamp::now()
}
