//! Every limit of this crate, each with its reason.

use std::time::Duration;

/// Connections to the listener that serves only metrics: a few collectors and a browser.
pub(crate) const METRICS_CONNECTIONS_MAX: usize = 64;
/// How often the survey of the database runs; collectors scrape every 10 to 60 seconds.
pub(crate) const SURVEY_EVERY: Duration = Duration::from_secs(5);
/// The survey pauses at least this many times as long as it took.
pub(crate) const SURVEY_SHARE: u32 = 30;
/// The longest pause of the survey, so that charts still move.
pub(crate) const SURVEY_REST_MAX: Duration = Duration::from_secs(60);
/// The time limit of one survey; the database cancels its query after five seconds.
pub(crate) const SURVEY_WAIT_MAX: Duration = Duration::from_secs(6);
/// The survey stops when metrics were not read for this long.
pub(crate) const SURVEY_UNASKED_MAX: Duration = Duration::from_secs(180);
/// Open connections. Each takes about 11 kB of memory.
pub(crate) const CONNECTIONS_MAX: usize = 20_000;
/// Connections from one remote address. A proxy or an office behind one address has hundreds.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 2_000;
/// File descriptors reserved for everything but connections: the stream store opens up to 256 files, the database
/// pool and the worker a few dozen connections, and webhooks as many again.
pub(crate) const FILES_KEPT: usize = 512;
/// Connections above the limit that may still ask for `/health`: a few probes at a time.
pub(crate) const HEALTH_CONNECTIONS: usize = 16;
/// The time limit of such a connection, and of its first byte.
pub(crate) const HEALTH_WAIT_MAX: Duration = Duration::from_secs(2);
pub(crate) const HEALTH_ASK_MAX: Duration = Duration::from_millis(100);
/// A connection may be idle between requests for this long, and a request's head must arrive
/// within it. Load balancers keep connections for 60 seconds; closing before them would race
/// with the next request.
pub(crate) const IDLE_WAIT_MAX: Duration = Duration::from_secs(75);
/// A TLS handshake is a few packets each way.
pub(crate) const TLS_WAIT_MAX: Duration = Duration::from_secs(10);
/// A request's head, which is read into memory before it is authenticated.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A request's head in our own HTTP/1.1 loop; a larger one goes to hyper. Browsers send one
/// or two kilobytes.
pub(crate) const OWN_HEAD_BYTES_MAX: usize = 8 * 1024;
/// A request's body there; a larger one goes to hyper, which does not copy it.
pub(crate) const OWN_BODY_BYTES_MAX: usize = 256 * 1024;
/// The size of a read there: a head and a small body.
pub(crate) const READ_BYTES: usize = 2 * 1024;
/// What a client may pipeline before it gets an answer.
pub(crate) const AHEAD_BYTES_MAX: usize = 16 * 1024;
/// The output buffer a connection keeps between answers.
pub(crate) const OUTPUT_BYTES_KEPT: usize = 2 * 1024;
/// Memory for the unsent answers of all readers of streams. It fits on a machine with half a gigabyte.
pub(crate) const READER_BYTES_MAX: usize = 128 << 20;
/// The part of it that one project may use, so that it does not slow down the others.
pub(crate) const READER_PROJECT_BYTES_MAX: usize = 64 << 20;
/// The part of it that one connection may use: a page, and two pieces of each of its HTTP/2 streams.
pub(crate) const READER_CONNECTION_BYTES_MAX: usize = 8 << 20;
/// The same for pages of the dashboard and answers of the API, together.
pub(crate) const OTHER_ANSWERS_BYTES_MAX: usize = 32 << 20;
/// Projects with a pool, before the pools of projects without readers are dropped.
pub(crate) const READER_PROJECTS_KEPT: usize = 1_024;
/// Answers up to this length are not counted: they are part of the cost of a connection.
pub(crate) const SMALL_ANSWER_BYTES: usize = 4 << 10;
/// A slow reader gets its page in pieces of this length. Two thousand of them use all the memory of readers.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// hyper gets an answer in pieces of this length, two at a time, while memory is not tight. Smaller ones cost HTTP/2
/// half of its throughput.
pub(crate) const LARGE_PIECE_BYTES: usize = 256 << 10;
/// A read waits this long for memory, then it is answered 503.
pub(crate) const READER_WAIT_MAX: Duration = Duration::from_secs(10);
/// A reader that takes no byte for this long gives up its page or its event as soon as other readers need the
/// memory. A reader that keeps up takes bytes again within a few round trips.
pub(crate) const READER_PAUSE_MAX: Duration = Duration::from_millis(25);
/// The client must take a piece that hyper sends within this time, plus the time it takes at the lowest rate.
pub(crate) const READER_CHUNK_WAIT_MAX: Duration = Duration::from_secs(60);
/// The same while other readers wait for memory: hyper does not give a piece back.
pub(crate) const READER_CHUNK_WAIT_MIN: Duration = Duration::from_secs(2);
pub(crate) const READER_BYTES_PER_SECOND_MIN: usize = 16 << 10;
/// How often a connection checks these deadlines.
pub(crate) const READER_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Unsent bytes in the kernel's send buffer of a connection. Without a limit the kernel keeps up to 4 MiB for a reader
/// that does not read, and slows down all connections when it runs out of memory for them.
pub(crate) const SEND_BUFFER_UNSENT_BYTES_MAX: u32 = 128 << 10;
/// A peer that takes no byte for this long is disconnected: it holds memory.
pub(crate) const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// A request's body must arrive within this time; it is held in memory until then.
pub(crate) const BODY_WAIT_MAX: Duration = Duration::from_secs(60);
/// How much is read and discarded of a body that is too large, so that its sender gets the answer.
pub(crate) const DISCARD_BYTES_MAX: usize = 64 << 20;
pub(crate) const DISCARD_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often an idle HTTP/2 peer is pinged, and how long it may take to answer.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(20);
pub(crate) const PING_WAIT_MAX: Duration = Duration::from_secs(20);
/// Concurrent requests on one HTTP/2 connection; browsers use about a hundred.
pub(crate) const HTTP2_STREAMS_MAX: u32 = 250;
/// HTTP/2 streams that the client reset before they were accepted, or that we reset, before the connection is closed.
pub(crate) const HTTP2_RESETS_MAX: usize = 100;
/// Frames that carry no request (PING, SETTINGS, RST_STREAM, …) in one window. Clients that measure latency send a few
/// pings a second; a proxy that cancels requests sends tens of resets.
pub(crate) const HTTP2_CONTROL_FRAMES_MAX: u32 = 2_000;
pub(crate) const HTTP2_CONTROL_WINDOW: Duration = Duration::from_secs(10);
/// Requests in flight may take this long after a stop; a second signal ends them at once.
pub(crate) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the accept loop pauses when the process has no file descriptors left.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(50);
/// `/ready` answers in this time even when the database does not.
pub(crate) const READY_WAIT_MAX: Duration = Duration::from_secs(3);
/// How often an idle live reader gets an event; proxies close idle connections after 30 to 60 seconds.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Verified tokens that a project remembers: about a kilobyte each.
pub(crate) const VERIFIED_TOKENS_MAX: usize = 1_024;
/// The length of a `Stream-Seq`; every stream keeps its last one in memory.
pub(crate) const SEQ_BYTES_MAX: usize = 256;
/// Streams in one page of a list.
pub(crate) const LIST_MAX: usize = 1_000;
/// Appends in one batch.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Concurrent webhooks of subscriptions.
pub(crate) const WEBHOOKS_MAX: usize = 64;
/// How often leases and pauses of subscriptions are checked; leases last a second or more.
pub(crate) const SUBSCRIPTION_TICK: Duration = Duration::from_millis(200);
/// Stored payloads that are read or written at the same time: each is in memory a few times over, up to 16 MiB.
pub(crate) const PAYLOADS_AT_ONCE_MAX: usize = 8;
/// One job with the largest payload the database takes (64 KiB), escaped, and its fields.
pub(crate) const JOB_BODY_BYTES_MAX: usize = 256 << 10;
/// A batch of jobs: a thousand payloads of 4 KiB, or a large result.
pub(crate) const JOBS_BODY_BYTES_MAX: usize = 4 << 20;
/// How often a server looks whether the key for tokens of jobs was replaced: one small query.
pub(crate) const JOB_TOKEN_KEY_EVERY: Duration = Duration::from_secs(5);
/// Nesting of a JSON body. The database parses JSON recursively; payloads nest a few levels.
pub(crate) const JSON_DEPTH_MAX: usize = 64;
/// Jobs in one batch call; the database's own limit for HTTP.
pub(crate) const JOBS_PER_CALL_MAX: usize = 1_000;
/// Jobs in one claim; an executor that wants more claims again.
pub(crate) const CLAIM_JOBS_MAX: i32 = 100;
/// A claim waits at most this long; proxies close idle connections after a minute.
pub(crate) const CLAIM_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a waiting claim polls, because notifications may be missed or disabled.
pub(crate) const CLAIM_POLL: Duration = Duration::from_secs(1);
/// A producer that read the waiting flag before it was set and commits after it does not notify:
/// one more poll this much later finds its job.
pub(crate) const CLAIM_SECOND_LOOK: Duration = Duration::from_millis(10);
/// Concurrent waiting claims. Each polls once a second: together a fraction of a PostgreSQL core.
pub(crate) const CLAIMS_WAITING_MAX: usize = 256;
/// The same for one token, so that one faulty executor does not block the others.
pub(crate) const CLAIMS_WAITING_PER_TOKEN_MAX: usize = 32;
/// A request for the end of a job waits at most this long; proxies close idle connections after a minute.
pub(crate) const JOB_WAIT_MAX: Duration = Duration::from_secs(60);
/// The stream of a job expires this long after it was last written or read: a day.
pub(crate) const JOB_STREAM_SECONDS: u64 = 86_400;
/// The lifetime of a token for one job: by default an hour, at most a week.
pub(crate) const JOB_TOKEN_SECONDS: u64 = 3_600;
pub(crate) const JOB_TOKEN_SECONDS_MAX: u64 = 7 * 86_400;
/// The longest delay of a retry, a year; the database's own limit.
pub(crate) const RETRY_DELAY_MAX: Duration = Duration::from_secs(31_536_000);
/// The length of a reason; the database's own limit.
pub(crate) const REASON_CHARS_MAX: usize = 8_000;
/// How soon and how seldom the server asks whether a job that is waited for has ended.
pub(crate) const JOB_LOOK_MIN: Duration = Duration::from_millis(25);
pub(crate) const JOB_LOOK_MAX: Duration = Duration::from_secs(1);
/// Concurrent requests for the end of a job, of all tokens and of one. One query looks at all of their jobs.
pub(crate) const JOBS_WAITED_FOR_MAX: usize = 512;
pub(crate) const JOBS_WAITED_FOR_PER_TOKEN_MAX: usize = 128;
/// Events in one call; the database's own limit for HTTP.
pub(crate) const EVENTS_PER_CALL_MAX: usize = 1_000;
/// Events in one page; the database's own limit.
pub(crate) const EVENTS_PER_PAGE_MAX: i32 = 1_000;
/// A read of events waits at most this long; proxies close idle connections after a minute.
pub(crate) const EVENTS_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a waiting read polls, because notifications may be missed or disabled.
pub(crate) const EVENTS_POLL: Duration = Duration::from_secs(1);
/// A waiting read polls at most this often: a sequencer under load wakes all readers a hundred times a
/// second, mostly for events of other consumers.
pub(crate) const EVENTS_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Concurrent waiting reads, of all tokens and of one.
pub(crate) const EVENTS_WAITING_MAX: usize = 256;
pub(crate) const EVENTS_WAITING_PER_TOKEN_MAX: usize = 32;
/// How long to wait before a broken LISTEN connection is opened again.
pub(crate) const LISTEN_REST: Duration = Duration::from_secs(1);
/// Sources in one pass of the fan-out worker; the next pass takes the rest.
pub(crate) const LAGGING_MAX: usize = 10_000;
/// How often the fan-out worker polls; publishes wake it.
pub(crate) const FANOUT_POLL: Duration = Duration::from_secs(1);
/// The shortest pause between two passes while an open circuit is about to be probed.
pub(crate) const FANOUT_REST_MIN: Duration = Duration::from_millis(10);
/// Sources that are drained concurrently.
pub(crate) const DRAINS_MAX: usize = 16;
/// The page size for reading a source on behalf of sessions on another server.
pub(crate) const FANOUT_PAGE_BYTES: usize = 256 << 10;
/// Locks of sources in memory, before unused ones are dropped.
pub(crate) const TURNS_MAX: usize = 10_000;
/// How often sessions that were set aside are retried, and their longest backoff.
pub(crate) const FOLLOW_UP_EVERY: Duration = Duration::from_millis(500);
pub(crate) const FOLLOW_UP_REST_MAX: Duration = Duration::from_secs(60);
/// The body of a request about sessions: two ids.
pub(crate) const SESSION_BODY_BYTES_MAX: usize = 4 << 10;

/// A claimed attempt whose gate is closed is put off for this long.
pub(crate) const PROCESS_GATE_WAIT: Duration = Duration::from_secs(10);
/// The lease of the job of an attempt that is extended; workers extend it in good time.
pub(crate) const PROCESS_LEASE: Duration = Duration::from_secs(60);
