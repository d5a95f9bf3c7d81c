//! Which node serves the streams of a shared log. The others stand by, and take its place when it stops.
//!
//! The lease is advice: it keeps nodes from working against each other. What keeps them from accepting two different
//! commits is the number of a commit, whatever a lease says.

use tokio_util::sync::CancellationToken;
use towpath_db::retry::Retry;
use towpath_db::{Database, Error};
use uuid::Uuid;

use crate::limits;

/// The place of the node that serves.
#[derive(Clone)]
pub struct Lease {
    database: Database,
    node: Uuid,
    address: String,
}

impl Lease {
    /// Takes the place if it is free; otherwise the address of the node that has it.
    pub async fn take(database: &Database, address: &str) -> Result<Result<Lease, String>, Error> {
        let lease = Lease { database: database.clone(), node: Uuid::now_v7(), address: address.to_owned() };
        Ok(match lease.renew(limits::LEASE_SECONDS).await? {
            None => Ok(lease),
            Some(other) => Err(other),
        })
    }

    /// Waits until the place is free.
    pub async fn wait(database: &Database, address: &str) -> Result<Lease, Error> {
        let mut said = None;
        loop {
            match Lease::take(database, address).await? {
                Ok(lease) => return Ok(lease),
                Err(other) if said.as_ref() != Some(&other) => {
                    tracing::info!("standing by: the node at {other} serves the streams");
                    said = Some(other);
                }
                Err(_) => {}
            }
            tokio::time::sleep(limits::LEASE_RENEW).await;
        }
    }

    /// Renews the lease until `shutdown`. If another node has taken the place, this one must stop: it orders
    /// `shutdown`.
    pub async fn keep(self, shutdown: CancellationToken) {
        let mut retry = Retry::of("renewing the lease on the stream log");
        let keeping = async {
            loop {
                tokio::time::sleep(limits::LEASE_RENEW).await;
                match self.renew(limits::LEASE_SECONDS).await {
                    Ok(None) => retry.succeeded(),
                    Ok(Some(other)) => {
                        tracing::error!("the node at {other} serves the streams now; this one stops");
                        return shutdown.cancel();
                    }
                    Err(error) => drop(retry.failed(&error)),
                }
            }
        };
        tokio::select! {
            () = keeping => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Gives the place up, so that another node need not wait.
    pub async fn release(&self) {
        if let Err(error) = self.renew(0).await {
            tracing::debug!(%error, "cannot release the stream log; it is free after the lease");
        }
    }

    async fn renew(&self, seconds: i32) -> Result<Option<String>, Error> {
        self.database.stream_log_hold(self.node, &self.address, seconds).await
    }
}
