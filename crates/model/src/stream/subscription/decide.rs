//! Decisions about subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::config::{path, paths};
use super::{Change, Kind, Link, Subscription, Wake};
use crate::stream::offset::Offset;

/// The wake that a caller acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The generation of the token.
    pub token_generation: u64,
    /// The generation in the request.
    pub generation: Option<u64>,
    /// The wake in the request.
    pub wake_id: Option<String>,
}

/// A stream, done up to an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The stream.
    pub stream: String,
    /// The offset, as it was sent.
    pub offset: String,
}

/// A report of the holder of a wake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Worked {
    /// What is done.
    pub acks: Vec<Ack>,
    /// The wake is over.
    pub done: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A newer wake exists.
    Fenced,
    /// Another worker holds it.
    Claimed {
        /// The worker.
        holder: String,
        /// The wake.
        generation: u64,
    },
    /// There is no work.
    NothingPending,
    /// The subscription cannot be claimed.
    NotPullWake,
    /// The ack is invalid.
    Offset(&'static str),
}

/// The first pause after a failed delivery, doubled each time.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: SignedDuration = SignedDuration::from_secs(60);

impl Worked {
    /// Parses the body of a request.
    pub fn parse(body: &Value) -> Worked {
        let acks = body["acks"].as_array().into_iter().flatten().map(|ack| Ack {
            stream: path(ack["stream"].as_str().or(ack["path"].as_str()).unwrap_or_default()),
            offset: ack["offset"].as_str().unwrap_or_default().to_owned(),
        });
        Worked { acks: acks.collect(), done: body["done"] == true }
    }
}

/// Parses the names in `POST …/streams`.
pub fn named_streams(body: &Value) -> Option<BTreeSet<String>> {
    paths(&body["streams"])
}

impl Subscription {
    /// A stream grew: follow it if it matches the pattern.
    pub fn link_matching(&self, stream: &str, acked: Option<Offset>) -> Option<Change> {
        let known = self.links.get(stream).is_some_and(|link| link.matched);
        (!known && self.matches(stream)).then(|| Change::Linked {
            stream: stream.to_owned(),
            link: Link { explicit: false, matched: true, acked },
        })
    }

    /// Follow a stream by name, from its tail on.
    pub fn link_named(stream: &str, tail: Offset) -> Change {
        let link = Link { explicit: true, matched: false, acked: Some(tail) };
        Change::Linked { stream: stream.to_owned(), link }
    }

    /// Stop following it by name; the pattern may still match it.
    pub fn unlink_named(&self, stream: &str) -> Vec<Change> {
        let Some(link) = self.links.get(stream).filter(|link| link.explicit) else { return vec![] };
        let unlinked = Change::Unlinked { stream: stream.to_owned() };
        match link.matched {
            false => vec![unlinked],
            true => {
                let link = Link { explicit: false, ..*link };
                vec![unlinked, Change::Linked { stream: stream.to_owned(), link }]
            }
        }
    }

    /// Streams with something that is not done, and where they end.
    pub fn pending(&self, tail: impl Fn(&str) -> Offset) -> BTreeMap<String, Offset> {
        let tails = self.links.keys().map(|stream| (stream.clone(), tail(stream)));
        tails.filter(|(stream, tail)| *tail > Offset::ZERO && self.is_pending(stream, *tail)).collect()
    }

    /// Wakes, if there is work, no wake is in flight and no pause is on.
    pub fn wake(&self, tails: BTreeMap<String, Offset>, wake_id: String, now: Timestamp) -> Option<Change> {
        let waits = self.retry_at.is_some_and(|until| now < until);
        if self.wake.is_some() || waits || tails.is_empty() {
            return None;
        }
        let lease_until = match self.config.kind {
            Kind::Webhook { .. } => Some(self.lease_from(now)),
            Kind::PullWake { .. } => None,
        };
        Some(Change::Woken(Wake { id: wake_id, tails, holder: None, lease_until }))
    }

