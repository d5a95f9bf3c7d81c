//! The body of a request: there already, or still coming.

use bytes::Bytes;
use hyper::body::Incoming;

/// What a client sends.
#[derive(Debug)]
pub(crate) enum Upload {
    /// All of it.
    Here(Bytes),
    /// It comes piece by piece.
    Coming(Incoming),
}
