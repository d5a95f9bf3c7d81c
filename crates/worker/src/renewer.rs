//! The renewer: renews leases in bulk, shows long jobs as in progress, gives back what has waited for too long, and sends
//! heartbeats.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use towpath_db::Error;
use towpath_db::job::{Heartbeat, Status};

use crate::worker::{Shared, Worker};
use crate::{drain, limits};

/// What the renewer needs of its worker.
pub(crate) struct Renewer {
    shared: Arc<Shared>,
    name: String,
    executor_kind: Option<String>,
    lease: Duration,
    heartbeat_at: Instant,
    kinds: Vec<String>,
}

impl Renewer {
    pub(crate) fn of(worker: &Worker) -> Renewer {
        Renewer {
            shared: worker.shared.clone(),
            name: worker.name.clone(),
            executor_kind: worker.executor_kind.clone(),
            lease: worker.lease,
            heartbeat_at: Instant::now(),
            kinds: worker.kinds(),
        }
    }
}

/// Runs until told to stop.
pub(crate) async fn run(mut renewer: Renewer, stop: CancellationToken) {
    loop {
        match renewer.pass().await {
            Ok(()) => {
                if !renewer.shared.keeps_leases.swap(true, Ordering::Relaxed) {
                    tracing::info!("leases are renewed again; claiming resumed");
                }
            }
            Err(error) => {
                if renewer.shared.keeps_leases.swap(false, Ordering::Relaxed) {
                    tracing::warn!(
                        "cannot renew leases; claiming is paused until they can be renewed: {error}"
                    );
                }
            }
        }
        let rest = limits::RENEW_LOOK_EVERY.min(renewer.lease / (limits::LEASE_RENEWALS * 2));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(rest) => {}
        }
    }
}

impl Renewer {
    async fn pass(&mut self) -> Result<(), Error> {
        self.renew().await?;
        self.show_started().await?;
        for pool in &self.shared.pools {
            drain::release(&self.shared, pool.take_overdue(limits::PREFETCH_WAIT_MAX)).await;
        }
        if Instant::now() >= self.heartbeat_at {
            self.heartbeat().await?;
            self.heartbeat_at = Instant::now() + towpath_db::retry::jittered(limits::HEARTBEAT_EVERY);
        }
        Ok(())
    }

    async fn renew(&self) -> Result<(), Error> {
        let shared = &self.shared;
        for keys in shared.held.older_than(self.lease / limits::LEASE_RENEWALS).chunks(limits::RENEW_MAX) {
            let asked_at = Instant::now();
            let extended = shared.database.extend_many(&shared.owner, keys, self.lease).await?;
            shared.held.renewed(keys, asked_at);
            shared.held.lose(keys, &extended.lost);
        }
        Ok(())
    }

    async fn show_started(&self) -> Result<(), Error> {
        let shared = &self.shared;
        for keys in shared.held.to_show_started(limits::START_AFTER).chunks(limits::RENEW_MAX) {
            let lost = shared.database.start_many(&shared.owner, keys).await?;
            shared.held.shown_started(keys);
            shared.held.lose(keys, &lost);
        }
        Ok(())
    }

    /// A closed gate means that heartbeats are not wanted, not that something is wrong.
    async fn heartbeat(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let heartbeat = Heartbeat {
            executor_name: &self.name,
            executor_kind: self.executor_kind.as_deref(),
            status: Status::Ok,
            current_job: shared.held.all().first().map(|job| job.key.0),
            owner: &shared.owner,
            metadata: json!({ "jobs_held": shared.held.len() }),
            kinds: Some(&self.kinds).filter(|kinds| !kinds.is_empty()).map(Vec::as_slice),
        };
        match shared.database.heartbeat(&heartbeat).await {
            Ok(_) | Err(Error::GateClosed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
