//! What a stream may do next: the decisions a store takes inside one commit.
//!
//! A store gathers the facts, asks here, and writes what was decided in the same commit, so
//! that two writers can never both be right. Nothing here reads a clock or a disk.
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

/// What is remembered of a producer: the newest request that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The life it belonged to.
    pub epoch: u64,
    /// Its number in that life.
    pub seq: u64,
}

/// What a producer's claim amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The next request of this life, or the first of a new one.
    Next,
    /// Seen before; nothing is written again.
    Duplicate(Accepted),
    /// A later life has begun.
    Stale {
        /// The life that counts.
        current_epoch: u64,
    },
    /// A new life must begin with request 0.
    NotFromZero,
    /// Requests are missing in between.
    Gap {
        /// The number that would be accepted.
        expected: u64,
        /// The number that came.
        received: u64,
    },
}

/// Judges a producer's claim against what is remembered of it.
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

/// What counts of a stream when somebody wants to append.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Its type.
    pub content_type: &'a ContentType,
    /// Where the next byte goes.
    pub tail: Offset,
    /// Nothing may follow.
    pub closed: bool,
    /// The producer request that closed it, if one did.
    pub closed_by: Option<&'a Producer>,
    /// The largest `Stream-Seq` so far.
    pub stream_seq: Option<&'a str>,
    /// What is remembered of the producer that asks, if one does.
    pub producer: Option<Accepted>,
}

/// What somebody wants to append.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The type of the body; `None` when there is no body.
    pub content_type: Option<&'a ContentType>,
    /// Whether there is anything to write, apart from the end.
    pub has_data: bool,
    /// Close the stream with it.
    pub close: bool,
    /// Who asks, if it wants retries to be harmless.
    pub producer: Option<&'a Producer>,
    /// `Stream-Seq`: must be larger, byte by byte, than any before.
    pub stream_seq: Option<&'a str>,
    /// `If-Match`: the tail must be exactly here.
    pub expected_tail: Option<Offset>,
}

/// What becomes of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Write,
    /// It was written before; say so.
    Duplicate(Accepted),
    /// It wanted nothing but the end, and the stream has ended.
    AlreadyClosed,
    /// No.
    Refuse(Refusal),
}

/// Why an append was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The stream has ended.
    Closed,
    /// The body is of another type than the stream.
    ContentType,
    /// A later life of the producer has begun.
    StaleEpoch {
        /// The life that counts.
        current_epoch: u64,
    },
    /// A new life of a producer must begin with request 0.
    EpochNotFromZero,
    /// Requests of the producer are missing in between.
    ProducerGap {
        /// The number that would be accepted.
        expected: u64,
        /// The number that came.
        received: u64,
    },
    /// `Stream-Seq` did not grow.
    StreamSeq,
    /// The tail is not where `If-Match` wants it.
    TailMoved,
}

/// Decides an append.
///
/// The order is the protocol's: the end comes before the type, the type before producers,
/// producers before `Stream-Seq`. A fenced producer hears so even of a stream that has
/// ended, and the retry of the request that ended it is a duplicate.
pub fn append(standing: Standing<'_>, wish: Wish<'_>) -> Verdict {
    let claimed = wish.producer.map(|producer| claim(standing.producer, producer.epoch, producer.seq));
    if standing.closed {
        return after_the_end(standing, wish, claimed);
    }
    if wish.has_data && wish.content_type.is_some_and(|content_type| content_type != standing.content_type) {
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
    if wish.stream_seq.is_some() && wish.stream_seq <= standing.stream_seq {
        return Verdict::Refuse(Refusal::StreamSeq);
    }
    if wish.expected_tail.is_some_and(|expected| expected != standing.tail) {
        return Verdict::Refuse(Refusal::TailMoved);
    }
    Verdict::Write
}

fn after_the_end(standing: Standing<'_>, wish: Wish<'_>, claimed: Option<Claim>) -> Verdict {
    match (wish.producer, claimed) {
        (Some(_), Some(Claim::Stale { current_epoch })) => {
            Verdict::Refuse(Refusal::StaleEpoch { current_epoch })
        }
        (Some(producer), _) if standing.closed_by == Some(producer) => {
            Verdict::Duplicate(Accepted { epoch: producer.epoch, seq: producer.seq })
        }
        (None, _) if wish.close && !wish.has_data => Verdict::AlreadyClosed,
        _ => Verdict::Refuse(Refusal::Closed),
    }
}

/// Where a fork leaves its source, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The stream that is continued.
    pub source: StreamName,
    /// The place asked for; `None` is the source's tail at that time.
    pub offset: Option<Offset>,
    /// How far behind that place: bytes, or messages of a JSON stream.
    pub sub_offset: u64,
}

/// A stream as it was asked for: what makes two creations the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its type; a fork may leave it to its source.
    pub content_type: Option<ContentType>,
    /// Its life; `None` is for ever, and for a fork as its source.
    pub expiry: Option<Expiry>,
    /// Whether it has ended.
    pub closed: bool,
    /// The stream it continues.
    pub fork: Option<ForkPoint>,
}

/// Whether creating `asked` over an existing stream `there` is the same creation again.
///
/// What a fork did not name it took from its source, so leaving it out again is the same
/// wish. An offset that was left out was resolved at the time and is not compared.
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
            there.source == asked.source
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
