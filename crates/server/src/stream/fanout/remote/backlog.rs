//! Backlogs: what a session on another server has yet to get of a source, kept durably.
//!
//! A session that could not be reached has one, and a session that left while messages waited for
//! it. Everything of one source for one session is sent in order: as long as a session has a
//! backlog of a source, it gets messages of that source from the backlog alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_streams::{Error, Store, StreamId, Subscription};

use crate::limits;

const NAMESPACE: &str = "fanout-backlog";

/// A source and a session.
type Names = (StreamName, StreamName);
type Turn = Arc<tokio::sync::Mutex<()>>;

pub(super) struct Backlogs {
    store: Arc<dyn Store>,
    all: Mutex<HashMap<Names, Waiting>>,
    /// The right to send a backlog: one sender at a time.
    turns: Mutex<HashMap<Names, Turn>>,
    /// One durable change at a time, so that memory and store agree.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Waiting {
    backlog: Backlog,
    tries: u32,
    next: Instant,
}

/// What a session has of a source, and what it has yet to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backlog {
    /// It has everything up to here, if it follows and `ended` is empty.
    pub(super) from: Offset,
    /// Subscriptions that ended before it had everything, oldest first.
    pub(super) ended: Vec<Ended>,
}

/// What is left of a subscription that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Which life of the source.
    pub(super) life: StreamId,
    pub(super) from: Offset,
    pub(super) until: Offset,
    pub(super) envelope: bool,
}

impl Ended {
    /// As if it still followed.
    pub(super) fn subscription(&self, source: &StreamName) -> Subscription {
        let since = jiff::Timestamp::now();
        Subscription { source: source.clone(), start: self.from, since, envelope: self.envelope }
    }
}

impl Backlogs {
    pub(super) fn open(store: Arc<dyn Store>) -> Backlogs {
        let all = store.list_meta(NAMESPACE).into_iter().filter_map(|(key, value)| {
            let mut parts = key.split('\n');
            let (project, source, session) = (parts.next()?, parts.next()?, parts.next()?);
            let names = (StreamName::new(project, source)?, StreamName::new(project, session)?);
            let backlog = Backlog::parse(std::str::from_utf8(&value).ok()?)?;
            Some((names, Waiting { backlog, tries: 0, next: Instant::now() }))
        });
        let all = Mutex::new(all.collect());
        Backlogs { store, all, turns: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(super) fn holds(&self, source: &StreamName, session: &StreamName) -> bool {
        self.with(|all| !all.is_empty() && all.contains_key(&(source.clone(), session.clone())))
    }

    pub(super) fn get(&self, source: &StreamName, session: &StreamName) -> Option<Backlog> {
        let key = (source.clone(), session.clone());
        self.with(|all| all.get(&key).map(|waiting| waiting.backlog.clone()))
    }

    /// The right to send the backlog of one session.
    pub(super) fn turn(&self, source: &StreamName, session: &StreamName) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= limits::TURNS_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry((source.clone(), session.clone())).or_default().clone()
    }

    /// A session that follows has everything up to `from`, and no more.
    pub(super) async fn set(
        &self,
        source: &StreamName,
        session: &StreamName,
        from: Offset,
    ) -> Result<(), Error> {
        self.change(source, session, |backlog| {
            Some(Backlog { from, ended: backlog.map(|backlog| backlog.ended).unwrap_or_default() })
        })
        .await
    }

    /// A session leaves and has yet to get `ended`.
    pub(super) async fn end(
        &self,
        source: &StreamName,
        session: &StreamName,
        ended: Ended,
    ) -> Result<(), Error> {
        self.change(source, session, |backlog| {
            let mut all = backlog.map(|backlog| backlog.ended).unwrap_or_default();
            all.push(ended);
            Some(Backlog { from: ended.until, ended: all })
        })
        .await
    }

    /// The oldest subscription that has ended is delivered up to `to`.
    pub(super) async fn delivered(
        &self,
        source: &StreamName,
        session: &StreamName,
        to: Offset,
    ) -> Result<(), Error> {
        self.change(source, session, |backlog| {
            let mut backlog = backlog?;
            if let Some(first) = backlog.ended.first_mut() {
                first.from = to;
            }
            backlog.ended.retain(|ended| ended.from < ended.until);
            Some(backlog)
        })
        .await
    }

    /// The session has caught up, unless it has left meanwhile and has yet to get something.
    pub(super) async fn finish(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        self.change(source, session, |backlog| backlog.filter(|backlog| !backlog.ended.is_empty())).await
    }

    /// The session gets nothing more of the source: one of the two was deleted.
    pub(super) async fn remove(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        self.change(source, session, |_| None).await
    }

    /// A session was deleted, or is created again.
    pub(super) async fn remove_session(&self, session: &StreamName) -> Result<(), Error> {
        for source in self.keys(|(_, of)| of == session).into_iter().map(|(source, _)| source) {
            self.remove(&source, session).await?;
        }
        Ok(())
    }

    /// The sessions that have a backlog of a source.
    pub(super) fn of(&self, source: &StreamName) -> Vec<StreamName> {
        self.keys(|(of, _)| of == source).into_iter().map(|(_, session)| session).collect()
    }

    fn keys(&self, is_it: impl Fn(&Names) -> bool) -> Vec<Names> {
        self.with(|all| all.keys().filter(|key| is_it(key)).cloned().collect())
    }

    /// Changes the backlog of a session, durably first.
    async fn change(
        &self,
        source: &StreamName,
        session: &StreamName,
        to: impl FnOnce(Option<Backlog>) -> Option<Backlog>,
    ) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let before = self.get(source, session);
        let backlog = to(before.clone());
        if backlog == before {
            return Ok(());
        }
        let value = backlog.as_ref().map(|backlog| Bytes::from(backlog.to_string()));
        self.store.put_meta(NAMESPACE, &key(source, session), value).await?;
        let names = (source.clone(), session.clone());
        self.with(|all| match backlog {
            None => drop(all.remove(&names)),
            Some(backlog) => {
                let fresh = Waiting { backlog: backlog.clone(), tries: 0, next: Instant::now() };
                all.entry(names).or_insert(fresh).backlog = backlog;
            }
        });
        Ok(())
    }

