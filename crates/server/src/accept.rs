//! The accept loop: our own over hyper's HTTP/1 connection.
//!
//! `axum::serve` would be shorter, but has no bound on connections, no time-out that
//! fires on a slow head, and needs twice the memory per idle connection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::limits;

/// Accepts until `shutdown`, then waits for the connections that are busy.
pub(crate) async fn run(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    loop {
        // Waiting for a slot before accepting leaves the overflow in the kernel's queue.
        let slot = tokio::select! {
            () = shutdown.cancelled() => break,
            slot = slots.clone().acquire_owned() => slot,
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(limits::ACCEPT_REST).await;
                    continue;
                }
            },
        };
        let (router, shutdown) = (router.clone(), shutdown.clone());
        connections.spawn(async move {
            serve(stream, router, shutdown).await;
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits::DRAIN_WAIT_MAX, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "ending connections that did not finish in time");
    }
}

async fn serve(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    // Small answers must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let response = router.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
