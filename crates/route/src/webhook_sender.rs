//! The webhook sender: claims due webhooks, sends them in parallel, records how each ended.
//!
//! Nothing is claimed ahead: what is claimed is being sent. The lease is renewed while a
//! receiver takes its time; a sender that lost it stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_db::event::{
    Delivery, DeliveryFailure, DeliveryLease, DeliveryOutcome, FailureClass, Unended, UnreadableDelivery,
};
use towpath_db::job::LeaseOwner;
use towpath_db::retry::{Retry, grace_over, jittered};
use towpath_db::{Database, Error};

use crate::numbers::Numbers;
use crate::set_aside::set_aside;
use crate::wake::Wake;
use crate::webhook::{self, Report, Request};
use crate::{fail_point, limits};

pub(crate) struct WebhookSender {
    pub(crate) database: Database,
    pub(crate) wake: Arc<Wake>,
    pub(crate) client: webhook::Client,
    pub(crate) owner: LeaseOwner,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) numbers: Numbers,
}

impl WebhookSender {
    /// Delivers until `shutdown`, then waits for the deliveries in flight, for at most `drain`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: &CancellationToken, drain: Duration) {
        let mut retry = Retry::of("delivering webhooks");
        let in_flight = TaskTracker::new();
        let give_up = CancellationToken::new();
        while !shutdown.is_cancelled() {
            // A claim is not cancelled half-way, or its leases would have to expire; but a database that does not respond must
            // not block the shutdown.
            let round = tokio::select! {
                round = self.round(&in_flight, &give_up) => round,
                () = grace_over(shutdown, limits::LAST_PASS_WAIT_MAX) => break,
            };
            let wait = match round {
                Ok(None) => {
                    retry.succeeded();
                    continue;
                }
                Ok(Some(wait)) => {
                    retry.succeeded();
                    wait
                }
                Err(error) => retry.failed(&error),
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.wake.delivery_within(wait) => {}
            }
        }
        in_flight.close();
        if tokio::time::timeout(drain, in_flight.wait()).await.is_err() {
            tracing::warn!(
                deliveries = in_flight.len(),
                "webhooks are still in flight; they are retried when their leases expire"
            );
            give_up.cancel();
            in_flight.wait().await;
        }
    }

    /// Claims once and starts sending; returns how long to sleep, or none to continue at once.
    async fn round(
        self: &Arc<Self>,
        in_flight: &TaskTracker,
        give_up: &CancellationToken,
    ) -> Result<Option<Duration>, Error> {
        let wanted = self.room.available_permits().min(limits::CLAIM_MAX);
        if wanted == 0 {
            // A finished delivery wakes this loop.
            return Ok(Some(limits::DELIVERY_POLL_MAX));
        }
        fail_point::hit("delivery.before_claim");
        let limit = i32::try_from(wanted).unwrap_or(i32::MAX);
        let claimed = self.database.delivery_claim(&self.owner, limit).await?;
        if claimed.lost > 0 {
            self.numbers.lost(claimed.lost);
            tracing::warn!(lost = claimed.lost, "delivery leases expired; retrying");
        }
        let full = claimed.deliveries.len() + claimed.unreadable.len() == wanted;
        for UnreadableDelivery { lease, route_name, why } in claimed.unreadable {
            let failure = DeliveryFailure { class: FailureClass::Setup, error: why, retry_after: None };
            let report = Report { outcome: DeliveryOutcome::default(), failure: Some(failure) };
            self.end(lease, claimed.lease, &route_name, &report).await;
        }
        for delivery in claimed.deliveries {
            fail_point::hit("delivery.after_claim");
            let permit = self.room.clone().try_acquire_owned();
            let (this, give_up) = (self.clone(), give_up.clone());
            in_flight.spawn(async move {
                tokio::select! {
                    () = this.deliver(delivery, claimed.lease) => {}
                    () = give_up.cancelled() => {}
                }
                drop(permit);
                this.wake.room();
            });
        }
        let due_in = claimed.next_at.map_or(limits::DELIVERY_POLL_MAX, until);
        let wait = due_in.clamp(limits::DELIVERY_POLL_MIN, limits::DELIVERY_POLL_MAX);
        Ok(if full { None } else { Some(wait) })
    }

    /// One attempt, from the claim to its outcome.
    async fn deliver(&self, delivery: Delivery, lease: Duration) {
        let request = Request {
            url: &delivery.url,
            webhook_id: &delivery.webhook_id,
            headers: &delivery.headers,
            timeout: delivery.timeout,
            body: &delivery.body,
            signing_keys: &delivery.signing_keys,
            generation: delivery.generation,
        };
        let began = Instant::now();
        let report = tokio::select! {
            report = webhook::send_once(&self.client, &request) => report,
            () = self.keep(&delivery.lease, lease) => {
                tracing::info!(route = delivery.route_name, "lost the lease of a slow delivery");
                return;
            }
        };
        self.numbers.webhook(report.failure.is_none(), began.elapsed());
        fail_point::hit("delivery.after_send");
        self.end(delivery.lease, lease, &delivery.route_name, &report).await;
        fail_point::hit("delivery.after_end");
    }

    /// Renews the lease until it is lost.
    async fn keep(&self, lease: &DeliveryLease, lasts: Duration) {
        loop {
            tokio::time::sleep(lasts / limits::LEASE_RENEWALS).await;
            if let Err(Error::LeaseLost(_)) = lease.extend(&self.database, lasts).await {
                return;
            }
        }
    }

    /// Records the outcome, retrying until it is recorded or another sender has the delivery.
    async fn end(&self, mut lease: DeliveryLease, lasts: Duration, route: &str, report: &Report) {
        let mut retry = Retry::of("recording the outcome of a webhook");
        let began = Instant::now();
        loop {
            let told = match &report.failure {
                None => lease.succeed(&self.database, &report.outcome).await,
                Some(failure) => lease.fail(&self.database, failure, &report.outcome).await.map(|after| {
                    tracing::info!(
                        route,
                        state = after.state,
                        circuit = after.circuit,
                        "webhook failed: {}",
                        failure.error
                    );
                    if after.route_disabled {
                        tracing::warn!(route, "route disabled: {}", failure.error);
                    }
                }),
            };
            let Unended { error, lease: again } = match told {
                Ok(()) => return,
                Err(unended) => unended,
            };
            match error {
                // It was already recorded, or another sender has it.
                Error::LeaseLost(_) => return,
                error if !error.is_passing() => {
                    let item = again.delivery_id().to_string();
                    return set_aside(&self.database, "webhook_delivery", &item, &error).await;
                }
                _ if began.elapsed() > lasts => return,
                error => tokio::time::sleep(retry.failed(&error)).await,
            }
            lease = again;
        }
    }
}

fn until(due: Timestamp) -> Duration {
    let wait = due.duration_since(Timestamp::now()).try_into().unwrap_or(Duration::ZERO);
    jittered(wait)
}
