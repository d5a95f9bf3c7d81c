//! Sessions that were put aside: each with its own offset, kept durably until it has caught up.
//!
//! Who leaves a source while something waits for it is put aside too, with the range it is still
//! to get. Everything of one source for one session goes in order: as long as something is
//! here, the session gets it from here alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_streams::{Error, Store, StreamId, Subscription};

use crate::limits;

const NAMESPACE: &str = "fanout-behind";

/// A source and a session.
type Names = (StreamName, StreamName);
type Turn = Arc<tokio::sync::Mutex<()>>;

pub(super) struct Behind {
    store: Arc<dyn Store>,
    all: Mutex<HashMap<Names, Waiting>>,
    /// Who is catching up: nobody twice at a time.
    alone: Mutex<HashMap<Names, Turn>>,
    /// One durable change at a time: what is in memory is what was written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Waiting {
    place: Place,
    tries: u32,
    next: Instant,
}

/// What a session has of a source, and what it is still to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// It has everything up to here, if it follows and nothing has `ended`.
    pub(super) from: Offset,
    /// What it followed and left before it had all of it, oldest first.
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
    /// As if it still followed: it gets what lies between.
    pub(super) fn subscription(&self, source: &StreamName) -> Subscription {
        let since = jiff::Timestamp::now();
        Subscription { source: source.clone(), start: self.from, since, envelope: self.envelope }
    }
}

impl Behind {
    pub(super) fn open(store: Arc<dyn Store>) -> Behind {
        let all = store.list_meta(NAMESPACE).into_iter().filter_map(|(key, value)| {
            let mut parts = key.split('\n');
            let (project, source, session) = (parts.next()?, parts.next()?, parts.next()?);
            let names = (StreamName::new(project, source)?, StreamName::new(project, session)?);
            let place = Place::parse(std::str::from_utf8(&value).ok()?)?;
            Some((names, Waiting { place, tries: 0, next: Instant::now() }))
        });
        let all = Mutex::new(all.collect());
        Behind { store, all, alone: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(super) fn holds(&self, source: &StreamName, session: &StreamName) -> bool {
        self.with(|all| !all.is_empty() && all.contains_key(&(source.clone(), session.clone())))
    }

    pub(super) fn place(&self, source: &StreamName, session: &StreamName) -> Option<Place> {
        let key = (source.clone(), session.clone());
        self.with(|all| all.get(&key).map(|waiting| waiting.place.clone()))
    }

    /// The right to send to one session what it is behind with.
    pub(super) fn alone(&self, source: &StreamName, session: &StreamName) -> Turn {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        if alone.len() >= limits::TURNS_MAX {
            alone.retain(|_, one| Arc::strong_count(one) > 1);
        }
        alone.entry((source.clone(), session.clone())).or_default().clone()
    }

    /// Remembers that a session that follows has everything up to `from`, and no more.
    pub(super) async fn put_aside(
        &self,
        source: &StreamName,
        session: &StreamName,
        from: Offset,
    ) -> Result<(), Error> {
        self.change(source, session, |place| {
            Some(Place { from, ended: place.map(|place| place.ended).unwrap_or_default() })
        })
        .await
    }

    /// Remembers that a session leaves, and what it is still to get.
    pub(super) async fn leaves(
        &self,
        source: &StreamName,
        session: &StreamName,
        ended: Ended,
    ) -> Result<(), Error> {
        self.change(source, session, |place| {
            let mut all = place.map(|place| place.ended).unwrap_or_default();
            all.push(ended);
            Some(Place { from: ended.until, ended: all })
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
        self.change(source, session, |place| {
            let mut place = place?;
            if let Some(first) = place.ended.first_mut() {
                first.from = to;
            }
            place.ended.retain(|ended| ended.from < ended.until);
            Some(place)
        })
        .await
    }

    /// It has caught up, unless it has left meanwhile with something still to get.
    pub(super) async fn take_back(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        self.change(source, session, |place| place.filter(|place| !place.ended.is_empty())).await
    }

    /// It gets nothing more of the source: one of both is no more.
    pub(super) async fn drop_all(&self, source: &StreamName, session: &StreamName) -> Result<(), Error> {
        self.change(source, session, |_| None).await
    }

    /// A session is no more, or begins anew.
    pub(super) async fn forget(&self, session: &StreamName) -> Result<(), Error> {
        for source in self.keys(|(_, of)| of == session).into_iter().map(|(source, _)| source) {
            self.drop_all(&source, session).await?;
        }
        Ok(())
    }

    /// The sessions that are behind on a source.
    pub(super) fn of(&self, source: &StreamName) -> Vec<StreamName> {
        self.keys(|(of, _)| of == source).into_iter().map(|(_, session)| session).collect()
    }

    fn keys(&self, is_it: impl Fn(&Names) -> bool) -> Vec<Names> {
        self.with(|all| all.keys().filter(|key| is_it(key)).cloned().collect())
    }

    /// Changes what is known of a session, durably first.
    async fn change(
        &self,
        source: &StreamName,
        session: &StreamName,
        to: impl FnOnce(Option<Place>) -> Option<Place>,
    ) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let before = self.place(source, session);
        let place = to(before.clone());
        if place == before {
            return Ok(());
        }
        let value = place.as_ref().map(|place| Bytes::from(place.to_string()));
        self.store.put_meta(NAMESPACE, &key(source, session), value).await?;
        let names = (source.clone(), session.clone());
        self.with(|all| match place {
            None => drop(all.remove(&names)),
            Some(place) => {
                let fresh = Waiting { place: place.clone(), tries: 0, next: Instant::now() };
                all.entry(names).or_insert(fresh).place = place;
            }
        });
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
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.from)?;
        for Ended { life, from, until, envelope } in &self.ended {
            write!(f, "\n{} {from} {until} {}", life.0, u8::from(*envelope))?;
        }
        Ok(())
    }
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        let mut lines = text.split('\n');
        let from = Offset::parse(lines.next()?)?;
        let ended = lines.map(|line| {
            let mut words = line.split(' ');
            let life = StreamId(words.next()?.parse().ok()?);
            let (from, until) = (Offset::parse(words.next()?)?, Offset::parse(words.next()?)?);
            Some(Ended { life, from, until, envelope: words.next()? == "1" })
        });
        Some(Place { from, ended: ended.collect::<Option<_>>()? })
    }
}

fn key(source: &StreamName, session: &StreamName) -> String {
    format!("{}\n{}\n{}", source.project, source.id, session.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let ended = |number: u64, envelope| Ended {
            life: StreamId(number),
            from: Offset::new(number),
            until: Offset::new(number + 7),
            envelope,
        };
        for all in [vec![], vec![ended(1, true)], vec![ended(2, false), ended(3, true)]] {
            let place = Place { from: Offset::new(12), ended: all };
            assert_eq!(Place::parse(&place.to_string()), Some(place));
        }
        assert_eq!(Place::parse("what"), None);
    }
}
