//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Events numbered in one pass: about a tenth of a second of work, so that whoever waits for
/// the sequencer's lock does not wait long.
pub(crate) const SEQUENCE_MAX: i32 = 10_000;
/// Between two looks for events that have no position, while there are some. A look that
/// finds nothing costs the database a tenth of a millisecond.
pub(crate) const POLL_DEFAULT: Duration = Duration::from_millis(10);
/// An idle sequencer looks half as often: no event waits longer than this for its position.
pub(crate) const POLL_IDLE: u32 = 2;
/// After so many looks that found nothing, a sequencer counts as idle.
pub(crate) const IDLE_LOOKS: u32 = 100;
/// Events decided in one pass. Past it a pass does not get cheaper per event, and all of it is
/// done again when the process is killed.
pub(crate) const BATCH: i32 = 500;
/// Route workers of one process unless told otherwise; two saturate two cores of a database.
pub(crate) const PASSES_DEFAULT: usize = 2;
/// A look for events when nothing was heard: notifications may be missed or switched off.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Another worker holds the cursor: it is free again after a pass, or when its holder died.
pub(crate) const BUSY_WAIT: Duration = Duration::from_millis(20);
/// How long a list of the registered workers is believed.
pub(crate) const WORKERS_EVERY: Duration = Duration::from_secs(5);
/// Webhooks in flight at once by default. They mostly wait for the receiver.
pub(crate) const DELIVERIES_DEFAULT: usize = 64;
/// The most claimed in one call: bodies are up to 64 KiB each.
pub(crate) const CLAIM_MAX: usize = 100;
/// Streams appended to in parallel.
pub(crate) const STREAMS: i32 = 16;
/// The lease of a stream. A batch of appends takes a fraction of it; it is not renewed.
pub(crate) const STREAM_LEASE: Duration = Duration::from_secs(30);
/// A batch that takes longer is ended where it is, well before the lease runs out.
pub(crate) const STREAM_BATCH_MAX: Duration = Duration::from_secs(10);
/// The lease of a delivery is renewed when a third of it has passed: two renewals may fail in a row.
pub(crate) const LEASE_RENEWALS: u32 = 3;
/// The longest sleep of an idle sender: leases of dead senders are found by looking.
pub(crate) const DELIVERY_POLL_MAX: Duration = Duration::from_secs(1);
/// And the shortest, when something is due that this look did not get.
pub(crate) const DELIVERY_POLL_MIN: Duration = Duration::from_millis(20);
/// Deliveries under way get this long after a stop; then their leases run out.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// After a stop, how long a pass under way may still take to answer.
pub(crate) const LAST_PASS_WAIT_MAX: Duration = Duration::from_secs(5);
/// Before another connection is opened to listen on.
pub(crate) const LISTEN_REST: Duration = Duration::from_secs(1);
/// A receiver that does not take a connection in this time is not there.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Answers are read this far, and no further: only their beginning is kept.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// What is kept of an answer, in characters, as the database keeps it.
pub(crate) const ANSWER_CHARS_MAX: usize = 2_000;
/// The longest pause a receiver can ask for; the database cuts it to a day.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
