//! The decisions that a store makes inside a commit.
//!
//! A store passes the facts in and writes what was decided in the same commit, so two writers
//! can never both succeed. Nothing here reads a clock or a disk.
//!
//! ```text
//!            create                  close                     delete, expiry
//! (nothing) ───────▶ open ─────────────────────▶ closed ──────────────────────▶ (nothing)
//!                     │ append, duplicate          │ duplicate of the close      ▲
//!                     └────────────────────────────┴──▶ deleted, while forks ────┘
//!                                                       read through it
//! ```

use super::content_type::ContentType;
use super::expiry::Expiry;
use super::name::StreamName;
use super::offset::Offset;
use super::producer::Producer;

/// The newest request of a producer that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its epoch.
    pub epoch: u64,
    /// Its number in that epoch.
    pub seq: u64,
}

/// How a request of a producer relates to the accepted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The next request of this epoch, or the first of a new one.
    Next,
    /// Accepted before; nothing is written again.
    Duplicate(Accepted),
    /// A later epoch has begun.
    Stale {
        /// The newest epoch.
        current_epoch: u64,
    },
    /// A new epoch must begin with request 0.
    NotFromZero,
    /// Requests are missing in between.
    Gap {
        /// The number that would be accepted.
        expected: u64,
        /// The number that was sent.
        received: u64,
    },
}

/// Compares a request of a producer with its newest accepted one.
pub fn claim(known: Option<Accepted>, epoch: u64, seq: u64) -> Claim {
    match known {
        None if seq == 0 => Claim::Next,
        None => Claim::Gap { expected: 0, received: seq },
        Some(known) if epoch < known.epoch => Claim::Stale { current_epoch: known.epoch },
        Some(known) if epoch > known.epoch => match seq {
            0 => Claim::Next,
            _ => Claim::NotFromZero,
        },
        Some(known) if seq <= known.seq => Claim::Duplicate(known),
        Some(known) if seq == known.seq + 1 => Claim::Next,
        Some(known) => Claim::Gap { expected: known.seq + 1, received: seq },
    }
}

/// The facts of a stream that decide an append.
#[derive(Debug, Clone, Copy)]
pub struct StreamFacts<'a> {
    /// Its type.
    pub content_type: &'a ContentType,
    /// Where the next byte goes.
    pub tail: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// The producer request that closed it, if one did.
    pub closed_by: Option<&'a Producer>,
    /// The largest `Stream-Seq` so far.
    pub stream_seq: Option<&'a str>,
    /// The newest accepted request of the append's producer, if it has one.
    pub producer: Option<Accepted>,
}

/// The facts of an append.
#[derive(Debug, Clone, Copy)]
pub struct AppendFacts<'a> {
    /// The type of the body; `None` when there is no body.
    pub content_type: Option<&'a ContentType>,
    /// Whether it has data.
    pub has_data: bool,
    /// Close the stream after it.
    pub close: bool,
    /// The producer, which makes a retry harmless.
    pub producer: Option<&'a Producer>,
    /// `Stream-Seq`: must be larger, byte by byte, than any before.
    pub stream_seq: Option<&'a str>,
    /// `If-Match`: the tail must be exactly here.
    pub expected_tail: Option<Offset>,
}

/// The decision on an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Write,
    /// It was written before: answer that.
    Duplicate(Accepted),
    /// It only closes the stream, which is closed already.
    AlreadyClosed,
    /// Refuse it.
    Refuse(Refusal),
}

/// Why an append was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The stream is closed.
    Closed,
    /// The content type differs from the stream's.
    ContentType,
    /// A later epoch of the producer has begun.
    StaleEpoch {
        /// The newest epoch.
        current_epoch: u64,
    },
    /// A new epoch of a producer must begin with request 0.
    EpochNotFromZero,
    /// Requests of the producer are missing in between.
    ProducerGap {
        /// The number that would be accepted.
        expected: u64,
        /// The number that was sent.
        received: u64,
    },
    /// `Stream-Seq` did not grow.
    StreamSeq,
    /// The tail is not the one in `If-Match`.
    TailMoved,
}

