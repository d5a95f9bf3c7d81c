//! The two kinds of sockets the proxy joins, and the two ways it ends them.

use std::io::{self, Read};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::{Ending, Upstream};

/// Unread bytes thrown away before a close; the largest default receive buffer of Linux.
const DRAIN_BYTES_MAX: u64 = 6 * 1024 * 1024;

pub(super) type Source<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;
pub(super) type Sink<'a> = Box<dyn AsyncWrite + Send + Unpin + 'a>;

/// A connection to either side.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) async fn connect(upstream: &Upstream) -> io::Result<Self> {
        Ok(match upstream {
            Upstream::Tcp(addr) => Self::Tcp(TcpStream::connect(addr).await?),
            Upstream::Unix(path) => Self::Unix(UnixStream::connect(path).await?),
        })
    }

    pub(super) fn split(&mut self) -> (Source<'_>, Sink<'_>) {
        match self {
            Self::Tcp(stream) => {
                // Without this a piece could wait in the kernel for the next one.
                let _ = stream.set_nodelay(true);
                let (from, to) = stream.split();
                (Box::new(from), Box::new(to))
            }
            Self::Unix(stream) => {
                let (from, to) = stream.split();
                (Box::new(from), Box::new(to))
            }
        }
    }

    /// Errors are ignored: the peer may have closed first, and then there is nothing left to do.
    ///
    /// An orderly close first shuts the connection down, then empties the receive buffer, because Linux sends a reset
    /// when a socket with unread bytes is closed.
    pub(super) async fn close(self, ending: Ending) {
        match (self, ending) {
            (Self::Tcp(stream), Ending::Reset) => drop(stream.set_zero_linger()),
            (Self::Tcp(mut stream), Ending::Cut) => {
                let _ = stream.shutdown().await;
                let _ = stream.into_std().and_then(drain);
            }
            (Self::Unix(mut stream), _) => {
                let _ = stream.shutdown().await;
                let _ = stream.into_std().and_then(drain);
            }
        }
    }
}

/// Reads what has arrived, without waiting for more.
fn drain(stream: impl Read) -> io::Result<u64> {
    io::copy(&mut stream.take(DRAIN_BYTES_MAX), &mut io::sink())
}
