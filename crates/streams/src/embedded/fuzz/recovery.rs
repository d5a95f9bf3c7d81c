//! Opening a store whose files were damaged: it holds an earlier state exactly, and reports a loss.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::disk::Memory;
use super::image::{self, Image, OpenedStore};
use crate::embedded::codec::parse_block;
use crate::embedded::segment::file_name;

/// Bytes of one damage: which file, where, and with what.
const DAMAGE_BYTES: usize = 4;
const DAMAGES_MAX: usize = 8;

/// A byte for the store, then damages.
pub fn recovery(data: &[u8]) {
    let Some((which, damages)) = data.split_first() else { return };
    let image = &images()[usize::from(*which) % images().len()];
    let mut files = image.files.clone();
    let cuts =
        damages.chunks_exact(DAMAGE_BYTES).take(DAMAGES_MAX).filter(|it| damage_file(&mut files, it)).count();
    let changed: Vec<(&str, usize)> =
        image.files.iter().flat_map(|(name, was)| differ(name, was, &files)).collect();
    let disk = Arc::new(Memory::of(&files));
    let found = match image::open(&disk) {
        Ok(found) => found,
        Err(error) => {
            let only_log = cuts == 0 && changed.iter().all(|(name, _)| name.ends_with(".log"));
            return assert!(!only_log, "a broken log keeps a store from opening: {error}");
        }
    };
    let at = image.past.iter().rposition(|moment| moment.held == found.held);
    let at = at.unwrap_or_else(|| panic!("it holds what it never held: {changed:?} {:?}", found.recovery));
    let is_reported = found.recovery.torn_bytes > 0 || found.recovery.damage.is_some();
    let lost = image.past.get(at + 1);
    let last = image.past.last().expect("every store has a past");
    if changed.is_empty() && cuts == 0 {
        assert!(lost.is_none() && !is_reported, "nothing was wrong: {:?}", found.recovery);
    }
    if let (Some(lost), 0) = (lost, cuts) {
        assert!(is_reported, "lost without a report: commit {} of {}, {changed:?}", lost.commit, last.commit);
        let acknowledged = lost.commit < last.commit && changed.len() == 1;
        assert!(
            !acknowledged || found.recovery.damage.is_some(),
            "commit {} of {} is lost, and said to be torn: {changed:?}",
            lost.commit,
            last.commit
        );
    }
    blocks(image, &disk, &found);
    again(&disk, &found);
}

/// Stores with one segment or many, with a checkpoint or without.
fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let kinds =
            [(1 << 20, None), (1 << 20, Some(5)), (300, None), (300, Some(5)), (600, None), (600, Some(9))];
        kinds.map(|(bytes, checkpoint)| Image::new(bytes, checkpoint)).into()
    })
}

/// Changes a byte, or cuts a file there; true if it cut.
fn damage_file(files: &mut BTreeMap<String, Vec<u8>>, damage: &[u8]) -> bool {
    let count = files.len();
    let Some(file) = files.values_mut().nth(usize::from(damage[0]) % count) else { return false };
    if file.is_empty() {
        return false;
    }
    let at = usize::from(u16::from_le_bytes([damage[1], damage[2]])) % file.len();
    match damage[3] {
        0 => file.truncate(at),
        change => file[at] ^= change,
    }
    damage[3] == 0
}

fn differ<'a>(
    name: &'a str,
    was: &'a [u8],
    files: &'a BTreeMap<String, Vec<u8>>,
) -> impl Iterator<Item = (&'a str, usize)> {
    let pairs = was.iter().zip(&files[name]).enumerate();
    pairs.filter(|(_, (was, is))| was != is).map(move |(at, _)| (name, at))
}

/// Bytes that can be read are those that were written.
fn blocks(image: &Image, disk: &Memory, found: &OpenedStore) {
    let files = disk.files();
    for (segment, at, bytes) in &found.blocks {
        let range = *at as usize..(*at + *bytes) as usize;
        let read = |files: &BTreeMap<String, Vec<u8>>| {
            Some(Bytes::copy_from_slice(files.get(&file_name(*segment))?.get(range.clone())?))
        };
        let Some(messages) = read(&files).as_ref().and_then(parse_block) else { continue };
        let was = read(&image.files).as_ref().and_then(parse_block).expect("it was whole once");
        assert_eq!((messages.data, messages.ends), (was.data, was.ends), "other bytes than were written");
    }
}

/// After one opening the store is whole: the second one finds, cuts and loses nothing.
fn again(disk: &Arc<Memory>, found: &OpenedStore) {
    let second = image::open(disk).expect("what was opened once opens again");
    assert_eq!(second.held, found.held, "the second opening found something else");
    assert_eq!((second.recovery.torn_bytes, second.recovery.damage), (0, None), "it was not repaired");
}
