//! A disk in memory that knows what is durable.
//!
//! Each file remembers what the last sync made durable and every write since. A power cut keeps the
//! durable part and whatever the test chooses of the rest.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use towpath_streams::embedded::disk::{Disk, DiskFile};

/// A disk with switches.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    switches: Switches,
    /// The disk as it was when the last sync of a log segment was asked for.
    before_sync: Option<Image>,
    syncs: usize,
    /// Bytes that were written, and in how many writes.
    written: (u64, usize),
    waiting: usize,
    /// A write to a checkpoint waits.
    checkpointing: bool,
}

/// What the disk does wrong.
#[derive(Default, Clone)]
pub(crate) struct Switches {
    /// Syncs succeed and do nothing.
    pub(crate) lying_sync: bool,
    /// Syncs fail.
    pub(crate) failing_sync: bool,
    /// Writes fail.
    pub(crate) failing_write: bool,
    /// Bytes there is room for.
    pub(crate) room: Option<u64>,
    /// Syncs wait.
    pub(crate) hold_sync: bool,
    /// Every sync remembers the disk as it was before.
    pub(crate) remember: bool,
    /// How many writes to a checkpoint pass before the next one waits.
    pub(crate) checkpoint_writes: Option<usize>,
}

#[derive(Default, Clone)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    since: Vec<(u64, Vec<u8>)>,
}

/// A disk at one moment.
#[derive(Clone)]
pub(crate) struct Image {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
}

impl SimDisk {
    pub(crate) fn switch(&self, change: impl FnOnce(&mut Switches)) {
        change(&mut self.lock().switches);
        self.state.1.notify_all();
    }

    /// Waits until a sync is held.
    pub(crate) fn wait_for_sync(&self) {
        let state = self.lock();
        drop(self.state.1.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    /// Waits until a checkpoint write is held, or `is_done`.
    pub(crate) fn wait_for_checkpoint(&self, is_done: impl Fn() -> bool) {
        let mut state = self.lock();
        while !state.checkpointing && !is_done() {
            state = self.state.1.wait_timeout(state, std::time::Duration::from_millis(1)).unwrap().0;
        }
    }

    pub(crate) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    /// Bytes that were ever written, and in how many writes.
    pub(crate) fn written(&self) -> (u64, usize) {
        self.lock().written
    }

    pub(crate) fn used(&self) -> u64 {
        self.lock().used()
    }

    /// The disk as it was when the last sync was asked for.
    pub(crate) fn before_sync(&self) -> Image {
        self.lock().before_sync.clone().expect("no sync was remembered")
    }

    /// The disk as it is.
    pub(crate) fn image(&self) -> Image {
        self.lock().image()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].now.len() as u64).sum()
    }

    fn image(&self) -> Image {
        let (files, names) = (self.files.clone(), self.names.clone());
        Image { files, names, durable_names: self.durable_names.clone() }
    }
}

impl Image {
    /// What was written since the last sync, all files together, in bytes.
    pub(crate) fn unsynced(&self) -> usize {
        self.files.iter().flat_map(|file| &file.since).map(|(_, bytes)| bytes.len()).sum()
    }

    /// A disk after a power cut: the first `kept` unsynced bytes are there, changed by
    /// `spoil`, which gets their position among the unsynced ones.
    pub(crate) fn after_power_cut(&self, kept: usize, spoil: impl Fn(usize, u8) -> u8) -> SimDisk {
        let mut position = 0;
        let mut files = Vec::new();
        for file in &self.files {
            let mut now = file.durable.clone();
            for (at, bytes) in &file.since {
                let at = *at as usize;
                for (index, byte) in bytes.iter().enumerate() {
                    if position < kept {
                        if now.len() <= at + index {
                            now.resize(at + index + 1, 0);
                        }
                        now[at + index] = spoil(position, *byte);
                    }
                    position += 1;
                }
            }
            files.push(Contents { durable: now.clone(), now, since: Vec::new() });
        }
        let names = self.durable_names.clone();
        let state = State { files, durable_names: names.clone(), names, ..State::default() };
        SimDisk { state: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    /// The same disk with one durable byte of a file changed.
    pub(crate) fn flipped(&self, name: &str, at: usize) -> SimDisk {
        let mut image = self.clone();
        let file = &mut image.files[self.names[name]];
        file.durable[at] ^= 0x40;
        image.after_power_cut(0, |_, byte| byte)
    }

    /// Files and their durable sizes.
    pub(crate) fn names(&self) -> Vec<(String, usize)> {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[*file].durable.len())).collect()
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    is_checkpoint: bool,
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.files.push(Contents::default());
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        let is_checkpoint = name == "checkpoint.new";
        Ok(Arc::new(SimFile { disk: self.clone(), file, is_checkpoint }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = *self.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), file, is_checkpoint: false }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().names.remove(name).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.durable_names = state.names.clone();
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[self.file].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let state = self.disk.lock();
        let from = position as usize;
        let found = state.files[self.file].now.get(from..from + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        if self.is_checkpoint {
            state.checkpointing = state.switches.checkpoint_writes == Some(0);
            let waits = |state: &mut State| state.switches.checkpoint_writes == Some(0);
            state = self.disk.state.1.wait_while(state, waits).unwrap();
            state.checkpointing = false;
            state.switches.checkpoint_writes = state.switches.checkpoint_writes.map(|writes| writes - 1);
        }
        if state.switches.failing_write {
            return Err(io::Error::other("the disk does not like this"));
        }
        let grows = (position + bytes.len() as u64).saturating_sub(state.files[self.file].now.len() as u64);
        let room = state.switches.room.map_or(u64::MAX, |room| room.saturating_sub(state.used()));
        // A full disk writes what fits: a short write.
        let taken = bytes.len() - (grows.saturating_sub(room) as usize).min(bytes.len());
        state.written = (state.written.0 + taken as u64, state.written.1 + 1);
        let file = &mut state.files[self.file];
        let (from, to) = (position as usize, position as usize + taken);
        if file.now.len() < to {
            file.now.resize(to, 0);
        }
        file.now[from..to].copy_from_slice(&bytes[..taken]);
        file.since.push((position, bytes[..taken].to_vec()));
        if taken < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.syncs += 1;
        state.waiting += 1;
        self.disk.state.1.notify_all();
        state = self.disk.state.1.wait_while(state, |state| state.switches.hold_sync).unwrap();
        state.waiting -= 1;
        if state.switches.remember {
            state.before_sync = Some(state.image());
        }
        if state.switches.failing_sync {
            return Err(io::Error::other("the disk has lost its mind"));
        }
        if !state.switches.lying_sync {
            let file = &mut state.files[self.file];
            file.durable = file.now.clone();
            file.since.clear();
        }
        Ok(())
    }
}
