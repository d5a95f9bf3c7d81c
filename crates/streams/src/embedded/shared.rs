//! The state that the threads and handles of the store share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::{Duration, Instant};

use super::Config;
use super::disk::Disk;
use super::index::Index;
use super::maintain::Upkeep;
use super::pages::PageCache;
use super::queue::{Change, Queue};
use super::spare::Spares;
use super::stream::millis;
use crate::limits::SHARED_LOG_PATIENCE;
use crate::{Error, Watch};

/// The end of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: u32,
    pub(super) end: u64,
    pub(super) commit: u64,
    /// The chain of a shared log up to there.
    pub(super) chain: u32,
}

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) queue: Queue,
    pub(super) spares: Arc<Spares>,
    pub(super) pages: PageCache,
    /// The next segment's number.
    pub(super) numbers: Arc<AtomicU32>,
    /// Bytes of recent batches that followed streams keep.
    pub(super) recent: Arc<AtomicUsize>,
    /// Streams whose renewed life is not in the log yet.
    pub(super) used: Mutex<Vec<u64>>,
    /// Is notified of every change.
    pub(super) watch: OnceLock<Weak<dyn Watch>>,
    /// Log written since the last checkpoint.
    pub(super) since_checkpoint: AtomicU64,
    /// The state of the maintainer; the thread that holds the lock may maintain.
    pub(super) upkeep: Mutex<Upkeep>,
    index: RwLock<Index>,
    poison: OnceLock<String>,
    full: AtomicBool,
    /// Since when the shared log does not answer.
    unreached: Mutex<Option<Instant>>,
    wake: Mutex<Wake>,
    woken: Condvar,
}

#[derive(Default)]
struct Wake {
    maintain: bool,
    shut: bool,
}

impl Shared {
    pub(super) fn new(config: Config, disk: Arc<dyn Disk>, numbers: u32, index: Index) -> Shared {
        Shared {
            queue: Queue::new(config.queue_bytes_max),
            config,
            disk,
            spares: Arc::default(),
            pages: PageCache::default(),
            numbers: Arc::new(AtomicU32::new(numbers)),
            recent: Arc::default(),
            used: Mutex::default(),
            watch: OnceLock::new(),
            since_checkpoint: AtomicU64::new(0),
            upkeep: Mutex::default(),
            index: RwLock::new(index),
            poison: OnceLock::new(),
            full: AtomicBool::new(false),
            unreached: Mutex::default(),
            wake: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    /// The streams, to read. A thread that panicked has left them whole, or the committer has
    /// stopped anyway; so the poison of the lock is ignored here and below.
    pub(super) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a session pull what was delivered to it, so that it can be read.
    pub(super) fn pull(&self, id: u64) {
        let has_pending = {
            let index = self.index();
            index.get(id).is_some_and(|stream| index.pending(stream) > 0)
        };
        if has_pending {
            self.index_mut().pull(id);
        }
    }

    pub(super) fn now(&self) -> u64 {
        millis((self.config.clock)())
    }

    /// Why nothing may be written any more.
    pub(super) fn poisoned(&self) -> Option<String> {
        self.poison.get().cloned()
    }

    pub(super) fn poison(&self, why: &str) {
        let _ = self.poison.set(why.to_owned());
    }

    /// Remembers whether the disk is full, and logs each change of that.
    pub(super) fn full(&self, full: bool) {
        if self.full.load(Ordering::Relaxed) != full && self.full.swap(full, Ordering::Relaxed) != full {
            if full {
                tracing::error!("the disk is full: stream appends are refused until space is free");
            } else {
                tracing::info!("the disk has space again: stream appends resumed");
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Hands a change to the committer, unless the shared log has been away for too long.
    pub(super) fn push(&self, change: Change) -> Result<(), Error> {
        if self.config.log.is_some() {
            self.check_reached()?;
        }
        self.queue.push(change)
    }

    /// The shared log has answered.
    pub(super) fn reached(&self) {
        if self.lock_unreached().take().is_some() {
            tracing::info!("the shared log of the stream store answers again");
        }
    }

    /// The shared log has not answered.
    pub(super) fn unreached(&self, why: &str) {
        let mut unreached = self.lock_unreached();
        if unreached.is_none() {
            tracing::warn!(why, "the shared log of the stream store does not answer, retrying");
            *unreached = Some(Instant::now());
        }
    }

    /// An error once the shared log has been away for too long: callers must not wait without end.
    pub(super) fn check_reached(&self) -> Result<(), Error> {
        match *self.lock_unreached() {
            Some(since) if since.elapsed() >= SHARED_LOG_PATIENCE => {
                Err(Error::Busy("its log in PostgreSQL does not answer; try again later"))
            }
            _ => Ok(()),
        }
    }

    fn lock_unreached(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unreached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was written, and wakes the maintainer when a segment was sealed.
    pub(super) fn written(&self, bytes: u64, sealed: bool) {
        let since = self.since_checkpoint.fetch_add(bytes, Ordering::Relaxed);
        if sealed || since >= self.config.checkpoint_after_bytes + self.config.segment_bytes {
            self.wake_maintainer();
        }
    }

    pub(super) fn wake_maintainer(&self) {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).maintain = true;
        self.woken.notify_all();
    }

    pub(super) fn shut(&self) {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).shut = true;
        self.woken.notify_all();
        self.spares.shut();
    }

    pub(super) fn is_shut(&self) -> bool {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).shut
    }

    /// Waits until woken, or for so long. False once shut.
    pub(super) fn wait_for_maintenance(&self, patience: Duration) -> bool {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = |wake: &mut Wake| !wake.maintain && !wake.shut;
        let (mut wake, _) =
            self.woken.wait_timeout_while(wake, patience, calm).unwrap_or_else(PoisonError::into_inner);
        wake.maintain = false;
        !wake.shut
    }

    /// Waits for so long. False once shut.
    pub(super) fn pause(&self, patience: Duration) -> bool {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |wake: &mut Wake| !wake.shut;
        let waited = self.woken.wait_timeout_while(wake, patience, open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.shut
    }
}
