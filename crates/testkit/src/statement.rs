//! A proxy before PostgreSQL that stops after a chosen statement.
//!
//! The client can then be killed at exactly that point: the statement was executed, its result was read or was not,
//! and nothing was sent after it. The gate parses enough of the wire protocol to know where a statement ends and
//! which one it was.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Whether the client gets the result of the last statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Read,
    /// It does not: the statement is executed and its result is lost.
    Lost,
}

/// The running gate. Dropping it closes every connection.
pub struct StatementGate {
    addr: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Statements that contain one of these words and return a row are counted.
    words: Vec<&'static str>,
    counted: u64,
    stop_at: Option<(u64, Answer)>,
    /// The statement at which it stopped.
    stopped_at: Option<String>,
}

impl StatementGate {
    /// Opens a gate to the PostgreSQL behind a Unix socket. Only statements that contain one of
    /// `words` and return at least a row are counted: a claim that finds nothing does not count.
    pub async fn start(socket: PathBuf, words: &[&'static str]) -> StatementGate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener knows its address");
        let state = watch::Sender::new(State { words: words.to_vec(), ..State::default() });
        let accepting = tokio::spawn(accept(listener, socket, state.clone()));
        StatementGate { addr, state, accepting }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Lets everything pass until this many more statements have been executed, then nothing.
    pub fn stop_after(&self, statements: u64, answer: Answer) {
        self.state.send_modify(|state| {
            (state.counted, state.stopped_at) = (0, None);
            state.stop_at = Some((statements, answer));
        });
    }

    /// Lets everything pass.
    pub fn open(&self) {
        self.state.send_modify(|state| (state.stop_at, state.stopped_at) = (None, None));
    }

    /// Waits until it stops and returns the statement; none after `patience`.
    pub async fn stopped(&self, patience: Duration) -> Option<String> {
        let mut state = self.state.subscribe();
        let waited = tokio::time::timeout(patience, state.wait_for(|state| state.stopped_at.is_some())).await;
        waited.ok()?.ok()?.stopped_at.clone()
    }
}

impl Drop for StatementGate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, state: watch::Sender<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (socket, state) = (socket.clone(), state.clone());
        connections.spawn(async move {
            let _ = client.set_nodelay(true);
            if let Ok(server) = UnixStream::connect(socket).await {
                join(client, server, state).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Copies bytes both ways until one side ends.
async fn join(client: TcpStream, server: UnixStream, state: watch::Sender<State>) {
    let pending = Arc::new(Mutex::new(VecDeque::new()));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = requests(from_client, to_server, &state, &pending) => {}
        () = answers(from_server, to_client, &state, &pending) => {}
    }
}

type Pending = Arc<Mutex<VecDeque<String>>>;

/// From the client: notes which statement each answer will belong to.
async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &watch::Sender<State>,
    pending: &Pending,
) {
    let mut frames = Frames { first_is_bare: true, ..Frames::default() };
    let mut named: HashMap<String, String> = HashMap::new();
    let mut running = String::new();
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let mut labels = vec![];
        for (kind, body) in frames.push(&chunk[..read]) {
            match kind {
                b'P' => {
                    let mut texts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
                    let (name, sql) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
                    named.insert(name.into_owned(), sql.into_owned());
                    running = "prepare".into();
                }
                b'B' => {
                    let name = body.split(|byte| *byte == 0).nth(1).map(String::from_utf8_lossy);
                    running = named.get(&*name.unwrap_or_default()).cloned().unwrap_or_default();
                }
                b'Q' => labels.push(String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned()),
                b'S' => labels.push(std::mem::take(&mut running)),
                _ => {}
            }
        }
        // Held-back statements are not noted: the server never gets them.
        let mut passing = state.subscribe();
        if passing.wait_for(|state| state.stopped_at.is_none()).await.is_err() {
            return;
        }
        pending.lock().expect("nothing panics here").extend(labels);
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

/// From the server: whole results, so that the gate can close between two of them or before one.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &watch::Sender<State>,
    pending: &Pending,
) {
    let (mut frames, mut held, mut rows) = (Frames::default(), vec![], false);
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        for (kind, body) in frames.push(&chunk[..read]) {
            rows |= kind == b'D';
            held.push(kind);
            held.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            held.extend_from_slice(&body);
            let ended = match kind {
                b'Z' => pending.lock().expect("nothing panics here").pop_front(),
                _ if pending.lock().expect("nothing panics here").is_empty() => None,
                _ => continue,
            };
            let mut passing = state.subscribe();
            let step = ended.filter(|_| std::mem::take(&mut rows));
            let lost = count(state, step.as_deref());
            // A result that is to be read passes first, then the gate closes.
            if lost && passing.wait_for(|state| state.stopped_at.is_none()).await.is_err() {
                return;
            }
            if to.write_all(&held).await.is_err() {
                return;
            }
            held.clear();
            if passing.wait_for(|state| state.stopped_at.is_none()).await.is_err() {
                return;
            }
        }
    }
}

/// Counts an executed statement, and returns whether its result gets lost.
fn count(state: &watch::Sender<State>, statement: Option<&str>) -> bool {
    let mut lost = false;
    state.send_modify(|state| {
        if state.stopped_at.is_some() {
            lost = true;
            return;
        }
        let counts = |statement: &&str| state.words.iter().any(|word| statement.contains(word));
        let Some(statement) = statement.filter(counts) else { return };
        state.counted += 1;
        if let Some((at, answer)) = state.stop_at
            && state.counted >= at
        {
            state.stopped_at = Some(statement.to_owned());
            lost = answer == Answer::Lost;
        }
    });
    lost
}

/// Cuts bytes into messages: a kind, a length that counts itself, a body.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// A client's first message has no kind.
    first_is_bare: bool,
}

impl Frames {
    fn push(&mut self, more: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.bytes.extend_from_slice(more);
        let mut frames = vec![];
        loop {
            let kinds = usize::from(!self.first_is_bare);
            let Some(length) = self.bytes.get(kinds..kinds + 4) else { return frames };
            let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            if self.bytes.len() < kinds + length {
                return frames;
            }
            let frame: Vec<u8> = self.bytes.drain(..kinds + length).collect();
            let kind = if self.first_is_bare { 0 } else { frame[0] };
            self.first_is_bare = false;
            frames.push((kind, frame[kinds + 4..].to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_wherever_they_arrive_in_pieces() {
        let mut bytes = vec![0, 0, 0, 8, 1, 2, 3, 4];
        bytes.extend([b'Q', 0, 0, 0, 6, b'x', 0]);
        bytes.extend([b'S', 0, 0, 0, 4]);
        for size in 1..bytes.len() {
            let mut frames = Frames { first_is_bare: true, ..Frames::default() };
            let cut: Vec<_> = bytes.chunks(size).flat_map(|piece| frames.push(piece)).collect();
            assert_eq!(cut, [(0, vec![1, 2, 3, 4]), (b'Q', vec![b'x', 0]), (b'S', vec![])]);
        }
    }
}
