//! A running server on a free port, inside the test's own process.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use towpath_server::Config;

use crate::background::Background;

/// A running server. Dropping it stops it.
pub struct RunningServer {
    address: SocketAddr,
    running: Background,
}

impl RunningServer {
    /// Starts one.
    pub async fn start(config: Config) -> RunningServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let running = Background::start(|shutdown| towpath_server::run(listener, config, shutdown));
        RunningServer { address, running }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Asks it to stop and does not wait, so that a test can watch it drain.
    pub fn begin_stop(&self) {
        self.running.begin_stop();
    }

    /// Stops it and waits until it has drained.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}
