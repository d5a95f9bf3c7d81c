//! The end of a worker: nothing is lost, and nothing waits forever.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use towpath_db::job::{Lease, Unfinished};

use crate::limits;
use crate::pool::{Pool, Work};
use crate::worker::Shared;

/// Gives back what has not begun, waits for what runs, asks it to end, then gives up on it.
pub(crate) async fn run(shared: &Arc<Shared>, patience: Duration) {
    let waiting = shared.pools.iter().flat_map(Pool::empty).collect();
    release(shared, waiting).await;
    shared.slots.close();
    if timeout(patience, shared.slots.wait()).await.is_err() {
        let left = shared.held.all();
        tracing::warn!(jobs = left.len(), "jobs are still running; asking them to stop");
        left.iter().for_each(|job| job.interrupt());
        if timeout(limits::CANCEL_GRACE, shared.slots.wait()).await.is_err() {
            // Handlers are dropped where they wait, and their jobs snoozed: no attempt is lost.
            shared.abort.cancel();
            let _ = timeout(limits::CANCEL_GRACE, shared.slots.wait()).await;
        }
    }
    let _ = timeout(limits::LAST_FLUSH_WAIT_MAX, recorded(shared)).await;
    if shared.held.len() > 0 {
        tracing::warn!(jobs = shared.held.len(), "results could not be recorded; their leases will expire");
        shared.held.forget(shared.held.all().iter().map(|job| job.key));
    }
    shared.abort.cancel();
}

/// Gives back jobs that have not begun.
pub(crate) async fn release(shared: &Shared, waiting: Vec<Work>) {
    shared.finisher.expect_less(waiting.len());
    let keys: Vec<_> = waiting.iter().map(|work| work.held.key).collect();
    let leases: Vec<Lease> = waiting.iter().filter_map(|work| work.held.take_lease()).collect();
    if leases.is_empty() {
        return;
    }
    let count = leases.len();
    match timeout(limits::LAST_FLUSH_WAIT_MAX, shared.database.release(leases)).await {
        Ok(Ok(_)) => tracing::info!(jobs = count, "released jobs that had not started"),
        Ok(Err(Unfinished { error, .. })) => {
            tracing::warn!(jobs = count, "cannot release jobs; their leases will expire: {error}");
        }
        Err(_) => tracing::warn!(jobs = count, "cannot release jobs in time; their leases will expire"),
    }
    shared.held.forget(keys);
}

async fn recorded(shared: &Shared) {
    while shared.held.len() > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
