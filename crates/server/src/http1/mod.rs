//! HTTP/1.1 for streams, without a framework.
//!
//! An append costs little more than its system calls if nothing is hashed, boxed or moved
//! around it (docs/decisions/0008). So this loop handles plain requests to streams itself. Anything
//! else (another path, a chunked body, `Connection: close`) goes to hyper, with the connection and
//! every byte that was read from it.

mod answer;
mod connection;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod head;

use bytes::Bytes;
use hyper::header::ORIGIN;
use hyper::{Method, Request};
use tokio::net::TcpStream;
use towpath_model::stream::name::Resource;

use crate::hosts::Hosts;
use crate::limits::OWN_BODY_BYTES_MAX;
use crate::stop::Stop;
use crate::stream::{AppendRequest, Fields, Streams};
use crate::upload::Upload;
use connection::Unread;
pub(crate) use connection::{Connection, Following};
use head::{Head, Read};

/// A connection for hyper, and the bytes that were read from it.
pub(crate) struct HandedOver {
    pub(crate) stream: TcpStream,
    pub(crate) read: Bytes,
}

/// What happens next with a connection.
pub(crate) enum Next {
    /// It has ended.
    Gone,
    /// hyper takes it over.
    HandedOver(HandedOver),
    /// It follows a stream.
    Following(Following),
}

/// Wraps a new connection.
pub(crate) fn begin(stream: TcpStream, streams: &Streams, stop: Stop) -> Connection {
    Connection::new(stream, stop, streams.slow_clients_dropped())
}

/// Answers requests to streams until the connection ends or another request comes.
pub(crate) async fn serve(mut connection: Connection, streams: &Streams, hosts: &Hosts) -> Next {
    let body_bytes_max = streams.body_bytes_max().min(OWN_BODY_BYTES_MAX);
    loop {
        let answered = match understand((streams, hosts), connection.input(), body_bytes_max) {
            Asked::More => connection.read().await,
            Asked::NotOurs => return Next::HandedOver(connection.hand_over()),
            Asked::Body { bytes } => match connection.read_body(bytes).await {
                Ok(()) => continue,
                Err(Unread::Late) => connection.answer_late(streams).await,
                Err(Unread::Gone) => return Next::Gone,
            },
            Asked::Append { bytes, request } => {
                connection.take(bytes);
                connection.answer_append(streams.append(*request).await).await
            }
            Asked::Other { bytes, resource, request } => {
                connection.take(bytes);
                let is_head = request.method() == Method::HEAD;
                // Boxed, to keep the future of an idle connection small.
                match connection.answer(is_head, Box::pin(streams.answer(resource, *request))).await {
                    Ok(Some(events)) => return Next::Following(connection.follow(events)),
                    answered => answered.map(drop),
                }
            }
        };
        if answered.is_err() {
            return Next::Gone;
        }
    }
}

/// A parsed request, and its length.
enum Asked {
    /// The head is not complete.
    More,
    /// The body is not complete.
    Body {
        bytes: usize,
    },
    NotOurs,
    Append {
        bytes: usize,
        request: Box<AppendRequest>,
    },
    Other {
        bytes: usize,
        resource: Resource,
        request: Box<Request<Upload>>,
    },
}

fn understand(here: (&Streams, &Hosts), input: &[u8], body_bytes_max: usize) -> Asked {
    let mut fields = head::room();
    match head::read(input, &mut fields) {
        Read::More => Asked::More,
        Read::NotOurs => Asked::NotOurs,
        Read::Whole(head) if head.body_bytes > body_bytes_max => Asked::NotOurs,
        Read::Whole(head) => of_head(here, &head, input),
    }
}

fn of_head((streams, hosts): (&Streams, &Hosts), head: &Head<'_>, input: &[u8]) -> Asked {
    let bytes = head.bytes + head.body_bytes;
    let Some(resource) = Resource::parse(head.path) else { return Asked::NotOurs };
    if !hosts.allow(head, None) {
        return Asked::NotOurs;
    }
    // Requests of web pages need CORS, which the short path does not have.
    let from_a_page = head.all(&ORIGIN).next().is_some();
    let Some(body) = input.get(head.bytes..bytes) else { return Asked::Body { bytes } };
    let body = Bytes::copy_from_slice(body);
    match resource {
        Resource::Stream(name) if head.method == Method::POST && !from_a_page => {
            Asked::Append { bytes, request: Box::new(streams.append_request(name, head, body)) }
        }
        resource => match head.request(body) {
            Some(request) => Asked::Other { bytes, resource, request: Box::new(request) },
            None => Asked::NotOurs,
        },
    }
}
