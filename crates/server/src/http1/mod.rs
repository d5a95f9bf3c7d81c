//! HTTP/1.1 for streams, without a framework in between.
//!
//! An append costs little more than its system calls, if nothing is hashed, boxed or moved
//! around it (docs/decisions/0008). So this loop reads plain requests to streams itself. It
//! understands exactly what it needs; whatever else comes, another path, a body in chunks, a
//! wish to close, goes to hyper with the connection and every byte that was read of it.

mod answer;
mod connection;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod head;

use bytes::Bytes;
use hyper::header::ORIGIN;
use hyper::{Method, Request};
use tokio::net::TcpStream;
use towpath_model::stream::name::Place;

use crate::hosts::Hosts;
use crate::limits::OWN_BODY_BYTES_MAX;
use crate::stop::Stop;
use crate::stream::{AppendRequest, Fields, Streams};
use crate::upload::Upload;
use connection::Unread;
pub(crate) use connection::{Connection, Following};
use head::{Head, Read};

/// A connection that hyper has to go on with, and what was read of it.
pub(crate) struct HandedOver {
    pub(crate) stream: TcpStream,
    pub(crate) read: Bytes,
}

/// How it goes on with a connection.
pub(crate) enum Next {
    /// Not at all.
    Gone,
    /// With hyper.
    HandedOver(HandedOver),
    /// With an answer that keeps coming.
    Following(Following),
}

/// Begins with a new connection.
pub(crate) fn begin(stream: TcpStream, streams: &Streams, stop: Stop) -> Connection {
    Connection::new(stream, stop, streams.slow_clients_dropped())
}

/// Answers requests to streams until the connection ends or something else is asked.
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
            Asked::Other { bytes, place, request } => {
                connection.take(bytes);
                let is_head = request.method() == Method::HEAD;
                // Boxed: thousands of followers rest in this loop without needing its room.
                match connection.answer(is_head, Box::pin(streams.answer(place, *request))).await {
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

/// What a request comes to, and how many bytes it took.
enum Asked {
    /// Its head is not complete.
    More,
    /// Its body is not.
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
        place: Place,
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
    let Some(place) = Place::parse(head.path) else { return Asked::NotOurs };
    if !hosts.allow(head, None) {
        return Asked::NotOurs;
    }
    // A page that asks is judged, and answered in its own way: not here.
    let from_a_page = head.all(&ORIGIN).next().is_some();
    let Some(body) = input.get(head.bytes..bytes) else { return Asked::Body { bytes } };
    let body = Bytes::copy_from_slice(body);
    match place {
        Place::Stream(name) if head.method == Method::POST && !from_a_page => {
            Asked::Append { bytes, request: Box::new(streams.append_request(name, head, body)) }
        }
        place => match head.request(body) {
            Some(request) => Asked::Other { bytes, place, request: Box::new(request) },
            None => Asked::NotOurs,
        },
    }
}
