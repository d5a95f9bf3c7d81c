//! A cache of recently read pages.
//!
//! Many readers read the same pages: from the start of a stream, or after the last full page. The
//! bytes at an offset never change, so a cached page is valid until the stream grows and the page
//! could hold more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::DefaultHashBuilder;

use crate::Batch;
use crate::limits::{CACHED_PAGE_BYTES_MIN, CACHED_PAGES_BYTES_MAX};

/// Where a page begins: one life of a stream, an offset, and how much was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) id: u64,
    pub(super) from: u64,
    pub(super) bytes_max: usize,
}

/// The cache.
#[derive(Default)]
pub(super) struct PageCache {
    pages: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_key: HashMap<Key, Entry, DefaultHashBuilder>,
    /// In the order they were added. A page that was used since is kept for another round.
    order: VecDeque<Key>,
    bytes: usize,
}

struct Entry {
    batch: Arc<Batch>,
    /// More data follows it and did not fit: it can never be longer.
    is_full: bool,
    used: bool,
}

impl PageCache {
    /// The page, if a read would give the same.
    pub(super) fn get(&self, key: Key, tail: u64) -> Option<Arc<Batch>> {
        let mut kept = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kept.by_key.get_mut(&key)?;
        if !entry.is_full && entry.batch.end().bytes() != tail {
            return None;
        }
        entry.used = true;
        Some(entry.batch.clone())
    }

    /// Adds a page that was read when the tail was `tail`.
    pub(super) fn put(&self, key: Key, batch: &Arc<Batch>, tail: u64) {
        if batch.data().len() < CACHED_PAGE_BYTES_MIN {
            return;
        }
        let mut kept = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Entry { batch: batch.clone(), is_full: batch.end().bytes() < tail, used: false };
        kept.bytes += cost(batch);
        match kept.by_key.insert(key, entry) {
            Some(before) => kept.bytes -= cost(&before.batch),
            None => kept.order.push_back(key),
        }
        kept.make_room();
    }
}

impl Kept {
    fn make_room(&mut self) {
        while self.bytes > CACHED_PAGES_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            match self.by_key.get_mut(&oldest) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.order.push_back(oldest);
                }
                _ => {
                    if let Some(entry) = self.by_key.remove(&oldest) {
                        self.bytes -= cost(&entry.batch);
                    }
                }
            }
        }
    }
}

fn cost(batch: &Batch) -> usize {
    batch.data().len() + 4 * batch.ends().len() + 256
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towpath_model::stream::offset::Offset;

    use super::*;

    fn batch(from: u64, bytes: usize) -> Arc<Batch> {
        let data = Bytes::from(vec![7; bytes]);
        Arc::new(Batch::new(Offset::new(from), data, vec![u32::try_from(bytes).unwrap()]))
    }

    fn key(from: u64) -> Key {
        Key { id: 1, from, bytes_max: 4 << 20 }
    }

    #[test]
    fn a_page_is_good_until_the_stream_grows_into_it() {
        let cache = PageCache::default();
        cache.put(key(0), &batch(0, 5_000), 5_000);
        assert!(cache.get(key(0), 5_000).is_some());
        assert!(cache.get(key(0), 5_001).is_none(), "there is more to read now");
        assert!(cache.get(Key { bytes_max: 1, ..key(0) }, 5_000).is_none(), "another page was asked for");
        cache.put(key(0), &batch(0, 5_000), 9_000);
        assert!(cache.get(key(0), 20_000).is_some(), "a full page stays the same");
    }

    /// S06: the cache is bounded, and pages in use stay.
    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = PageCache::default();
        let page = 1 << 20;
        cache.put(key(0), &batch(0, page), u64::MAX);
        for number in 1..200u64 {
            assert!(cache.get(key(0), u64::MAX).is_some(), "page {number}");
            cache.put(key(number), &batch(number, page), u64::MAX);
        }
        let kept = cache.pages.lock().unwrap();
        assert!(kept.bytes <= CACHED_PAGES_BYTES_MAX, "{}", kept.bytes);
        assert_eq!(kept.by_key.len(), kept.order.len());
    }
}
