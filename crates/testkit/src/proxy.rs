//! A TCP proxy that misbehaves on request, to put between a client and a server under test.
//!
//! It owns the bytes between two sockets and nothing else: it knows no protocol, so the same proxy
//! works for PostgreSQL and for our own HTTP server. A fault takes effect when the call that
//! sets it returns: no chunk is let through under the old rule afterwards, though one already being
//! written may still arrive.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::wait::WAIT_MAX;

mod connection;
mod socket;

/// The most the proxy holds per direction of a connection; the usual read size of servers.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// Where the proxy sends its clients' bytes.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// A TCP server.
    Tcp(SocketAddr),
    /// A server on a Unix socket, such as a private PostgreSQL.
    Unix(PathBuf),
}

/// One of the two ways bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToUpstream,
    /// From the server to the client: responses.
    ToClient,
}

/// A fault that lasts until another one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// None: bytes pass as they come.
    #[default]
    Pass,
    /// Each chunk waits this long before it passes.
    Delay(Duration),
    /// Bytes pass in chunks of at most `chunk_bytes`, each after `pause`.
    Slow {
        /// The largest piece, at least one byte.
        chunk_bytes: usize,
        /// The wait before each piece; zero only cuts messages to pieces.
        pause: Duration,
    },
    /// Connections are accepted and stay open, and nothing passes: at most one chunk is read, and held.
    Stall,
    /// New connections are closed at once; those already open pass.
    Refuse,
}

/// The running proxy. Dropping it ends its tasks and closes every connection.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens on a free loopback port. The upstream is first contacted when a client connects.
    pub async fn start(upstream: impl Into<Upstream>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener knows its address");
        let state = watch::Sender::new(State::default());
        let accepting = tokio::spawn(connection::accept(listener, upstream.into(), state.clone()));
        Self { addr, state, accepting }
    }

    /// The address clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the fault of both directions.
    pub fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.lanes.iter_mut().for_each(|lane| lane.fault = fault));
    }

    /// Sets the fault of one direction. `Refuse` counts for connections whichever direction has it.
    pub fn set_on(&self, direction: Direction, fault: Fault) {
        self.state.send_modify(|state| state.lanes[direction as usize].fault = fault);
    }

    /// Closes every open connection in an orderly way: both sides read an end of file.
    pub fn cut(&self) {
        self.end(Ending::Cut);
    }

    /// Aborts every open connection: both sides read `ECONNRESET`. A Unix upstream has no such
    /// signal and reads an end of file.
    pub fn reset(&self) {
        self.end(Ending::Reset);
    }

    /// Ends one direction of every open connection: its receiver reads an end of file, what its sender writes is
    /// lost, and the other direction goes on.
    pub fn half_close(&self, direction: Direction) {
        self.state.send_modify(|state| state.lanes[direction as usize].half_closes += 1);
    }

    /// Lets exactly `bytes` more through in a direction, then cuts the connection that carried the
    /// last of them. With zero it is cut in place of the next byte: the answer to a request that the
    /// server did process gets lost. It happens once, and other connections stay open.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.state.send_modify(|state| state.lanes[direction as usize].cut_after = Some(bytes));
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.state.borrow().open
    }

    /// Connections that ever arrived, the refused ones too.
    pub fn arrivals(&self) -> u64 {
        self.state.borrow().arrivals
    }

    /// Bytes ever passed in a direction, over all connections.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.state.borrow().lanes[direction as usize].passed
    }

    /// Waits until exactly `open` connections are open.
    pub async fn wait_connections(&self, open: usize) {
        self.wait_for(|state| state.open == open).await;
    }

    /// Waits until `arrivals` connections have arrived since the start.
    pub async fn wait_arrivals(&self, arrivals: u64) {
        self.wait_for(|state| state.arrivals >= arrivals).await;
    }

    /// Waits until `bytes` have passed in a direction since the start.
    pub async fn wait_passed(&self, direction: Direction, bytes: u64) {
        self.wait_for(|state| state.lanes[direction as usize].passed >= bytes).await;
    }

    fn end(&self, ending: Ending) {
        self.state.send_modify(|state| {
            state.endings += 1;
            state.ending = ending;
        });
    }

    async fn wait_for(&self, seen: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        if timeout(WAIT_MAX, state.wait_for(seen)).await.is_err() {
            panic!("proxy did not see it within {WAIT_MAX:?}: {:?}", self.state.borrow());
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The state of the proxy. One watch channel holds it, so that decisions about bytes and changes of faults are made
/// under one lock, and tests wait on the same value.
#[derive(Debug, Default)]
struct State {
    lanes: [Lane; 2],
    /// How often all connections were ended, and how the last time.
    endings: u64,
    ending: Ending,
    arrivals: u64,
    open: usize,
}

#[derive(Debug, Default)]
struct Lane {
    fault: Fault,
    half_closes: u64,
    cut_after: Option<u64>,
    passed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum Ending {
    #[default]
    Cut,
    Reset,
}

/// Leave to write some bytes, and whether the connection ends with them.
struct Grant {
    bytes: usize,
    last: bool,
}

impl Lane {
    fn grant(&mut self, offered: usize) -> Grant {
        let Some(left) = self.cut_after else { return Grant { bytes: offered, last: false } };
        let bytes = offered.min(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - bytes as u64;
        self.cut_after = (left > 0).then_some(left);
        Grant { bytes, last: left == 0 }
    }
}

impl Fault {
    fn pace(self) -> (usize, Duration) {
        match self {
            Self::Delay(pause) => (CHUNK_BYTES_MAX, pause),
            Self::Slow { chunk_bytes, pause } => (chunk_bytes.max(1), pause),
            Self::Pass | Self::Stall | Self::Refuse => (CHUNK_BYTES_MAX, Duration::ZERO),
        }
    }
}

impl From<SocketAddr> for Upstream {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl From<&Path> for Upstream {
    fn from(path: &Path) -> Self {
        Self::Unix(path.to_owned())
    }
}
