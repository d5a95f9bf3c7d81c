//! The memory budget of readers.
//!
//! The answer to a reader that does not read stays in our memory. It is counted in two pools: the server's and
//! the project's. A read that finds no room in them waits, and holds nothing meanwhile. Answers of a few kilobytes are
//! not counted: they are part of the cost of a connection.
//!
//! A connection with many concurrent requests has its own limit. Nothing waits for it, because answers that are not
//! read would block the one that is: half of it is for pages and larger pieces, as many as fit, and half for two
//! small pieces of every answer.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::limits;
use crate::metrics::ReaderNumbers;

/// The limits of the memory of readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderLimits {
    /// For all readers.
    pub server_bytes_max: usize,
    /// For the readers of one project.
    pub project_bytes_max: usize,
    /// For the readers on one connection.
    pub connection_bytes_max: usize,
}

impl Default for ReaderLimits {
    fn default() -> ReaderLimits {
        ReaderLimits {
            server_bytes_max: limits::READER_BYTES_MAX,
            project_bytes_max: limits::READER_PROJECT_BYTES_MAX,
            connection_bytes_max: limits::READER_CONNECTION_BYTES_MAX,
        }
    }
}

/// All pools. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    limits: ReaderLimits,
    server: Pool,
    /// For the dashboard and the API, which readers of streams must not block.
    others: Arc<Pool>,
    projects: Mutex<HashMap<Arc<str>, Weak<Pool>>>,
    numbers: ReaderNumbers,
}

/// Memory, counted in units of [`UNIT_BYTES`].
struct Pool {
    room: Arc<Semaphore>,
    units: u32,
    /// Wakes readers that have stopped when the pool becomes tight.
    tight: Notify,
    /// How many reads wait for room.
    waiting: AtomicUsize,
}

const UNIT_BYTES: usize = 1 << 10;

impl Pool {
    fn new(bytes: usize) -> Pool {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(units as usize));
        Pool { room, units, tight: Notify::new(), waiting: AtomicUsize::new(0) }
    }

    /// What is larger than the pool takes all of it.
    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units)
    }

    fn is_tight(&self) -> bool {
        self.room.available_permits() < self.units as usize / 2
    }

    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(&self.waiting);
        self.tight.notify_waiters();
        self.room.clone().acquire_many_owned(self.units_of(bytes)).await.ok()
    }

    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let taken = self.room.clone().try_acquire_many_owned(self.units_of(bytes)).ok();
        if self.is_tight() {
            self.tight.notify_waiters();
        }
        taken
    }
}

/// A read that waits for room, counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn new(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    pub(crate) fn new(limits: ReaderLimits, numbers: ReaderNumbers) -> Budget {
        Budget(Arc::new(Inner {
            limits,
            server: Pool::new(limits.server_bytes_max),
            others: Arc::new(Pool::new(limits::OTHER_ANSWERS_BYTES_MAX)),
            projects: Mutex::default(),
            numbers,
        }))
    }

    /// The most that one read loads at once.
    pub(crate) fn page_bytes_max(&self) -> usize {
        self.0.limits.connection_bytes_max.min(self.0.limits.project_bytes_max)
    }

    /// The smallest piece of an answer that is given to hyper. Two of them for each stream of HTTP/2 fit into half of a
    /// connection's limit.
    pub(crate) fn piece_bytes(&self) -> usize {
        let each = self.0.limits.connection_bytes_max / 2 / limits::HTTP2_STREAMS_MAX as usize / 2;
        each.clamp(limits::SMALL_ANSWER_BYTES, limits::PIECE_BYTES)
    }

    /// The share of the readers of a project.
    pub(crate) fn project(&self, project: &Arc<str>, connection: Option<Arc<Connection>>) -> Share {
        let mut projects = self.0.projects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = projects.get(project).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            if projects.len() >= limits::READER_PROJECTS_KEPT {
                projects.retain(|_, pool| pool.strong_count() > 0);
            }
            let pool = Arc::new(Pool::new(self.0.limits.project_bytes_max));
            projects.insert(project.clone(), Arc::downgrade(&pool));
            pool
        });
        drop(projects);
        Share { budget: self.clone(), own, connection, whose: Whose::Project }
    }

    /// The share of the dashboard and the API.
    pub(crate) fn others(&self) -> Share {
        Share { budget: self.clone(), own: self.0.others.clone(), connection: None, whose: Whose::Others }
    }

    /// A new connection that may carry many requests.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::new(Connection {
            kept: Pool::new(self.0.limits.connection_bytes_max / 2),
            given: Mutex::default(),
        })
    }
}

