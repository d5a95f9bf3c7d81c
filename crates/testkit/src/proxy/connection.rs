//! One accepted client, its upstream, and the rules of the proxy applied between them.
//!
//! Every wait for bytes, time or a fault is cancelled by the select around the pumps, so a connection
//! that is told to end does so at any point, and no task outlives the accept loop.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::socket::{Sink, Socket, Source};
use super::{CHUNK_BYTES_MAX, Direction, Ending, Fault, Grant, State, Upstream};

/// Connections beyond this wait in the listen backlog; above any pool a test opens.
const CONNECTIONS_MAX: usize = 256;

/// The loop owns the connections' tasks, so that aborting it aborts them.
pub(super) async fn accept(listener: TcpListener, upstream: Upstream, state: watch::Sender<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            Ok((client, _)) = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                if let Some(connection) = Connection::open(&state) {
                    connections.spawn(connection.run(client, upstream.clone()));
                }
            }
            else => tokio::task::yield_now().await,
        }
    }
}

/// One client and its upstream, with the counters at its start: it obeys only later orders.
struct Connection {
    state: watch::Sender<State>,
    endings: u64,
    half_closes: [u64; 2],
}

impl Connection {
    fn open(state: &watch::Sender<State>) -> Option<Self> {
        let mut connection = None;
        state.send_modify(|now| {
            now.arrivals += 1;
            if now.lanes.iter().all(|lane| lane.fault != Fault::Refuse) {
                now.open += 1;
                let half_closes = [now.lanes[0].half_closes, now.lanes[1].half_closes];
                connection = Some(Self { state: state.clone(), endings: now.endings, half_closes });
            }
        });
        connection
    }

    async fn run(self, client: TcpStream, upstream: Upstream) {
        // An upstream that is down looks like a server that closes at once.
        let Ok(mut upstream) = Socket::connect(&upstream).await else { return };
        let mut client = Socket::Tcp(client);
        let ending = {
            let (from_client, to_client) = client.split();
            let (from_upstream, to_upstream) = upstream.split();
            let pumps = async {
                tokio::try_join!(
                    self.pump(Direction::ToUpstream, from_client, to_upstream),
                    self.pump(Direction::ToClient, from_upstream, to_client),
                )
            };
            tokio::select! {
                biased;
                ending = self.ended() => ending,
                pumped = pumps => pumped.err().unwrap_or(Ending::Cut),
            }
        };
        client.close(ending).await;
        upstream.close(ending).await;
    }

    /// Moves one direction's bytes to its end of file, or to its half close.
    async fn pump(&self, direction: Direction, mut from: Source<'_>, mut to: Sink<'_>) -> Result<(), Ending> {
        tokio::select! {
            biased;
            () = self.half_closed(direction) => {}
            forwarded = self.forward(direction, &mut from, &mut to) => return forwarded,
        }
        to.shutdown().await?;
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
        Ok(())
    }

    async fn forward(&self, way: Direction, from: &mut Source<'_>, to: &mut Sink<'_>) -> Result<(), Ending> {
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        loop {
            self.flowing(way).await;
            let filled = from.read(&mut buffer).await?;
            let mut rest = &buffer[..filled];
            while !rest.is_empty() {
                let (bytes_max, pause) = self.flowing(way).await.pace();
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                let Some(grant) = self.admit(way, rest.len().min(bytes_max)) else { continue };
                to.write_all(&rest[..grant.bytes]).await?;
                self.state.send_modify(|state| state.lanes[way as usize].passed += grant.bytes as u64);
                if grant.last {
                    return Err(Ending::Cut);
                }
                rest = &rest[grant.bytes..];
            }
            if filled == 0 {
                self.flowing(way).await;
                return Ok(to.shutdown().await?);
            }
        }
    }

    /// Decides about bytes in hand, at the last moment before they are written.
    fn admit(&self, direction: Direction, offered: usize) -> Option<Grant> {
        let mut grant = None;
        self.state.send_if_modified(|state| {
            if self.flows(state, direction) {
                grant = Some(state.lanes[direction as usize].grant(offered));
            }
            false // Nobody waits for a grant, only for the bytes that pass by it.
        });
        grant
    }

    fn flows(&self, state: &State, direction: Direction) -> bool {
        let lane = &state.lanes[direction as usize];
        state.endings == self.endings
            && lane.half_closes == self.half_closes[direction as usize]
            && lane.fault != Fault::Stall
    }

    async fn flowing(&self, direction: Direction) -> Fault {
        self.when(|state| self.flows(state, direction), |state| state.lanes[direction as usize].fault).await
    }

    async fn half_closed(&self, direction: Direction) {
        let born = self.half_closes[direction as usize];
        self.when(|state| state.lanes[direction as usize].half_closes != born, |_| ()).await;
    }

    async fn ended(&self) -> Ending {
        self.when(|state| state.endings != self.endings, |state| state.ending).await
    }

    async fn when<T>(&self, ready: impl FnMut(&State) -> bool, take: impl FnOnce(&State) -> T) -> T {
        let mut state = self.state.subscribe();
        take(&state.wait_for(ready).await.expect("the connection holds a sender itself"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.send_modify(|state| state.open -= 1);
    }
}

/// If one side fails, the other is closed too, as by a dead network.
impl From<io::Error> for Ending {
    fn from(_: io::Error) -> Self {
        Self::Reset
    }
}