    /// A worker claims the wake in flight. There must be one.
    pub fn claim(&self, worker: &str, now: Timestamp) -> Result<Change, Refusal> {
        if !matches!(self.config.kind, Kind::PullWake { .. }) {
            return Err(Refusal::NotPullWake);
        }
        match &self.wake {
            None => Err(Refusal::NothingPending),
            Some(Wake { holder: Some(holder), .. }) => {
                Err(Refusal::Claimed { holder: holder.clone(), generation: self.generation })
            }
            Some(_) => {
                let lease_until = self.lease_from(now);
                Ok(Change::Held { holder: Some(worker.to_owned()), lease_until })
            }
        }
    }

    /// The holder reports; that is a heartbeat too.
    pub fn worked(
        &self,
        fence: &Fence,
        worked: &Worked,
        tail: impl Fn(&str) -> Offset,
        now: Timestamp,
    ) -> Result<Vec<Change>, Refusal> {
        self.check(fence)?;
        let mut changes = vec![];
        if !worked.acks.is_empty() {
            changes.push(Change::Acked(self.acks(&worked.acks, tail)?));
        }
        changes.push(match worked.done {
            true => Change::Ended,
            false => Change::Held { holder: None, lease_until: self.lease_from(now) },
        });
        Ok(changes)
    }

    /// The holder releases the wake.
    pub fn release(&self, fence: &Fence) -> Result<Change, Refusal> {
        self.check(fence).map(|()| Change::Ended)
    }

    /// A webhook was answered with success; `done` says that everything in it is done.
    pub fn delivered(&self, generation: u64, done: bool, now: Timestamp) -> Vec<Change> {
        let Some(wake) = self.wake.as_ref().filter(|_| self.generation == generation) else { return vec![] };
        match done {
            true => vec![Change::Delivered, Change::Acked(wake.tails.clone()), Change::Ended],
            false => {
                vec![Change::Delivered, Change::Held { holder: None, lease_until: self.lease_from(now) }]
            }
        }
    }

    /// A webhook failed: the pause grows each time, with a jitter of a fifth (`random` from 0 to 1),
    /// so that many subscriptions do not retry at the same time.
    pub fn failed(&self, generation: u64, now: Timestamp, random: f64) -> Option<Change> {
        self.wake.as_ref().filter(|_| self.generation == generation)?;
        let doubled = PAUSE.as_secs() << self.failures.min(10);
        let pause = SignedDuration::from_secs(doubled).min(PAUSE_MAX);
        let jitter = 0.8 + 0.4 * random.clamp(0.0, 1.0);
        let pause = SignedDuration::from_secs_f64(pause.as_secs_f64() * jitter);
        Some(Change::Failed { retry_at: now + pause })
    }

    /// The lease of the wake in flight has run out.
    pub fn expire(&self, now: Timestamp) -> Option<Change> {
        let until = self.wake.as_ref()?.lease_until?;
        (until <= now).then_some(Change::Ended)
    }

    fn lease_from(&self, now: Timestamp) -> Timestamp {
        now + SignedDuration::from_millis(i64::try_from(self.config.lease_ms).unwrap_or(i64::MAX))
    }

    fn check(&self, fence: &Fence) -> Result<(), Refusal> {
        let current = Some(self.generation);
        let wake = self.wake.as_ref().map(|wake| wake.id.as_str());
        let same = Some(fence.token_generation) == current && fence.generation == current;
        match wake.is_some() && same && fence.wake_id.as_deref() == wake {
            true => Ok(()),
            false => Err(Refusal::Fenced),
        }
    }

    fn acks(&self, acks: &[Ack], tail: impl Fn(&str) -> Offset) -> Result<BTreeMap<String, Offset>, Refusal> {
        let mut done = BTreeMap::new();
        for ack in acks {
            let link = self
                .links
                .get(&ack.stream)
                .ok_or(Refusal::Offset("the subscription does not include this stream"))?;
            let offset = Offset::parse(&ack.offset).ok_or(Refusal::Offset("invalid offset"))?;
            if Some(offset) < link.acked {
                return Err(Refusal::Offset("the offset is before the acknowledged one"));
            }
            if offset > tail(&ack.stream) {
                return Err(Refusal::Offset("the offset is beyond the tail"));
            }
            done.insert(ack.stream.clone(), offset);
        }
        Ok(done)
    }
}