/// Decides an append.
///
/// The protocol sets the order: closed, then content type, then producer, then `Stream-Seq`. A
/// fenced producer is told so even if the stream is closed, and a retry of the request that
/// closed it is a duplicate.
pub fn append(stream: StreamFacts<'_>, append: AppendFacts<'_>) -> Verdict {
    let claimed = append.producer.map(|producer| claim(stream.producer, producer.epoch, producer.seq));
    if stream.closed {
        return after_the_end(stream, append, claimed);
    }
    if append.has_data && append.content_type.is_some_and(|content_type| content_type != stream.content_type)
    {
        return Verdict::Refuse(Refusal::ContentType);
    }
    match claimed {
        None | Some(Claim::Next) => {}
        Some(Claim::Duplicate(accepted)) => return Verdict::Duplicate(accepted),
        Some(Claim::Stale { current_epoch }) => {
            return Verdict::Refuse(Refusal::StaleEpoch { current_epoch });
        }
        Some(Claim::NotFromZero) => return Verdict::Refuse(Refusal::EpochNotFromZero),
        Some(Claim::Gap { expected, received }) => {
            return Verdict::Refuse(Refusal::ProducerGap { expected, received });
        }
    }
    // `None` sorts before every text, so the first one always grows.
    if append.stream_seq.is_some() && append.stream_seq <= stream.stream_seq {
        return Verdict::Refuse(Refusal::StreamSeq);
    }
    if append.expected_tail.is_some_and(|expected| expected != stream.tail) {
        return Verdict::Refuse(Refusal::TailMoved);
    }
    Verdict::Write
}

fn after_the_end(stream: StreamFacts<'_>, append: AppendFacts<'_>, claimed: Option<Claim>) -> Verdict {
    match (append.producer, claimed) {
        (Some(_), Some(Claim::Stale { current_epoch })) => {
            Verdict::Refuse(Refusal::StaleEpoch { current_epoch })
        }
        (Some(producer), _) if stream.closed_by == Some(producer) => {
            Verdict::Duplicate(Accepted { epoch: producer.epoch, seq: producer.seq })
        }
        (None, _) if append.close && !append.has_data => Verdict::AlreadyClosed,
        _ => Verdict::Refuse(Refusal::Closed),
    }
}

/// Where a fork leaves its origin, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The stream that is forked.
    pub origin: StreamName,
    /// The offset; `None` is the origin's tail at that time.
    pub offset: Option<Offset>,
    /// How far after that offset: bytes, or messages of a JSON stream.
    pub sub_offset: u64,
}

/// A stream as it was asked for. Two creations with one shape are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its type; a fork may take its origin's.
    pub content_type: Option<ContentType>,
    /// Its life; `None` is forever, or for a fork its origin's.
    pub expiry: Option<Expiry>,
    /// Whether it is closed.
    pub closed: bool,
    /// The stream it forks.
    pub fork: Option<ForkPoint>,
}

/// Whether creating `asked` over an existing stream `there` is the same creation again.
///
/// A fork takes from its origin what it does not name, so leaving it out again is the same
/// creation. An offset that was left out was resolved at the time and is not compared.
pub fn same_creation(there: &Shape, asked: &Shape) -> bool {
    let is_fork = asked.fork.is_some();
    let content_type = match (&there.content_type, &asked.content_type) {
        (Some(there), Some(asked)) => there == asked,
        (Some(there), None) => is_fork || *there == ContentType::default(),
        (None, asked) => asked.is_none(),
    };
    let expiry = match (there.expiry, asked.expiry) {
        (_, None) if is_fork => true,
        (there, asked) => there.unwrap_or(Expiry::Never) == asked.unwrap_or(Expiry::Never),
    };
    let fork = match (&there.fork, &asked.fork) {
        (Some(there), Some(asked)) => {
            there.origin == asked.origin
                && there.sub_offset == asked.sub_offset
                && (asked.offset.is_none() || there.offset == asked.offset)
        }
        (there, asked) => there.is_none() && asked.is_none(),
    };
    content_type && expiry && fork && there.closed == asked.closed
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
