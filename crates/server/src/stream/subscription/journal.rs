//! The stored form of subscriptions: each has a stream of its changes in the same store as the
//! streams it follows. The stream routes cannot reach it.

use bytes::Bytes;
use towpath_model::stream::name::{DEFAULT_PROJECT, StreamName, decode, encode};
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::state::Shape;
use towpath_model::stream::subscription::{Change, Subscription};
use towpath_streams::{Append, Create, Error, List, Messages, Retention, Store};

/// The prefix of their ids.
const PREFIX: &str = "__ds/subscription/";
/// Changes are replaced by their sum when they have this many times its bytes, and this many bytes.
const SUM_UP_FACTOR: u64 = 4;
const SUM_UP_BYTES: u64 = 64 * 1024;
/// Subscriptions read at a time when the server starts.
const LIST_AT_A_TIME: usize = 256;

/// The stream of one subscription's changes.
#[derive(Debug)]
pub(super) struct Journal {
    name: StreamName,
    /// Bytes of changes since the sum, and of the sum.
    since: u64,
    sum: u64,
}

/// Names a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) project: String,
    pub(super) id: String,
}

impl Key {
    /// The stream of its changes; `None` if the id is too long for one.
    fn journal(&self) -> Option<StreamName> {
        let id = encode(&self.id).replace('/', "%2F");
        StreamName::reserved(DEFAULT_PROJECT, &format!("subscription/{}/{id}", self.project))
    }

    fn of(journal: &StreamName) -> Option<Key> {
        let (project, id) = journal.id.strip_prefix(PREFIX)?.split_once('/')?;
        Some(Key { project: project.to_owned(), id: decode(id)? })
    }

    /// Whether a subscription may have this name.
    pub(super) fn is_valid(&self) -> bool {
        !self.id.is_empty() && self.journal().is_some()
    }
}

impl Journal {
    /// A new subscription, durable when this returns.
    pub(super) async fn create(
        store: &dyn Store,
        key: &Key,
        subscription: &Subscription,
    ) -> Result<Journal, Error> {
        let name =
            key.journal().ok_or_else(|| Error::TooLarge("the subscription's id is too long".into()))?;
        let messages = written(&[Change::Is(Box::new(subscription.clone()))]);
        let sum = messages.data.len() as u64;
        let shape = Shape { content_type: None, expiry: None, closed: false, fork: None };
        let create = Create { shape, messages, retention: Retention::default() };
        // If the name exists, a deletion was not finished.
        if !store.create(name.clone(), create.clone()).await?.is_new {
            store.delete(name.clone()).await?;
            store.create(name.clone(), create).await?;
        }
        Ok(Journal { name, since: 0, sum })
    }

    /// Makes changes durable and then part of the state.
    pub(super) async fn write(
        &mut self,
        store: &dyn Store,
        subscription: &mut Subscription,
        changes: Vec<Change>,
    ) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let messages = written(&changes);
        self.since += messages.data.len() as u64;
        store.append(self.name.clone(), Append { messages, ..Append::default() }).await?;
        for change in changes {
            subscription.apply(change);
        }
        match self.since > SUM_UP_BYTES.max(self.sum * SUM_UP_FACTOR) {
            true => self.sum_up(store, subscription).await,
            false => Ok(()),
        }
    }

    /// Replaces all changes by their sum.
    async fn sum_up(&mut self, store: &dyn Store, subscription: &Subscription) -> Result<(), Error> {
        let messages = written(&[Change::Is(Box::new(subscription.clone()))]);
        let length = messages.data.len() as u64;
        let appended = store.append(self.name.clone(), Append { messages, ..Append::default() }).await?;
        let before = Offset::new(appended.tail.bytes() - length);
        store.trim(self.name.clone(), before).await?;
        (self.since, self.sum) = (0, length);
        Ok(())
    }

    pub(super) async fn delete(&self, store: &dyn Store) -> Result<(), Error> {
        match store.delete(self.name.clone()).await {
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All subscriptions, read when the server starts.
    pub(super) async fn read_all(store: &dyn Store) -> Result<Vec<(Key, Subscription, Journal)>, Error> {
        let mut found = vec![];
        let mut after = None;
        loop {
            let project = DEFAULT_PROJECT.into();
            let list = List { project, prefix: PREFIX.to_owned(), after, limit: LIST_AT_A_TIME };
            let names = store.list(list).await?;
            for (name, _) in &names {
                let Some(key) = Key::of(name) else { continue };
                found.extend(Journal::read(store, name).await?.map(|(sub, journal)| (key, sub, journal)));
            }
            match names.last() {
                Some((name, _)) if names.len() == LIST_AT_A_TIME => after = Some(name.id.to_string()),
                _ => return Ok(found),
            }
        }
    }

    async fn read(store: &dyn Store, name: &StreamName) -> Result<Option<(Subscription, Journal)>, Error> {
        let mut subscription: Option<Subscription> = None;
        let mut journal = Journal { name: name.clone(), since: 0, sum: 0 };
        let mut from = Start::Beginning;
        loop {
            let page = store.read(name, from, 1 << 20).await?;
            for message in page.batch.messages() {
                let change: Change = serde_json::from_slice(&message)
                    .map_err(|error| Error::Corrupt(format!("cannot parse a change of {name}: {error}")))?;
                journal.since += message.len() as u64;
                match (&mut subscription, change) {
                    (there, Change::Is(is)) => {
                        (journal.since, journal.sum) = (0, message.len() as u64);
                        *there = Some(*is);
                    }
                    (Some(there), change) => there.apply(change),
                    (None, _) => {}
                }
            }
            if page.is_up_to_date() {
                return Ok(subscription.map(|subscription| (subscription, journal)));
            }
            from = Start::At(page.batch.end());
        }
    }
}

fn written(changes: &[Change]) -> Messages {
    let mut data = vec![];
    let mut ends = vec![];
    for change in changes {
        serde_json::to_writer(&mut data, change).expect("our own types serialise");
        ends.push(u32::try_from(data.len()).expect("changes are far below 4 GiB"));
    }
    Messages { data: Bytes::from(data), ends }
}
