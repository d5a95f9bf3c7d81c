//! The sequencer's loop: polls for events without a position.
//!
//! Producers do not notify, so polling is the only way; it is cheap and adds at most one poll interval. Of many nodes
//! one assigns positions, and the others get `busy`. Every poll returns the highest position, so this node's workers
//! also learn of positions that another node assigned.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_db::retry::{Retry, jittered};
use towpath_db::{Database, Error};

use crate::wake::Wake;
use crate::{fail_point, limits};

pub(crate) struct Sequencer<'a> {
    pub(crate) database: &'a Database,
    pub(crate) wake: &'a Wake,
    pub(crate) poll: Duration,
}

impl Sequencer<'_> {
    pub(crate) async fn run(&self, shutdown: &CancellationToken) {
        let mut retry = Retry::of("sequencing events");
        let (mut seen, mut idle_looks) = (0, 0);
        while !shutdown.is_cancelled() {
            let wait = match self.look(&mut seen).await {
                Ok(Look::More) => continue,
                Ok(look) => {
                    retry.succeeded();
                    idle_looks = if look == Look::Some { 0 } else { idle_looks + 1 };
                    let idle = idle_looks > limits::IDLE_LOOKS;
                    jittered(self.poll * if idle { limits::POLL_IDLE } else { 1 })
                }
                Err(error) => retry.failed(&error),
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn look(&self, seen: &mut i64) -> Result<Look, Error> {
        fail_point::hit("sequence.before");
        let pass = self.database.event_sequence(limits::SEQUENCE_MAX).await?;
        if pass.numbered > 0 {
            fail_point::hit("sequence.after");
        }
        let moved = pass.last_position > *seen;
        if moved {
            *seen = pass.last_position;
            self.wake.events();
        }
        Ok(match (pass.more, moved) {
            (true, _) => Look::More,
            (_, true) => Look::Some,
            _ => Look::Nothing,
        })
    }
}

/// The result of a poll.
#[derive(PartialEq, Eq)]
enum Look {
    More,
    Some,
    Nothing,
}
