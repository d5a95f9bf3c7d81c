//! A running server on a free port, inside the test's own process.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use towpath_server::Config;

/// A server that stops with the value.
pub struct RunningServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Starts one.
    pub async fn start(config: Config) -> RunningServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shutdown = CancellationToken::new();
        let task = Some(tokio::spawn(towpath_server::run(listener, config, shutdown.clone())));
        RunningServer { address, shutdown, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a path on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Asks it to stop without waiting, so that a test can watch it drain.
    pub fn begin_stop(&self) {
        self.shutdown.cancel();
    }

    /// Stops it and waits until it has drained.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        if let Some(task) = self.task.take() {
            task.await.expect("the server ends without a panic");
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
