//! As much HTTP/1.1 as a load generator needs: requests that were written before, answers
//! that are recognised and thrown away.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Read at once; larger than most answers.
pub const READ_BYTES: usize = 256 << 10;

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = match body.is_empty() && method == "GET" {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// Recognises the end of one answer after the other.
#[derive(Default)]
pub struct Answers {
    head: Vec<u8>,
    body: Body,
    status: u16,
}

#[derive(Default)]
enum Body {
    /// The head is not complete.
    #[default]
    Head,
    /// So many bytes are missing.
    Left(usize),
    /// In chunks; so many bytes of one are missing, or its first line has come so far.
    Chunk(usize),
    ChunkLine(Vec<u8>),
}

impl Answers {
    /// Takes bytes and calls `ended` with the status of every answer that they complete.
    pub fn take(&mut self, mut bytes: &[u8], mut ended: impl FnMut(u16)) -> Result<()> {
        loop {
            match &mut self.body {
                Body::Head => {
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    let Some(rest) = self.take_head(bytes)? else { return Ok(()) };
                    bytes = rest;
                }
                Body::Left(left) => {
                    let now = bytes.len().min(*left);
                    *left -= now;
                    bytes = &bytes[now..];
                    if *left > 0 {
                        return Ok(());
                    }
                    self.body = Body::Head;
                    ended(self.status);
                }
                Body::Chunk(left) => {
                    let now = bytes.len().min(*left);
                    *left -= now;
                    bytes = &bytes[now..];
                    if *left > 0 {
                        return Ok(());
                    }
                    self.body = Body::ChunkLine(Vec::new());
                }
                Body::ChunkLine(line) => {
                    let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                    bytes = rest;
                    line.push(*first);
                    let Some(text) = line.strip_suffix(b"\r\n") else { continue };
                    let size = usize::from_str_radix(std::str::from_utf8(text)?.trim(), 16)?;
                    if size > 0 {
                        self.body = Body::Chunk(size + 2);
                    } else {
                        // The empty line behind the last chunk.
                        self.body = Body::Left(2);
                    }
                }
            }
        }
    }

    /// Completes the head, or keeps what there is of it.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let before = self.head.len();
        let known = match before {
            // The usual case: the whole head in one read.
            0 => memmem::find(bytes, b"\r\n\r\n").map(|end| end + 4),
            _ => None,
        };
        if let Some(end) = known {
            self.begin(&bytes[..end])?;
            return Ok(Some(&bytes[end..]));
        }
        self.head.extend_from_slice(bytes);
        ensure!(self.head.len() < 64 << 10 || memmem::find(&self.head, b"\r\n\r\n").is_some(), "a head without end");
        let Some(end) = memmem::find(&self.head, b"\r\n\r\n").map(|end| end + 4) else { return Ok(None) };
        let head = std::mem::take(&mut self.head);
        self.begin(&head[..end])?;
        Ok(Some(&bytes[end - before..]))
    }

    fn begin(&mut self, head: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(head).context("a head that is not text")?;
        self.status = text.get(9..12).and_then(|digits| digits.parse().ok()).context("no status")?;
        let value = |name: &str| {
            text.lines().skip(1).find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        self.body = match (self.status, value("content-length"), value("transfer-encoding")) {
            (204 | 304, _, _) => Body::Left(0),
            (_, Some(length), _) => Body::Left(length.parse()?),
            (_, None, Some(_)) => Body::ChunkLine(Vec::new()),
            (status, None, None) => bail!("an answer of status {status} without length"),
        };
        Ok(())
    }
}

/// Asks on a connection of its own and waits: for what comes before and behind a measure.
pub fn ask(address: SocketAddr, requests: &[Vec<u8>]) -> Result<Vec<u16>> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (mut answers, mut found) = (Answers::default(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    for (number, request) in requests.iter().enumerate() {
        stream.write_all(request)?;
        while found.len() <= number {
            let count = stream.read(&mut buffer)?;
            ensure!(count > 0, "the server hung up");
            answers.take(&buffer[..count], |status| found.push(status))?;
        }
    }
    Ok(found)
}

/// Connections that each send a request, wait for its answer, and send the next.
pub struct Loop {
    poll: Poll,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    answers: Answers,
    sent_at: Instant,
    /// Position in the cycle of requests.
    next: usize,
    /// What the socket did not take at once.
    left: Vec<u8>,
}

/// What a loop saw in its measured time.
#[derive(Default)]
pub struct Seen {
    pub answers: u64,
    pub bytes: u64,
    pub refused: u64,
    /// Sorted.
    pub micros: Vec<u32>,
}

impl Loop {
    pub fn connect(address: SocketAddr, count: usize) -> Result<Loop> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
            let (answers, sent_at) = (Answers::default(), Instant::now());
            connections.push(Connection { stream, answers, sent_at, next: number, left: Vec::new() });
        }
        Ok(Loop { poll, connections, buffer: vec![0; READ_BYTES] })
    }

    /// Runs until `until`; connection c begins with request c and goes on in steps of the
    /// number of connections, so that all requests get the same share.
    pub fn run(&mut self, requests: &[Vec<u8>], until: Instant) -> Result<Seen> {
        let mut seen = Seen::default();
        let step = self.connections.len();
        let mut events = Events::with_capacity(1024);
        let mut in_flight = self.connections.len();
        let mut now = Instant::now();
        for connection in &mut self.connections {
            connection.send(requests, now)?;
        }
        while in_flight > 0 {
            self.poll.poll(&mut events, Some(Duration::from_secs(30)))?;
            ensure!(!events.is_empty(), "the server has not answered for 30 seconds");
            now = Instant::now();
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                if !connection.left.is_empty() && event.is_writable() {
                    connection.flush()?;
                }
                if !event.is_readable() {
                    continue;
                }
                let mut ended = None;
                loop {
                    match connection.stream.read(&mut self.buffer) {
                        Ok(0) => bail!("the server hung up"),
                        Ok(count) => {
                            seen.bytes += count as u64;
                            connection.answers.take(&self.buffer[..count], |status| ended = Some(status))?;
                            // A short read means that the socket is empty.
                            if count < self.buffer.len() {
                                break;
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                let Some(status) = ended else { continue };
                seen.answers += 1;
                seen.refused += u64::from(!(200..300).contains(&status));
                let micros = Instant::now().duration_since(connection.sent_at).as_micros();
                seen.micros.push(u32::try_from(micros).unwrap_or(u32::MAX));
                if now < until {
                    connection.next += step;
                    connection.send(requests, Instant::now())?;
                } else {
                    in_flight -= 1;
                }
            }
        }
        seen.micros.sort_unstable();
        Ok(seen)
    }
}

impl Connection {
    fn send(&mut self, requests: &[Vec<u8>], now: Instant) -> Result<()> {
        self.sent_at = now;
        self.left.clear();
        let request = &requests[self.next % requests.len()];
        match self.stream.write(request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Ok(self.left.extend_from_slice(&request[count..])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(self.left.extend_from_slice(request)),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        while !self.left.is_empty() {
            match self.stream.write(&self.left) {
                Ok(count) => drop(self.left.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However an answer is cut, its end is found once.
    #[test]
    fn answers_end_where_they_end() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 204 No Content\r\nx: y\r\n\r\n\
            HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n\
            HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        for size in 1..wire.len() {
            let (mut answers, mut found) = (Answers::default(), Vec::new());
            for piece in wire.chunks(size) {
                answers.take(piece, |status| found.push(status)).unwrap();
            }
            assert_eq!(found, [200, 204, 200, 404], "in pieces of {size}");
        }
    }
}
