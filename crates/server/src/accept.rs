//! The accept loop: our own over hyper's connections.
//!
//! `axum::serve` would be shorter, but has no bound on connections, no time-out that
//! fires on a slow head, and needs twice the memory per idle connection.

use std::pin::Pin;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Admission, ConnectionLimits, ConnectionSlot, ConnectionSlots};
use crate::flood::FrameCounter;
use crate::front::{Client, Front};
use crate::hosts::SAFE_FIELDS;
use crate::http1::{self, Connection, Following, HandedOver, Next};
use crate::io::{Filtered, WriteBound};
use crate::limits;
use crate::stop::Stop;
use crate::tls::Tls;

/// Accepts connections until `shutdown`, then tells them to stop and waits for requests in flight.
pub(crate) async fn run(
    listener: TcpListener,
    front: Front,
    limits: ConnectionLimits,
    tls: Option<Tls>,
    shutdown: CancellationToken,
    stop: Stop,
) {
    let connections = TaskTracker::new();
    let http = front.metrics.http().clone();
    let slots = ConnectionSlots::new(limits, http.connections.clone());
    loop {
        let (stream, address) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(limits::ACCEPT_REST).await;
                    continue;
                }
            },
        };
        let slot = match slots.admit(address.ip()) {
            Admission::Admitted(slot) => slot,
            Admission::HealthOnly(slot) => {
                http.connections_refused.inc();
                connections.spawn(serve_health(stream, front.clone(), tls.clone(), slot));
                continue;
            }
            Admission::Full => {
                http.connections_refused.inc();
                refuse(stream).await;
                continue;
            }
        };
        let context = ConnectionContext {
            front: front.clone(),
            stop: stop.clone(),
            connections: connections.clone(),
            slot: Box::new(slot),
        };
        connections.spawn(serve(stream, context, tls.clone()));
    }
    drop(listener);
    stop.now();
    connections.close();
    if tokio::time::timeout(limits::DRAIN_WAIT_MAX, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not finish in time");
    }
}

/// Answers `/health` on a connection above the limit, and 503 to any other request.
async fn serve_health(stream: TcpStream, front: Front, tls: Option<Tls>, slot: ConnectionSlot) {
    let answering = async {
        let mut first = [0; 1];
        let asks = tokio::time::timeout(limits::HEALTH_ASK_MAX, stream.peek(&mut first)).await;
        match tls {
            _ if !matches!(asks, Ok(Ok(1))) => refuse(stream).await,
            None => answer_health(stream, &front).await,
            Some(tls) => {
                if let Ok(secure) = tls.acceptor().accept(stream).await {
                    answer_health(secure, &front).await;
                }
            }
        }
    };
    let _ = tokio::time::timeout(limits::HEALTH_WAIT_MAX, answering).await;
    drop(slot);
}

async fn answer_health<T>(io: T, front: &Front)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let front = front.clone();
        async move {
            match request.uri().path() {
                "/health" => front.answer(request).await,
                _ => Ok(Front::busy("too many connections; try again soon")),
            }
        }
    });
    let mut builder = conn::http1::Builder::new();
    let connection = builder.keep_alive(false).max_buf_size(limits::OWN_HEAD_BYTES_MAX);
    let _ = connection.serve_connection(TokioIo::new(io), service).await;
}