/// The pools that pay for an answer.
#[derive(Clone)]
pub(crate) struct Share {
    budget: Budget,
    own: Arc<Pool>,
    connection: Option<Arc<Connection>>,
    whose: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Project,
    Others,
}

impl Share {
    fn pools(&self) -> impl Iterator<Item = &Pool> {
        // The project's first: waiting for it must not hold room of the server.
        let server = (self.whose == Whose::Project).then_some(&self.budget.0.server);
        std::iter::once(&*self.own).chain(server)
    }

    /// The smallest piece that is given to hyper.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.budget.piece_bytes()
    }

    /// Counts what is held on a connection that may carry many requests; an error if there is no room for it there.
    pub(crate) fn keep(&self, mut held: Held) -> Result<Held, Held> {
        let Some(connection) = self.connection.as_ref().filter(|_| !held.is_kept) else { return Ok(held) };
        let fits = held.bytes.div_ceil(UNIT_BYTES) <= connection.kept.units as usize;
        let Some(permit) = connection.kept.try_take(held.bytes).filter(|_| fits) else { return Err(held) };
        held.permits.push(permit);
        held.is_kept = true;
        Ok(held)
    }

    /// Waits for room for so many bytes; `None` after [`limits::READER_WAIT_MAX`].
    pub(crate) async fn hold(&self, bytes: usize) -> Option<Held> {
        if let Some(held) = self.try_hold(bytes) {
            return Some(held);
        }
        self.budget.0.numbers.waits.inc();
        let taken = async {
            let mut permits = vec![];
            for pool in self.pools() {
                permits.push(pool.take(bytes).await?);
            }
            Some(permits)
        };
        let taken = timeout(limits::READER_WAIT_MAX, taken).await.ok().flatten();
        if taken.is_none() {
            self.budget.0.numbers.refusals.inc();
        }
        Some(self.held(taken?, bytes))
    }

    /// Room for so many bytes, if there is some now.
    pub(crate) fn try_hold(&self, bytes: usize) -> Option<Held> {
        let permits: Option<Vec<_>> = self.pools().map(|pool| pool.try_take(bytes)).collect();
        Some(self.held(permits?, bytes))
    }

    fn held(&self, permits: Vec<OwnedSemaphorePermit>, bytes: usize) -> Held {
        let numbers = self.budget.0.numbers.clone();
        numbers.held.inc_by(signed(bytes));
        Held { permits, bytes, is_kept: false, numbers, pool: self.own.clone() }
    }

    /// Whether reads wait for room now.
    fn is_wanted(&self) -> bool {
        self.pools().any(|pool| pool.waiting.load(Ordering::Relaxed) > 0)
    }

    /// Whether reads may soon have to wait: less than half of a pool is free.
    pub(crate) fn is_tight(&self) -> bool {
        self.pools().any(Pool::is_tight)
    }

    /// Waits until less than half of a pool is free.
    pub(crate) async fn becomes_tight(&self) {
        let (mut own, mut server) =
            (pin!(self.own.tight.notified()), pin!(self.budget.0.server.tight.notified()));
        own.as_mut().enable();
        server.as_mut().enable();
        if self.is_tight() {
            return;
        }
        tokio::select! {
            () = own => {}
            () = server => {}
        }
    }

    /// Bytes for hyper to send. Their room is free when hyper drops them.
    pub(crate) fn give(&self, bytes: Bytes, held: Held) -> Bytes {
        Outstanding::default().give(self, bytes, held)
    }
}

/// The pieces of one answer that hyper has not sent yet, of which there are two at most.
#[derive(Default)]
pub(crate) struct Outstanding(Arc<Pieces>);

#[derive(Default)]
struct Pieces {
    count: AtomicUsize,
    waker: AtomicWaker,
}

/// One piece, counted until it is dropped.
struct Piece(Arc<Pieces>);

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.waker.wake();
    }
}

impl Outstanding {
    /// Waits until another piece may be given, and answers its length: small while the memory is tight.
    pub(crate) fn poll_piece_bytes(&self, cx: &mut Context<'_>, share: &Share) -> Poll<usize> {
        self.0.waker.register(cx.waker());
        match self.0.count.load(Ordering::Acquire) {
            2.. => Poll::Pending,
            _ if share.is_tight() => Poll::Ready(share.piece_bytes()),
            _ => Poll::Ready(limits::LARGE_PIECE_BYTES),
        }
    }