    /// It failed again: the next try comes later each time.
    pub(super) fn retry_later(&self, source: &StreamName, session: &StreamName) {
        self.with(|all| {
            if let Some(waiting) = all.get_mut(&(source.clone(), session.clone())) {
                waiting.tries = (waiting.tries + 1).min(10);
                let pause = limits::FOLLOW_UP_EVERY * 2u32.pow(waiting.tries);
                waiting.next = Instant::now() + pause.min(limits::FOLLOW_UP_REST_MAX);
            }
        });
    }

    /// Those to try now.
    pub(super) fn due(&self) -> Vec<Names> {
        let now = Instant::now();
        self.with(|all| {
            let due = all.iter().filter(|(_, waiting)| waiting.next <= now);
            due.map(|(names, _)| names.clone()).collect()
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Names, Waiting>) -> T) -> T {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The offset, and a line for each subscription that has ended.
impl std::fmt::Display for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.from)?;
        for Ended { life, from, until, envelope } in &self.ended {
            write!(f, "\n{} {from} {until} {}", life.0, u8::from(*envelope))?;
        }
        Ok(())
    }
}

impl Backlog {
    fn parse(text: &str) -> Option<Backlog> {
        let mut lines = text.split('\n');
        let from = Offset::parse(lines.next()?)?;
        let ended = lines.map(|line| {
            let mut words = line.split(' ');
            let life = StreamId(words.next()?.parse().ok()?);
            let (from, until) = (Offset::parse(words.next()?)?, Offset::parse(words.next()?)?);
            Some(Ended { life, from, until, envelope: words.next()? == "1" })
        });
        Some(Backlog { from, ended: ended.collect::<Option<_>>()? })
    }
}

fn key(source: &StreamName, session: &StreamName) -> String {
    format!("{}\n{}\n{}", source.project, source.id, session.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogs_come_back() {
        let ended = |number: u64, envelope| Ended {
            life: StreamId(number),
            from: Offset::new(number),
            until: Offset::new(number + 7),
            envelope,
        };
        for all in [vec![], vec![ended(1, true)], vec![ended(2, false), ended(3, true)]] {
            let backlog = Backlog { from: Offset::new(12), ended: all };
            assert_eq!(Backlog::parse(&backlog.to_string()), Some(backlog));
        }
        assert_eq!(Backlog::parse("what"), None);
    }
}
