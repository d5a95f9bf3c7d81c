//! Sessions that were put aside: each with its own offset, kept durably until it has caught up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_streams::{Error, Store};

use crate::limits;

const NAMESPACE: &str = "fanout-behind";

pub(super) struct Behind {
    store: Arc<dyn Store>,
    all: Mutex<HashMap<(StreamName, StreamName), Waiting>>,
}

#[derive(Clone, Copy)]
struct Waiting {
    from: Offset,
    tries: u32,
    next: Instant,
}

impl Behind {
    pub(super) fn open(store: Arc<dyn Store>) -> Behind {
        let all = store.list_meta(NAMESPACE).into_iter().filter_map(|(key, value)| {
            let mut parts = key.split('\n');
            let (project, source, session) = (parts.next()?, parts.next()?, parts.next()?);
            let names = (StreamName::new(project, source)?, StreamName::new(project, session)?);
            let from = Offset::parse(std::str::from_utf8(&value).ok()?)?;
            Some((names, Waiting { from, tries: 0, next: Instant::now() }))
        });
        let all = Mutex::new(all.collect());
        Behind { store, all }
    }

    pub(super) fn holds(&self, source: &StreamName, session: &StreamName) -> bool {
        self.with(|all| !all.is_empty() && all.contains_key(&(source.clone(), session.clone())))
    }

    /// Remembers that a session has everything up to `from`, and no more.
    pub(super) async fn put_aside(
        &self,
        source: &StreamName,
        session: &StreamName,
        from: Offset,
    ) -> Result<(), Error> {
        let value = Bytes::from(from.to_string());
        self.store.put_meta(NAMESPACE, &key(source, session), Some(value)).await?;
        self.with(|all| {
            let fresh = Waiting { from, tries: 0, next: Instant::now() };
            all.entry((source.clone(), session.clone())).or_insert(fresh).from = from;
        });
        Ok(())
    }

    /// It has caught up, or is no more.
    pub(super) async fn take_back(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        self.store.put_meta(NAMESPACE, &key(source, session), None).await?;
        self.with(|all| all.remove(&(source.clone(), session.clone())));
        Ok(())
    }

    /// It failed again: longer pauses each time.
    pub(super) fn rest(&self, source: &StreamName, session: &StreamName) {
        self.with(|all| {
            if let Some(waiting) = all.get_mut(&(source.clone(), session.clone())) {
                waiting.tries = (waiting.tries + 1).min(10);
                let pause = limits::FOLLOW_UP_EVERY * 2u32.pow(waiting.tries);
                waiting.next = Instant::now() + pause.min(limits::FOLLOW_UP_REST_MAX);
            }
        });
    }

    /// Those whose pause is over.
    pub(super) fn due(&self) -> Vec<(StreamName, StreamName, Offset)> {
        let now = Instant::now();
        self.with(|all| {
            let due = all.iter().filter(|(_, waiting)| waiting.next <= now);
            due.map(|((source, session), waiting)| (source.clone(), session.clone(), waiting.from)).collect()
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<(StreamName, StreamName), Waiting>) -> T) -> T {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn key(source: &StreamName, session: &StreamName) -> String {
    format!("{}\n{}\n{}", source.project, source.id, session.id)
}