    /// Bytes for hyper to send. Their room is free when hyper drops them.
    pub(crate) fn give(&self, share: &Share, bytes: Bytes, held: Held) -> Bytes {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        let ticket = share.connection.as_ref().map(|connection| connection.register(share, bytes.len()));
        let piece = Piece(self.0.clone());
        Bytes::from_owner(Given { bytes, _held: held, _ticket: ticket, _piece: piece })
    }
}

/// Room that is in use. It is free again when this is dropped.
pub(crate) struct Held {
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
    /// Whether its connection counts it.
    is_kept: bool,
    numbers: ReaderNumbers,
    /// Keeps the project's pool while room of it is in use.
    pool: Arc<Pool>,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits off a part, which is freed separately.
    pub(crate) fn split(&mut self, bytes: usize) -> Held {
        let bytes = bytes.min(self.bytes);
        let units = bytes.div_ceil(UNIT_BYTES);
        let part = |permit: &mut OwnedSemaphorePermit| permit.split(units.min(permit.num_permits()));
        let permits = self.permits.iter_mut().filter_map(part).collect();
        self.bytes -= bytes;
        Held { permits, bytes, is_kept: self.is_kept, numbers: self.numbers.clone(), pool: self.pool.clone() }
    }

    /// Frees all but so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let spare = self.bytes.saturating_sub(bytes);
        for permit in &mut self.permits {
            let needed = bytes.div_ceil(UNIT_BYTES);
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
        self.numbers.held.dec_by(signed(spare));
        self.bytes -= spare;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.numbers.held.dec_by(signed(self.bytes));
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

struct Given {
    bytes: Bytes,
    _held: Held,
    _ticket: Option<Ticket>,
    _piece: Piece,
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A connection that may carry many requests, and the pieces its client has not taken.
///
/// An HTTP/2 client can stop reading one answer and keep the connection alive with others, so the socket does not show
/// which one stalls.
pub(crate) struct Connection {
    kept: Pool,
    given: Mutex<Untaken>,
}

#[derive(Default)]
struct Untaken {
    next: u64,
    by_number: BTreeMap<u64, Deadline>,
}

/// When the client must have taken a piece.
struct Deadline {
    at: Instant,
    /// The same if other reads wait for room.
    at_if_wanted: Instant,
    share: Share,
}

impl Deadline {
    fn is_over(&self, now: Instant) -> bool {
        self.at <= now || (self.at_if_wanted <= now && self.share.is_wanted())
    }
}

impl Connection {
    fn given(&self) -> MutexGuard<'_, Untaken> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(self: &Arc<Connection>, share: &Share, bytes: usize) -> Ticket {
        let slow = Duration::from_secs((bytes / limits::READER_BYTES_PER_SECOND_MIN) as u64);
        let now = Instant::now();
        let deadline = Deadline {
            at: now + limits::READER_CHUNK_WAIT_MAX + slow,
            at_if_wanted: now + limits::READER_CHUNK_WAIT_MIN + slow,
            share: Share { connection: None, ..share.clone() },
        };
        let mut given = self.given();
        let number = given.next;
        given.next += 1;
        given.by_number.insert(number, deadline);
        Ticket { connection: self.clone(), number }
    }

    /// Returns when the client has left a piece untaken for too long.
    pub(crate) async fn stalled(&self) {
        loop {
            sleep(limits::READER_LOOK_EVERY).await;
            let now = Instant::now();
            if self.given().by_number.values().any(|deadline| deadline.is_over(now)) {
                return;
            }
        }
    }
}

struct Ticket {
    connection: Arc<Connection>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.connection.given().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const KIB: usize = 1 << 10;

    fn budget() -> Budget {
        let limits = ReaderLimits {
            server_bytes_max: 100 * KIB,
            project_bytes_max: 60 * KIB,
            connection_bytes_max: 40 * KIB,
        };
        Budget::new(limits, ReaderNumbers::default())
    }

    /// S08: a project and the server each have their limit, and what is dropped is free again.
    #[test]
    fn every_pool_has_its_bound() {
        let budget = budget();
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        let first = budget.project(&one, None).try_hold(60 * KIB).unwrap();
        assert!(budget.project(&one, None).try_hold(1).is_none(), "the project has no more");
        let mut second = budget.project(&other, None).try_hold(40 * KIB).unwrap();
        assert!(budget.project(&other, None).try_hold(1).is_none(), "the server has no more");
        assert!(budget.others().try_hold(20 * KIB).is_some(), "pages have their own");
        second.shrink(10 * KIB);
        assert!(budget.project(&other, None).try_hold(30 * KIB).is_some());
        drop(first);
        let mut third = budget.project(&one, None).try_hold(60 * KIB).unwrap();
        let part = third.split(20 * KIB);
        assert_eq!(budget.0.numbers.held.get(), 70 * KIB as i64);
        drop(third);
        assert!(budget.project(&one, None).try_hold(41 * KIB).is_none(), "the part is still held");
        assert!(budget.project(&one, None).try_hold(40 * KIB).is_some());
        drop((second, part));
        assert_eq!(budget.0.numbers.held.get(), 0);
    }

    /// S08: what does not fit the limit of a connection is not kept, and nothing waits for it.
    #[test]
    fn a_connection_keeps_what_fits() {
        let budget = budget();
        let share = budget.project(&Arc::from("one"), Some(budget.connection()));
        let hold = |bytes| share.try_hold(bytes).unwrap();
        assert!(share.keep(hold(21 * KIB)).is_err(), "half of forty");
        let kept = share.keep(hold(15 * KIB)).ok().unwrap();
        assert!(share.keep(hold(6 * KIB)).is_err());
        let more = share.keep(hold(5 * KIB)).ok().unwrap();
        assert!(share.keep(more).is_ok(), "what is kept is not counted twice");
        drop(kept);
        assert!(share.keep(hold(20 * KIB)).is_ok());
    }

    /// S08: a read that finds no room waits for it, and is refused when there is none in time.
    #[tokio::test(start_paused = true)]
    async fn a_read_without_room_waits() {
        let budget = budget();
        let share = budget.project(&Arc::from("one"), None);
        let held = share.try_hold(60 * KIB).unwrap();
        assert!(share.is_tight());
        assert!(share.hold(KIB).await.is_none(), "no room was freed");
        let waiting = tokio::spawn({
            let share = share.clone();
            async move { share.hold(KIB).await.is_some() }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap());
        assert!(share.hold(KIB * KIB).await.is_some(), "what is larger than the pool takes all of it");
        assert_eq!(budget.0.numbers.held.get(), 0);
    }

    /// S08: a client that does not take a piece is disconnected, whatever else it does on its connection; sooner when
    /// other reads wait for room.
    #[tokio::test(start_paused = true)]
    async fn a_piece_that_is_not_taken_is_found() {
        let budget = budget();
        let connection = budget.connection();
        let share = budget.project(&Arc::from("one"), Some(connection.clone()));
        let give = || share.give(Bytes::from_static(b"bytes"), share.try_hold(KIB).unwrap());
        let began = Instant::now();
        let untaken = give();
        for _ in 0..5 {
            drop(give());
        }
        connection.stalled().await;
        assert!(began.elapsed() >= limits::READER_CHUNK_WAIT_MAX);
        drop(untaken);
        let quiet = timeout(limits::READER_CHUNK_WAIT_MAX * 3, connection.stalled()).await;
        assert!(quiet.is_err(), "there is nothing to take");

        let _rest = share.try_hold(59 * KIB).unwrap();
        let (began, _untaken) = (Instant::now(), give());
        let waiting = tokio::spawn({
            let share = share.clone();
            async move { share.hold(KIB).await.is_some() }
        });
        connection.stalled().await;
        assert!(began.elapsed() < limits::READER_WAIT_MAX, "it ends while the other read waits");
        waiting.abort();
    }

    /// S08: hyper has two pieces of an answer at most, and small ones while the memory is tight.
    #[tokio::test]
    async fn two_pieces_are_outstanding_at_most() {
        let budget = budget();
        let share = budget.project(&Arc::from("one"), Some(budget.connection()));
        let outstanding = Outstanding::default();
        let next = async || poll_fn(|cx| Poll::Ready(outstanding.poll_piece_bytes(cx, &share))).await;
        assert_eq!(next().await, Poll::Ready(limits::LARGE_PIECE_BYTES));
        let held = share.try_hold(50 * KIB).unwrap();
        assert_eq!(next().await, Poll::Ready(limits::SMALL_ANSWER_BYTES), "the memory is tight");
        drop(held);
        let give = || outstanding.give(&share, Bytes::from_static(b"bytes"), share.try_hold(KIB).unwrap());
        let (one, _other) = (give(), give());
        assert!(next().await.is_pending());
        drop(one);
        assert!(next().await.is_ready());
    }
}
