//! Files of a directory, with a limit on how many are open.
//!
//! A store of terabytes has thousands of segments, and a process may have about a thousand open
//! files. So a file that is not being written is closed when others need its slot, and opened
//! again when it is read. A file that is removed or renamed while a reader uses it stays open.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::disk::DiskFile;

/// The files of a directory.
pub(super) struct Files {
    open_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Open files, by name.
    held: HashMap<String, Weak<Pooled>>,
    /// Files that are open, in the order they were opened or found in use.
    open: VecDeque<Weak<Pooled>>,
}

/// A file that may be closed between two uses.
struct Pooled {
    this: Weak<Pooled>,
    path: PathBuf,
    files: Arc<Files>,
    file: Mutex<Option<Arc<File>>>,
    /// Written since the last sync: closing it now could hide that a write failed.
    is_dirty: AtomicBool,
    /// It was removed or renamed: its path does not lead to it.
    is_pinned: AtomicBool,
    was_used: AtomicBool,
}

impl Files {
    pub(super) fn new(open_max: usize) -> Arc<Files> {
        Arc::new(Files { open_max, state: Mutex::default() })
    }

    /// Adds a file that was just opened.
    pub(super) fn add(self: &Arc<Files>, name: &str, path: PathBuf, file: File) -> Arc<dyn DiskFile> {
        let pooled = Arc::new_cyclic(|this| Pooled {
            this: this.clone(),
            path,
            files: self.clone(),
            file: Mutex::new(Some(Arc::new(file))),
            is_dirty: AtomicBool::new(false),
            is_pinned: AtomicBool::new(false),
            was_used: AtomicBool::new(true),
        });
        let mut state = self.lock();
        if state.held.len() > 2 * self.open_max {
            state.held.retain(|_, file| file.strong_count() > 0);
        }
        state.held.insert(name.to_owned(), Arc::downgrade(&pooled));
        state.open.push_back(Arc::downgrade(&pooled));
        drop(state);
        self.close_some();
        pooled
    }

    /// A file that is open already.
    pub(super) fn held(&self, name: &str) -> Option<Arc<dyn DiskFile>> {
        let held = self.lock().held.get(name).and_then(Weak::upgrade)?;
        Some(held)
    }

    /// Keeps a file open for its readers before it loses its name.
    pub(super) fn pin(&self, name: &str) -> io::Result<()> {
        let held = self.lock().held.remove(name).and_then(|file| file.upgrade());
        let Some(file) = held else { return Ok(()) };
        file.is_pinned.store(true, Ordering::Relaxed);
        file.open(false).map(drop)
    }

    /// Closes files that were not used recently, until few enough are open.
    fn close_some(&self) {
        let mut state = self.lock();
        let mut looks = 2 * state.open.len();
        while state.open.len() > self.open_max && looks > 0 {
            looks -= 1;
            let Some(next) = state.open.pop_front() else { return };
            let Some(file) = next.upgrade() else { continue };
            if file.was_used.swap(false, Ordering::Relaxed) || !file.close() {
                state.open.push_back(next);
            }
        }
    }

    #[cfg(test)]
    fn open_count(&self) -> usize {
        let state = self.lock();
        let is_open = |file: &Arc<Pooled>| file.lock().is_some();
        state.open.iter().filter_map(Weak::upgrade).filter(is_open).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pooled {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file, to read or to write.
    fn open(&self, writes: bool) -> io::Result<Arc<File>> {
        self.was_used.store(true, Ordering::Relaxed);
        let mut file = self.lock();
        if writes {
            self.is_dirty.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let opened = Arc::new(File::options().read(true).write(true).open(&self.path)?);
        *file = Some(opened.clone());
        // Lock order: the list, then a file.
        drop(file);
        self.files.lock().open.push_back(self.this.clone());
        self.files.close_some();
        Ok(opened)
    }

    /// Closes it once its present readers are done. False if it must stay open.
    fn close(&self) -> bool {
        let mut file = self.lock();
        let must_stay = self.is_dirty.load(Ordering::Relaxed) || self.is_pinned.load(Ordering::Relaxed);
        if !must_stay {
            *file = None;
        }
        !must_stay
    }
}

impl DiskFile for Pooled {
    fn len(&self) -> io::Result<u64> {
        Ok(self.open(false)?.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.open(false)?.read_exact_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.open(true)?.write_all_at(bytes, position)
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.open(true)?;
        file.sync_data()?;
        // The thread that writes a file also syncs it.
        self.is_dirty.store(false, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::{Directory, Disk};

    /// S06: a few open files serve many; a written file stays open until it is synced, and a
    /// removed or replaced one stays readable for its readers.
    #[test]
    fn few_open_files_serve_many() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Directory::take_with(directory.path(), 4).unwrap();
        let files: Vec<_> = (0..20u8)
            .map(|number| {
                let file = disk.create(&format!("f{number}")).unwrap();
                file.write_at(&[number; 10], 0).unwrap();
                file.sync().unwrap();
                file
            })
            .collect();
        let unsynced = disk.create("unsynced").unwrap();
        unsynced.write_at(b"x", 0).unwrap();
        let read = |number: u8| {
            let mut buffer = [0; 10];
            files[usize::from(number)].read_at(&mut buffer, 0).unwrap();
            buffer
        };
        for number in (0..20).chain((0..20).rev()) {
            assert_eq!(read(number), [number; 10]);
            assert!(disk.files().open_count() <= 4, "{}", disk.files().open_count());
        }
        unsynced.sync().unwrap();
        disk.remove("f0").unwrap();
        disk.rename("f1", "f2").unwrap();
        drop(disk.create("f3").unwrap());
        for number in (4..20).chain(0..20) {
            assert_eq!(read(number), [number; 10], "{number}");
        }
        let mut buffer = [0; 10];
        disk.open("f2").unwrap().read_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, [1; 10], "the name leads to the file that took it");
    }
}
