//! One stream, many followers: each message goes out when everybody has the one before.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::{Value, json};

use crate::Server;
use crate::http::{self, READ_BYTES, request};
use crate::process::{self, Meter, percentile};

/// Begins every message and appears nowhere else on the wire.
const MARK: &[u8] = b"#message#";
/// A message that has not reached everybody by then is reported as lost.
const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(15);

#[derive(clap::Args)]
pub struct Sse {
    #[command(flatten)]
    server: Server,
    /// Clients that follow
    #[arg(long)]
    clients: usize,
    /// Messages at most
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,
    /// How long is measured, at most
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of one message
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// The stream's name
    #[arg(long, default_value = "sse")]
    name: String,
}

struct Client {
    stream: TcpStream,
    /// The last bytes, in case a mark is cut.
    tail: Vec<u8>,
    begun: bool,
    got: usize,
}

struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    events: Events,
    buffer: Vec<u8>,
    began: usize,
}

impl Sse {
    pub fn run(&self) -> Result<Value> {
        let path = format!("/v1/stream/{}", self.name);
        let kind = "content-type: text/plain\r\n";
        let created = http::ask(self.server.address, &[request("PUT", &path, kind, b"")])?;
        ensure!(created == [201], "creating the stream answered {created:?}");
        let before = process::memory_mib(self.server.pid)?;
        let mut clients = self.connect(&path)?;
        let with_clients = process::memory_mib(self.server.pid)?;

        let mut publisher = Publisher::new(self, &path, kind)?;
        // The first messages pay for buffers.
        for _ in 0..3 {
            publisher.send()?;
            clients.wait_for(publisher.sent, |_| ())?;
        }
        let meter = Meter::start(self.server.pid)?;
        let (mut half, mut all, mut micros) = (Vec::new(), Vec::new(), Vec::new());
        let warm = publisher.sent;
        while publisher.sent - warm < self.messages && meter.stop()?.seconds < self.seconds {
            let clock = Instant::now();
            publisher.send()?;
            micros.clear();
            clients.wait_for(publisher.sent, |at| {
                let after = at.duration_since(clock).as_micros();
                micros.push(u32::try_from(after).unwrap_or(u32::MAX));
            })?;
            micros.sort_unstable();
            half.push(micros[micros.len() / 2]);
            all.push(micros[micros.len() - 1]);
        }
        let used = meter.stop()?;
        half.sort_unstable();
        all.sort_unstable();
        Ok(json!({
            "clients": self.clients,
            "messages": publisher.sent - warm,
            "deliveries": (publisher.sent - warm) * self.clients,
            "seconds": used.seconds,
            "server_cpu_seconds": used.server_cpu,
            "client_cpu_seconds": used.client_cpu,
            "half_have_it_ms": percentile(&half, 0.5),
            "all_have_it_ms": percentile(&all, 0.5),
            "all_have_it_p99_ms": percentile(&all, 0.99),
            "memory_mib": process::memory_mib(self.server.pid)?,
            "kib_per_client": (with_clients - before) * 1024.0 / self.clients as f64,
        }))
    }

    /// Connects all clients and waits until each has received something.
    fn connect(&self, path: &str) -> Result<Clients> {
        let poll = Poll::new()?;
        let follow = request("GET", &format!("{path}?offset=now&live=sse"), "accept: text/event-stream\r\n", b"");
        let mut all = Clients {
            poll,
            clients: Vec::with_capacity(self.clients),
            events: Events::with_capacity(4096),
            buffer: vec![0; READ_BYTES],
            began: 0,
        };
        for number in 0..self.clients {
            let mut stream = std::net::TcpStream::connect(self.server.address)
                .with_context(|| format!("client {number}; is `ulimit -n` large enough?"))?;
            std::io::Write::write_all(&mut stream, &follow)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            all.poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
            all.clients.push(Client { stream, tail: Vec::new(), begun: false, got: 0 });
            // The server's backlog is finite.
            if number % 100 == 99 {
                all.wait_until_began(number * 9 / 10)?;
            }
        }
        all.wait_until_began(self.clients)?;
        Ok(all)
    }
}

