//! A directory in memory, which can be copied and damaged.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::embedded::disk::{Disk, DiskFile};

type Files = BTreeMap<String, Contents>;

/// The files by name.
#[derive(Default)]
pub(super) struct Memory(Mutex<Files>);

#[derive(Clone, Default)]
struct Contents(Arc<Mutex<Vec<u8>>>);

impl Memory {
    /// A disk that holds these.
    pub(super) fn of(files: &BTreeMap<String, Vec<u8>>) -> Memory {
        let file = |bytes: &Vec<u8>| Contents(Arc::new(Mutex::new(bytes.clone())));
        Memory(Mutex::new(files.iter().map(|(name, bytes)| (name.clone(), file(bytes))).collect()))
    }

    /// What it holds.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.lock().iter().map(|(name, file)| (name.clone(), file.lock().clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Memory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Contents::default();
        self.lock().insert(name.to_owned(), file.clone());
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.lock().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(file))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for Contents {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let from = position as usize;
        let contents = self.lock();
        let found = from.checked_add(buffer.len()).and_then(|to| contents.get(from..to));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let (from, to) = (position as usize, position as usize + bytes.len());
        let mut contents = self.lock();
        if contents.len() < to {
            contents.resize(to, 0);
        }
        contents[from..to].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
