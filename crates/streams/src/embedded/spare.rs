//! The next segment, prepared in advance.
//!
//! Overwriting a file whose blocks exist does not change the file system's metadata, so its sync
//! costs a fraction of the sync of a growing file. One spare is kept. Without one, the log creates
//! a file that grows: slower, but just as safe.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::disk::{Disk, DiskFile};
use super::segment::file_name;

/// A file of zeros with a segment's name.
pub(super) struct Spare {
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) size: u64,
}

/// The spare, and the requests for it.
#[derive(Default)]
pub(super) struct Spares {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    /// The size of the next one, if one is wanted.
    wanted: Option<u64>,
    shut: bool,
}

/// Zeros are written and synced in steps of this, so that a commit that syncs at the same time
/// does not wait long.
const STEP: usize = 2 << 20;
/// How often a full disk is retried.
const RETRY: Duration = Duration::from_secs(2);

impl Spares {
    /// Takes the spare if it has room for `needed`, and asks for the next.
    pub(super) fn take(&self, needed: u64, next_size: u64) -> Option<Spare> {
        let mut state = self.lock();
        state.wanted = Some(next_size);
        self.wake.notify_one();
        state.spare.take_if(|spare| spare.size >= needed)
    }

    /// Asks for a spare of a size.
    pub(super) fn want(&self, size: u64) {
        self.lock().wanted = Some(size);
        self.wake.notify_one();
    }

    pub(super) fn shut(&self) {
        self.lock().shut = true;
        self.wake.notify_all();
    }

    /// Makes spares until shut.
    pub(super) fn run(&self, disk: &dyn Disk, numbers: &AtomicU32) {
        let mut has_said = false;
        while let Some(size) = self.next() {
            match self.prepare(disk, numbers, size) {
                Ok(Some(spare)) => {
                    let mut state = self.lock();
                    state.wanted = None;
                    state.spare = Some(spare);
                    has_said = false;
                }
                Ok(None) => return,
                Err(error) => {
                    if !has_said {
                        tracing::warn!(%error, "cannot prepare the next stream segment, will retry");
                    }
                    has_said = true;
                    let state = self.lock();
                    drop(self.wake.wait_timeout(state, RETRY));
                }
            }
        }
    }

    fn next(&self) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if state.shut {
                return None;
            }
            if let Some(size) = state.wanted.filter(|_| state.spare.is_none()) {
                return Some(size);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `None` if shut meanwhile; the next start then removes the file.
    fn prepare(&self, disk: &dyn Disk, numbers: &AtomicU32, size: u64) -> io::Result<Option<Spare>> {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let name = file_name(number);
        let file = disk.create(&name)?;
        let zeros = vec![0; STEP.min(size as usize)];
        let mut position = 0;
        while position < size {
            if self.lock().shut {
                return Ok(None);
            }
            let step = (size - position).min(zeros.len() as u64);
            let written = file.write_at(&zeros[..step as usize], position).and_then(|()| file.sync());
            if let Err(error) = written {
                // Free the space now: commits need it.
                let _ = disk.remove(&name);
                return Err(error);
            }
            position += step;
        }
        disk.sync_names()?;
        Ok(Some(Spare { number, file, size }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