/// Answers 503 and closes the connection. The answer fits the empty send buffer, so the client
/// cannot block the accept loop.
async fn refuse(mut stream: TcpStream) {
    let body = r#"{"error":"busy","detail":"too many connections; try again soon"}"#;
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close";
    let safe: String = SAFE_FIELDS.iter().map(|(name, value)| format!("\r\n{name}: {value}")).collect();
    let answer = format!("{head}{safe}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = tokio::time::timeout(limits::ACCEPT_REST, stream.write_all(answer.as_bytes())).await;
}

/// What a connection needs and holds while it is open.
struct ConnectionContext {
    front: Front,
    stop: Stop,
    connections: TaskTracker,
    slot: Box<ConnectionSlot>,
}

async fn serve(stream: TcpStream, context: ConnectionContext, tls: Option<Tls>) {
    // Small answers must not wait for the peer's acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(limits::SEND_BUFFER_UNSENT_BYTES_MAX);
    // Boxed here and below, so that the future of a plain connection stays small.
    if let Some(tls) = tls {
        return Box::pin(serve_secure(stream, context, tls)).await;
    }
    let Some(is_http2) = begins_with_http2(&stream).await else { return };
    match &context.front.streams {
        Some(streams) if !is_http2 => {
            let connection = http1::begin(stream, streams, context.stop.clone());
            serve_http1(connection, context).await;
        }
        _ => Box::pin(serve_hyper(bound(stream, &context.front), is_http2, context)).await,
    }
}

async fn serve_secure(stream: TcpStream, context: ConnectionContext, tls: Tls) {
    let accept = tls.acceptor().accept(bound(stream, &context.front));
    let Ok(Ok(secure)) = tokio::time::timeout(limits::TLS_WAIT_MAX, accept).await else { return };
    let is_http2 = secure.get_ref().1.alpn_protocol() == Some(b"h2");
    Box::pin(serve_hyper(secure, is_http2, context)).await;
}

/// Answers requests to streams with our own HTTP/1.1, then hands over to hyper or follows a stream.
async fn serve_http1(connection: Connection, context: ConnectionContext) {
    let Some(streams) = &context.front.streams else { return };
    match http1::serve(connection, streams, &context.front.hosts).await {
        Next::Gone => {}
        Next::HandedOver(HandedOver { stream, read }) => {
            let stream = Filtered::new(bound(stream, &context.front), read);
            Box::pin(serve_hyper(stream, false, context)).await;
        }
        Next::Following(following) => {
            context.connections.clone().spawn(follow(Box::new((following, context))));
        }
    }
}

/// Sends events, then answers the next request. A separate, boxed task, to keep it small: there are many
/// followers, and they stay connected.
async fn follow(mut both: Box<(Following, ConnectionContext)>) {
    if both.0.run().await.is_ok() {
        serve_http1_again(both).await;
    }
}

fn serve_http1_again(both: Box<(Following, ConnectionContext)>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let (following, context) = *both;
    Box::pin(serve_http1(following.into_connection(context.stop.clone()), context))
}

/// A connection whose peer must take bytes within a time limit.
fn bound(stream: TcpStream, front: &Front) -> WriteBound<TcpStream> {
    let given_up = front.metrics.http().slow_clients_dropped.clone();
    WriteBound::new(stream, limits::WRITE_WAIT_MAX, given_up)
}

/// Whether a connection begins with the preface of HTTP/2; `None` if the client sends nothing.
///
/// Peeking costs one system call per connection. hyper-util's automatic connection would need twice the memory
/// for HTTP/1.1.
async fn begins_with_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0; 3];
    match tokio::time::timeout(limits::IDLE_WAIT_MAX, stream.peek(&mut first)).await {
        Ok(Ok(length)) if length > 0 => Some(first == *b"PRI"),
        _ => None,
    }
}

/// Answers requests with hyper until the peer closes, an idle time-out fires or the server stops.
async fn serve_hyper<T>(io: T, is_http2: bool, context: ConnectionContext)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ConnectionContext { front, stop, .. } = &context;
    let carried = front.budget.connection();
    let client = Client(context.slot.address);
    let service = hyper::service::service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(carried.clone());
        request.extensions_mut().insert(client);
        let front = front.clone();
        async move { front.answer(request).await }
    });
    let ended = match is_http2 {
        false => {
            let io = TokioIo::new(io);
            let connection = conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::IDLE_WAIT_MAX)
                .max_buf_size(limits::HEAD_BYTES_MAX)
                .serve_connection(io, service);
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = carried.stalled() => {
                    front.metrics.http().slow_clients_dropped.inc();
                    return;
                }
                () = stop.set() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        true => {
            let io =
                TokioIo::new(Filtered::new(io, FrameCounter::new(front.metrics.http().http2_floods.clone())));
            let connection = conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(limits::PING_EVERY)
                .keep_alive_timeout(limits::PING_WAIT_MAX)
                .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
                .max_header_list_size(limits::HEAD_BYTES_MAX as u32)
                .max_send_buf_size(2 * limits::LARGE_PIECE_BYTES)
                .max_pending_accept_reset_streams(limits::HTTP2_RESETS_MAX)
                .max_local_error_reset_streams(limits::HTTP2_RESETS_MAX)
                .serve_connection(io, service);
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = carried.stalled() => {
                    front.metrics.http().slow_clients_dropped.inc();
                    return;
                }
                () = stop.set() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S06: ten thousand followers are ten thousand of these.
    #[test]
    fn a_follower_takes_little_memory() {
        fn bytes<A, R>(_: impl Fn(A) -> R) -> usize {
            size_of::<R>()
        }
        let all = bytes(follow) + size_of::<(Following, ConnectionContext)>();
        assert!(all <= 384, "{all} bytes");
    }
}