impl Clients {
    /// Waits until every client has `count` messages; calls `received` for each that arrives.
    fn wait_for(&mut self, count: usize, mut received: impl FnMut(Instant)) -> Result<()> {
        let mut missing = self.clients.iter().filter(|client| client.got < count).count();
        let until = Instant::now() + DELIVERY_WAIT_MAX;
        while missing > 0 {
            ensure!(Instant::now() < until, "{missing} clients have not got message {count}");
            self.turn(|client, at| {
                if client.got == count {
                    missing -= 1;
                    received(at);
                }
            })?;
        }
        Ok(())
    }

    /// Waits until `count` clients have received something.
    fn wait_until_began(&mut self, count: usize) -> Result<()> {
        let until = Instant::now() + DELIVERY_WAIT_MAX;
        while self.began < count {
            ensure!(Instant::now() < until, "only {} of {count} clients received anything", self.began);
            self.turn(|_, _| ())?;
        }
        Ok(())
    }

    /// Reads what there is; `got` is called for every message that reached a client.
    fn turn(&mut self, mut got: impl FnMut(&Client, Instant)) -> Result<()> {
        self.poll.poll(&mut self.events, Some(Duration::from_secs(1)))?;
        for event in &self.events {
            let client = &mut self.clients[event.token().0];
            loop {
                match client.stream.read(&mut self.buffer) {
                    Ok(0) => bail!("the server hung up on a follower"),
                    Ok(count) => {
                        if !client.begun {
                            client.begun = true;
                            self.began += 1;
                        }
                        let now = Instant::now();
                        for _ in 0..client.marks(&self.buffer[..count]) {
                            client.got += 1;
                            got(client, now);
                        }
                        if count < self.buffer.len() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

impl Client {
    /// Messages whose mark ends in `bytes`; it may have begun before.
    fn marks(&mut self, bytes: &[u8]) -> usize {
        if self.tail.is_empty() {
            self.tail.extend_from_slice(unfinished(bytes));
            return memmem::find_iter(bytes, MARK).count();
        }
        let joined = [&self.tail, bytes].concat();
        self.tail.clear();
        self.tail.extend_from_slice(unfinished(&joined));
        memmem::find_iter(&joined, MARK).count()
    }
}

/// The end of `bytes` that may be the beginning of a mark.
fn unfinished(bytes: &[u8]) -> &[u8] {
    let ends = (1..MARK.len().min(bytes.len() + 1)).rev().map(|count| &bytes[bytes.len() - count..]);
    let mut ends = ends.filter(|end| MARK.starts_with(end));
    ends.next().unwrap_or_default()
}

/// The one that appends, on a connection that blocks.
struct Publisher {
    stream: std::net::TcpStream,
    append: Vec<u8>,
    answers: http::Answers,
    sent: usize,
}

impl Publisher {
    fn new(sse: &Sse, path: &str, kind: &str) -> Result<Publisher> {
        let stream = std::net::TcpStream::connect(sse.server.address)?;
        stream.set_nodelay(true)?;
        let mut body = MARK.to_vec();
        body.resize(sse.bytes.max(MARK.len()), b'x');
        let append = request("POST", path, kind, &body);
        Ok(Publisher { stream, append, answers: http::Answers::default(), sent: 0 })
    }

    /// Appends one message and waits until it is durable.
    fn send(&mut self) -> Result<()> {
        std::io::Write::write_all(&mut self.stream, &self.append)?;
        let (mut buffer, mut status) = ([0; 4096], None);
        while status.is_none() {
            let count = self.stream.read(&mut buffer)?;
            ensure!(count > 0, "the server hung up on the publisher");
            self.answers.take(&buffer[..count], |answered| status = Some(answered))?;
        }
        ensure!(matches!(status, Some(200..300)), "an append answered {status:?}");
        self.sent += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are cut, every message is counted once.
    #[test]
    fn marks_are_counted_once() {
        let wire = [b"event: data\ndata:#me#mes#message#", MARK, b"xx\n\n##message#y", MARK].concat();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for size in 1..wire.len() {
            let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = TcpStream::from_std(stream);
            let mut client = Client { stream, tail: Vec::new(), begun: true, got: 0 };
            let found: usize = wire.chunks(size).map(|piece| client.marks(piece)).sum();
            assert_eq!(found, 4, "in pieces of {size}");
        }
    }
}
