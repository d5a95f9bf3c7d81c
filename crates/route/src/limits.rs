//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Events sequenced in one pass: about 100 ms of work, so that the sequencer's lock is held briefly.
pub(crate) const SEQUENCE_MAX: i32 = 10_000;
/// Poll interval of a busy sequencer. A poll without a result costs the database 0.1 ms.
pub(crate) const POLL_DEFAULT: Duration = Duration::from_millis(10);
/// An idle sequencer looks half as often: no event waits longer than this for its position.
pub(crate) const POLL_IDLE: u32 = 2;
/// After this many polls without a result a sequencer is idle.
pub(crate) const IDLE_LOOKS: u32 = 100;
/// Events routed in one pass. A larger pass is not cheaper per event, and all of it is repeated if the process is
/// killed.
pub(crate) const BATCH: i32 = 500;
/// Default concurrent routing passes; two saturate two cores of a database.
pub(crate) const PASSES_DEFAULT: usize = 2;
/// Poll interval for events without a notification: notifications may be missed or disabled.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Another worker holds the cursor: it is free again after a pass, or when its holder died.
pub(crate) const BUSY_WAIT: Duration = Duration::from_millis(20);
/// How long a list of the registered workers is cached.
pub(crate) const WORKERS_EVERY: Duration = Duration::from_secs(5);
/// Webhooks in flight at once by default. They mostly wait for the receiver.
pub(crate) const DELIVERIES_DEFAULT: usize = 64;
/// Maximum claimed in one call: bodies have up to 64 KiB each.
pub(crate) const CLAIM_MAX: usize = 100;
/// Streams appended to in parallel.
pub(crate) const STREAMS: i32 = 16;
/// The lease of a stream. A batch of appends takes a fraction of it; it is not renewed.
pub(crate) const STREAM_LEASE: Duration = Duration::from_secs(30);
/// A batch that takes longer is stopped, well before the lease expires.
pub(crate) const STREAM_BATCH_MAX: Duration = Duration::from_secs(10);
/// The lease of a delivery is renewed after a third of it: two consecutive renewals may fail.
pub(crate) const LEASE_RENEWALS: u32 = 3;
/// The longest sleep of an idle sender: expired leases of dead senders are found by polling.
pub(crate) const DELIVERY_POLL_MAX: Duration = Duration::from_secs(1);
/// And the shortest, if something is due that this claim did not get.
pub(crate) const DELIVERY_POLL_MIN: Duration = Duration::from_millis(20);
/// How long deliveries in flight may take after a stop; then their leases expire.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// How long a running pass may take after a stop.
pub(crate) const LAST_PASS_WAIT_MAX: Duration = Duration::from_secs(5);
/// Delay before reopening the listening connection.
pub(crate) const LISTEN_REST: Duration = Duration::from_secs(1);
/// Connect timeout of a receiver.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum bytes read of a response: only its start is kept.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Characters kept of a response, as in the database.
pub(crate) const ANSWER_CHARS_MAX: usize = 2_000;
/// The longest delay a receiver can request; the database limits it to a day.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
