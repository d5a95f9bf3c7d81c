//! A receiver of webhooks that records every request and responds as a test says.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::wait::until;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Arrived {
    /// The text of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// The response to a request, by its number from 0.
type Answer = dyn Fn(usize, &Arrived) -> Response + Send + Sync;

/// A receiver of webhooks on this machine.
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    answer: Arc<Answer>,
}

impl Receiver {
    /// Responds as the function says.
    pub async fn new(answer: impl Fn(usize, &Arrived) -> Response + Send + Sync + 'static) -> Receiver {
        Receiver::at((Ipv4Addr::LOCALHOST, 0).into(), answer).await
    }

    /// The same at a given address.
    pub async fn at(
        address: SocketAddr,
        answer: impl Fn(usize, &Arrived) -> Response + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let arrived = Arc::new(Mutex::new(vec![]));
        let shared = Shared { arrived: arrived.clone(), answer: Arc::new(answer) };
        let routes = Router::new().fallback(receive).with_state(shared);
        let server =
            tokio::spawn(
                async move { axum::serve(listener, routes).await.expect("it serves until it is ended") },
            );
        Receiver { address, arrived, server }
    }

    /// Accepts everything.
    pub async fn content() -> Receiver {
        Receiver::new(|_, _| StatusCode::NO_CONTENT.into_response()).await
    }

    /// The URL of a webhook to it.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Every request so far.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().expect("nothing panics here").clone()
    }

    /// Waits for `count` requests.
    pub async fn until_arrived(&self, count: usize) -> Vec<Arrived> {
        until(format!("{count} webhooks"), async || self.arrived(), |arrived| arrived.len() >= count).await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let arrived = Arrived { headers, body };
    let number = {
        let mut all = shared.arrived.lock().expect("nothing panics here");
        all.push(arrived.clone());
        all.len() - 1
    };
    (shared.answer)(number, &arrived)
}
