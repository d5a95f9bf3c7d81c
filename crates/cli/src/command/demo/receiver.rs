//! The local receiver of the demo's webhooks.
//!
//! It rejects one in ten temporarily and everything at `/refund` permanently, so that the dashboard shows
//! retries and dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(super) struct Receiver {
    listener: TcpListener,
    url: String,
}

impl Receiver {
    /// Listens on a free port of the loopback address.
    pub(super) async fn open() -> anyhow::Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Receiver { listener, url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Serves until `shutdown`, then returns how many it accepted.
    pub(super) fn run(self, shutdown: CancellationToken) -> JoinHandle<u64> {
        tokio::spawn(async move {
            let taken = Arc::new(AtomicU64::new(0));
            let count = taken.clone();
            let take = move || async move {
                if fastrand::u8(..10) == 0 {
                    return StatusCode::SERVICE_UNAVAILABLE;
                }
                count.fetch_add(1, Ordering::Relaxed);
                StatusCode::NO_CONTENT
            };
            let routes = Router::new()
                .route("/ship", post(take))
                .route("/refund", post(async || StatusCode::UNPROCESSABLE_ENTITY));
            let served =
                axum::serve(self.listener, routes).with_graceful_shutdown(shutdown.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::warn!("the demo's webhook receiver stopped: {error}");
            }
            taken.load(Ordering::Relaxed)
        })
    }
}
