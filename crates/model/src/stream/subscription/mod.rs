//! Subscriptions of the protocol's reserved API: workers that are woken when streams grow, and how
//! far each has come.
//!
//! A subscription is the sum of its changes. A decision reads the state and answers changes; the
//! caller makes them durable and then applies them, so a restart finds what was answered before.
//!
//! ```text
//!          stream grew              claimed (pull), delivered (webhook)
//!   idle ───────────────▶ woken ─────────────────────────────────────────▶ held
//!    ▲                      │ delivery failed: try again later              │
//!    └──────────────────────┴──────────── done, released, lease over ◀──────┘
//! ```
//!
//! Every wake has a new generation; requests for an older one are fenced.

mod config;
mod decide;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use config::{Config, Invalid, Kind};
pub use decide::{Ack, Fence, Refusal, Worked, named_streams};

use super::offset::Offset;

/// The state of one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its configuration.
    pub config: Config,
    /// When it was created.
    pub created_at: Timestamp,
    /// The streams it follows.
    pub links: BTreeMap<String, Link>,
    /// The number of the newest wake.
    pub generation: u64,
    /// The wake in flight.
    pub wake: Option<Wake>,
    /// Deliveries that failed in a row.
    pub failures: u32,
    /// No wake before this, because of the failures.
    pub retry_at: Option<Timestamp>,
}

/// A followed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// It is followed by name.
    pub explicit: bool,
    /// It matches the pattern.
    pub matched: bool,
    /// Everything before it is done; `None` if nothing is.
    pub acked: Option<Offset>,
}

/// A wake in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// Its id, unguessable.
    pub id: String,
    /// The tails of the streams with work when it began: what `done` means.
    pub tails: BTreeMap<String, Offset>,
    /// The worker that holds it.
    pub holder: Option<String>,
    /// It is over without a heartbeat by then. A wake that was not claimed yet has none.
    pub lease_until: Option<Timestamp>,
}

/// A change of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Its configuration is this, whatever was before.
    Is(Box<Subscription>),
    /// It follows a stream, or follows it in one more way.
    Linked {
        /// The stream.
        stream: String,
        /// How and from where.
        link: Link,
    },
    /// It stops following a stream.
    Unlinked {
        /// The stream.
        stream: String,
    },
    /// There is work.
    Woken(Wake),
    /// A worker holds the wake.
    Held {
        /// The worker; a webhook has no name.
        holder: Option<String>,
        /// Until when without a heartbeat.
        lease_until: Timestamp,
    },
    /// Streams are done up to these offsets.
    Acked(BTreeMap<String, Offset>),
    /// The wake is over.
    Ended,
    /// A delivery succeeded.
    Delivered,
    /// A delivery failed; the wake is over.
    Failed {
        /// No wake before this.
        retry_at: Timestamp,
    },
}

impl Subscription {
    /// A new subscription that follows nothing yet.
    pub fn new(config: Config, created_at: Timestamp) -> Subscription {
        Subscription {
            config,
            created_at,
            links: BTreeMap::new(),
            generation: 0,
            wake: None,
            failures: 0,
            retry_at: None,
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Is(subscription) => *self = *subscription,
            Change::Linked { stream, link } => {
                let there = self.links.entry(stream).or_insert(link);
                there.explicit |= link.explicit;
                there.matched |= link.matched;
            }
            Change::Unlinked { stream } => {
                self.links.remove(&stream);
            }
            Change::Woken(wake) => {
                self.generation += 1;
                self.retry_at = None;
                self.wake = Some(wake);
            }
            Change::Held { holder, lease_until } => {
                if let Some(wake) = &mut self.wake {
                    wake.holder = holder.or(wake.holder.take());
                    wake.lease_until = Some(lease_until);
                }
            }
            Change::Acked(acks) => {
                for (stream, offset) in acks {
                    if let Some(link) = self.links.get_mut(&stream) {
                        link.acked = link.acked.max(Some(offset));
                    }
                }
            }
            Change::Ended => self.wake = None,
            Change::Delivered => self.failures = 0,
            Change::Failed { retry_at } => {
                self.wake = None;
                self.failures += 1;
                self.retry_at = Some(retry_at);
            }
        }
    }

    /// Whether a stream has work.
    pub fn is_pending(&self, stream: &str, tail: Offset) -> bool {
        self.links.get(stream).is_some_and(|link| match link.acked {
            Some(acked) => tail > acked,
            None => true,
        })
    }

    /// Whether the pattern matches a stream. It never matches the subscription's own wake stream,
    /// which would wake itself.
    pub fn matches(&self, stream: &str) -> bool {
        let own = matches!(&self.config.kind, Kind::PullWake { wake_stream } if wake_stream == stream);
        let fits = |pattern: &String| super::glob::matches(pattern, stream);
        !own && self.config.pattern.as_ref().is_some_and(fits)
    }
}

#[cfg(test)]
mod tests;
