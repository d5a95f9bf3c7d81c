//! The receiver of the demo's webhooks, on this machine.
//!
//! It refuses one in ten for a moment and everything at `/refund` for ever, so that retries and
//! dead letters are there to be seen.

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

    /// Answers until `shutdown`, then says how many it took.
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
                tracing::warn!("the receiver of the demo's webhooks ended: {error}");
            }
            taken.load(Ordering::Relaxed)
        })
    }
}
