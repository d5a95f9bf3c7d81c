//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Connections to the metrics alone: a few collectors, and people who look.
pub(crate) const METRICS_CONNECTIONS_MAX: usize = 64;
/// How often the database's numbers are looked at; collectors come every 10 to 60 seconds.
pub(crate) const SURVEY_EVERY: Duration = Duration::from_secs(5);
/// A look rests at least this many times as long as it took.
pub(crate) const SURVEY_SHARE: u32 = 30;
/// But not longer than this: who looks at a board wants to see it move.
pub(crate) const SURVEY_REST_MAX: Duration = Duration::from_secs(60);
/// A look that takes longer is given up; the database ends it itself after five seconds.
pub(crate) const SURVEY_WAIT_MAX: Duration = Duration::from_secs(6);
/// Nobody has asked for this long: no need to look.
pub(crate) const SURVEY_UNASKED_MAX: Duration = Duration::from_secs(180);
/// Open connections. Each costs about 11 kB; this many fit beside everything else.
pub(crate) const CONNECTIONS_MAX: usize = 20_000;
/// Connections from one address that is not this machine. A proxy or an office behind one address has hundreds.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 2_000;
/// File descriptors that connections leave alone: the stream store opens up to 256 files, the database and the
/// worker a few dozen connections, and webhooks as many again.
pub(crate) const FILES_KEPT: usize = 512;
/// Connections beyond the bound that may still ask for `/health`: a few probes at a time.
pub(crate) const HEALTH_CONNECTIONS: usize = 16;
/// Such a connection asks at once, and gets its answer in this time.
pub(crate) const HEALTH_WAIT_MAX: Duration = Duration::from_secs(2);
pub(crate) const HEALTH_ASK_MAX: Duration = Duration::from_millis(100);
/// A connection may rest between requests for this long, and a request's head must arrive
/// in it. Load balancers keep connections for 60 seconds; closing first would race with
/// the next request.
pub(crate) const IDLE_WAIT_MAX: Duration = Duration::from_secs(75);
/// A TLS handshake is a few packets each way.
pub(crate) const TLS_WAIT_MAX: Duration = Duration::from_secs(10);
/// A request's head, which is read into memory before anything is known about it.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A request's head in our own HTTP/1.1 loop; a larger one goes to hyper. Browsers send one
/// or two kilobytes.
pub(crate) const OWN_HEAD_BYTES_MAX: usize = 8 * 1024;
/// A request's body there; a larger one is better not copied, and goes to hyper.
pub(crate) const OWN_BODY_BYTES_MAX: usize = 256 * 1024;
/// What is read at once there: a head and a small body.
pub(crate) const READ_BYTES: usize = 2 * 1024;
/// What a client may send ahead of an answer it waits for.
pub(crate) const AHEAD_BYTES_MAX: usize = 16 * 1024;
/// What a connection keeps of the buffer for its answers.
pub(crate) const OUTPUT_BYTES_KEPT: usize = 2 * 1024;
/// What is held in memory for readers of streams, all of them: they fit beside everything else on a machine with
/// half a gigabyte.
pub(crate) const READER_BYTES_MAX: usize = 128 << 20;
/// Of that for the readers of one project, so that one does not slow down the others.
pub(crate) const READER_PROJECT_BYTES_MAX: usize = 64 << 20;
/// Of that on one connection: a page, and two pieces of every answer that HTTP/2 may carry there.
pub(crate) const READER_CONNECTION_BYTES_MAX: usize = 8 << 20;
/// The same for pages of the dashboard and answers of the API, all of them.
pub(crate) const OTHER_ANSWERS_BYTES_MAX: usize = 32 << 20;
/// Projects whose pool is remembered before those without readers are forgotten.
pub(crate) const READER_PROJECTS_KEPT: usize = 1_024;
/// An answer up to this length is part of what a connection costs, and not counted.
pub(crate) const SMALL_ANSWER_BYTES: usize = 4 << 10;
/// A page is read again in pieces of this length for a reader that is slow: two thousand of them are
/// what all readers may hold.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// A read waits this long for room, then its reader is told to come back.
pub(crate) const READER_WAIT_MAX: Duration = Duration::from_secs(10);
/// A reader that takes nothing for this long gives back its page or its event as soon as others need the room. A network
/// in trouble takes bytes again after a few round trips.
pub(crate) const READER_PAUSE_MAX: Duration = Duration::from_millis(25);
/// A piece that was handed to hyper must be taken in this time, and at least this fast.
pub(crate) const READER_CHUNK_WAIT_MAX: Duration = Duration::from_secs(60);
/// The same while others wait for room: hyper does not give a piece back.
pub(crate) const READER_CHUNK_WAIT_MIN: Duration = Duration::from_secs(2);
pub(crate) const READER_BYTES_PER_SECOND_MIN: usize = 16 << 10;
/// How often a connection looks whether its client takes what it was given.
pub(crate) const READER_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A peer that takes no byte for this long has gone, and holds memory.
pub(crate) const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// A request's body must arrive in this time, and it is held in memory until it has.
pub(crate) const BODY_WAIT_MAX: Duration = Duration::from_secs(60);
/// What is read and thrown away of a body that is too large, so that its sender hears why.
pub(crate) const DISCARD_BYTES_MAX: usize = 64 << 20;
pub(crate) const DISCARD_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a quiet HTTP/2 peer is asked whether it is there, and how long it may think.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(20);
pub(crate) const PING_WAIT_MAX: Duration = Duration::from_secs(20);
/// Requests under way on one HTTP/2 connection; browsers use about a hundred.
pub(crate) const HTTP2_STREAMS_MAX: u32 = 250;
/// Streams that a client reset before they were accepted, and that we reset: then the connection is cut.
pub(crate) const HTTP2_RESETS_MAX: usize = 100;
/// Frames that ask for nothing (PING, SETTINGS, RST_STREAM, …) in one window. Clients that measure the line send a few
/// pings a second; a proxy that cancels requests sends tens of resets.
pub(crate) const HTTP2_CONTROL_FRAMES_MAX: u32 = 2_000;
pub(crate) const HTTP2_CONTROL_WINDOW: Duration = Duration::from_secs(10);
/// Requests in flight get this long after a stop; the next signal ends them at once.
pub(crate) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long accepting rests when the process has no file descriptors left.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(50);
/// `/ready` answers in this time even when the database does not.
pub(crate) const READY_WAIT_MAX: Duration = Duration::from_secs(3);
/// How often a quiet live reader hears that its connection works; proxies cut at 30 to 60.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Verified tokens that a project remembers: about a kilobyte each.
pub(crate) const VERIFIED_TOKENS_MAX: usize = 1_024;
/// A `Stream-Seq`; every stream keeps its last one.
pub(crate) const SEQ_BYTES_MAX: usize = 256;
/// Streams in one page of a list.
pub(crate) const LIST_MAX: usize = 1_000;
/// Appends in one batch.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Webhooks of subscriptions under way at a time.
pub(crate) const WEBHOOKS_MAX: usize = 64;
/// How often leases and pauses of subscriptions are looked at; leases last a second or more.
pub(crate) const SUBSCRIPTION_TICK: Duration = Duration::from_millis(200);
/// Stored payloads that are read or written at the same moment: each is held whole, a few times over, up to 16 MiB.
pub(crate) const PAYLOADS_AT_ONCE_MAX: usize = 8;
/// One job with the largest payload the database takes (64 KiB), escaped, and its fields.
pub(crate) const JOB_BODY_BYTES_MAX: usize = 256 << 10;
/// A batch of jobs. Signals are small: this is a thousand of 4 KiB.
pub(crate) const JOBS_BODY_BYTES_MAX: usize = 4 << 20;
/// Nesting of a body. The database reads JSON recursively; people write a handful.
pub(crate) const JSON_DEPTH_MAX: usize = 64;
/// Jobs in one call about many; the database's own bound on a batch over HTTP.
pub(crate) const JOBS_PER_CALL_MAX: usize = 1_000;
/// Jobs in one claim: an executor that wants more asks again.
pub(crate) const CLAIM_JOBS_MAX: i32 = 100;
/// A claim waits at most this long; proxies cut silent connections after a minute.
pub(crate) const CLAIM_WAIT_MAX: Duration = Duration::from_secs(30);
/// A waiting claim looks by itself this often, because a wake-up may be missed or off.
pub(crate) const CLAIM_POLL: Duration = Duration::from_secs(1);
/// A producer that looked before a flag went up and commits after it does not notify:
/// one more look this much later finds its job.
pub(crate) const CLAIM_SECOND_LOOK: Duration = Duration::from_millis(10);
/// Claims that wait at once. Each looks once a second: a fraction of a core of PostgreSQL.
pub(crate) const CLAIMS_WAITING_MAX: usize = 256;
/// Of these by one token, so that one executor's mistake does not turn the others away.
pub(crate) const CLAIMS_WAITING_PER_TOKEN_MAX: usize = 32;
/// Events in one page; the database's own bound.
pub(crate) const EVENTS_PER_PAGE_MAX: i32 = 1_000;
/// A read of events waits at most this long; proxies cut silent connections after a minute.
pub(crate) const EVENTS_WAIT_MAX: Duration = Duration::from_secs(30);
/// A waiting read looks by itself this often, because a wake-up may be missed or off.
pub(crate) const EVENTS_POLL: Duration = Duration::from_secs(1);
/// A waiting read looks at most this often: a sequencer under load wakes everybody a hundred times a
/// second, mostly for events of others.
pub(crate) const EVENTS_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Reads that wait at once, of all tokens and of one.
pub(crate) const EVENTS_WAITING_MAX: usize = 256;
pub(crate) const EVENTS_WAITING_PER_TOKEN_MAX: usize = 32;
/// How long to wait before listening again when the connection broke.
pub(crate) const LISTEN_REST: Duration = Duration::from_secs(1);
/// Sources looked at in one pass of the fan-out worker; the next pass sees the rest.
pub(crate) const LAGGING_MAX: usize = 10_000;
/// How often the fan-out worker looks by itself; publishes wake it.
pub(crate) const FANOUT_POLL: Duration = Duration::from_secs(1);
/// It does not look more often than this when an open circuit is about to be probed.
pub(crate) const FANOUT_REST_MIN: Duration = Duration::from_millis(10);
/// Sources that are drained at once.
pub(crate) const DRAINS_MAX: usize = 16;
/// What is read of a source at a time for sessions on another server.
pub(crate) const FANOUT_PAGE_BYTES: usize = 256 << 10;
/// Locks of sources kept in memory before unused ones are thrown away.
pub(crate) const TURNS_MAX: usize = 10_000;
/// How often sessions that were put aside are looked at, and how long one rests at most.
pub(crate) const FOLLOW_UP_EVERY: Duration = Duration::from_millis(500);
pub(crate) const FOLLOW_UP_REST_MAX: Duration = Duration::from_secs(60);
/// The body of a request about sessions: two ids.
pub(crate) const SESSION_BODY_BYTES_MAX: usize = 4 << 10;
