//! S03, S06: disks that are full or fail.

use towpath_streams::{Append, Error, Store};

use crate::sim::SimDisk;
use crate::support::*;

/// A full disk stops writes and nothing else, until there is room; refused messages never appear,
/// and acknowledged ones are all there.
#[tokio::test]
async fn a_full_disk_refuses_until_there_is_room() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..4u8 {
        let room = disk.used() + 10_000;
        disk.switch(|switches| switches.room = Some(room));
        let mut refused = 0;
        for number in 0..40u8 {
            let data = vec![round * 40 + number; 700];
            match store.append(name("a"), bytes(&data)).await {
                Ok(_) => acknowledged.push(data),
                Err(Error::DiskFull) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 10, "10,000 bytes were free, {refused} of 40 were refused");
        assert!(store.status().disk_full);
        assert_eq!(read_all(&store, "a", 1000).await.unwrap(), acknowledged, "reads go on");
        assert!(matches!(store.create(name("b"), big()).await, Err(Error::DiskFull)));
        disk.switch(|switches| switches.room = None);
        let data = vec![255; 10 + round as usize];
        store.append(name("a"), bytes(&data)).await.unwrap();
        acknowledged.push(data);
        assert!(!store.status().disk_full);
    }
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(store.recovery().damage, None);
    assert_eq!(read_all(&store, "a", 1000).await.unwrap(), acknowledged);
}

fn big() -> towpath_streams::Create {
    let mut create = plain();
    create.messages = messages(&[&[1; 20_000]]);
    create
}

/// Bytes that a failed commit left after the end never become a part of the next commit, even if
/// that one ends exactly where an old record begins.
#[tokio::test]
async fn leftovers_of_a_failed_commit_never_come_back() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    let room = disk.used() + 60 * 4;
    disk.switch(|switches| switches.room = Some(room));
    let appends = (0..8u8).map(|number| (name("a"), bytes(&[b'0' + number; 10]))).collect();
    assert!(matches!(store.append_all(appends).await, Err(Error::DiskFull)));
    disk.switch(|switches| switches.room = None);
    store.append(name("a"), bytes(&[b'x'; 10])).await.unwrap();
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(read_all(&store, "a", 1000).await.unwrap(), [[b'x'; 10]]);
}

#[tokio::test]
async fn a_write_that_fails_is_an_error_and_nothing_more() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    store.append(name("a"), produced(b"one", "p", 0, 0)).await.unwrap();
    disk.switch(|switches| switches.failing_write = true);
    assert!(matches!(store.append(name("a"), produced(b"two", "p", 0, 1)).await, Err(Error::Io { .. })));
    disk.switch(|switches| switches.failing_write = false);
    let two = store.append(name("a"), produced(b"two", "p", 0, 1)).await.unwrap();
    assert!(!two.is_duplicate, "the producer's state must not have moved with the failed write");
    assert_eq!(read_all(&store, "a", 1000).await.unwrap(), [b"one", b"two"]);
}

/// After a failed sync it is unknown what the disk holds: the store takes no more writes and says so.
#[tokio::test]
async fn a_failed_sync_poisons_the_store() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    store.append(name("a"), bytes(b"one")).await.unwrap();
    disk.switch(|switches| switches.failing_sync = true);
    assert!(matches!(store.append(name("a"), bytes(b"two")).await, Err(Error::Poisoned(_))));
    disk.switch(|switches| switches.failing_sync = false);
    assert!(matches!(store.append(name("a"), bytes(b"three")).await, Err(Error::Poisoned(_))));
    assert!(matches!(store.delete(name("a")).await, Err(Error::Poisoned(_))));
    assert!(matches!(store.create(name("b"), plain()).await, Err(Error::Poisoned(_))));
    assert!(store.status().poisoned.is_some());
    assert_eq!(read_all(&store, "a", 1000).await.unwrap(), [b"one"], "reads go on");
    drop(store);
    for kept in [0, usize::MAX] {
        let store = open(&disk.image().after_power_cut(kept, |_, byte| byte), &clock);
        let read = read_all(&store, "a", 1000).await.unwrap();
        assert!(read == [b"one"] || read == [b"one", b"two"], "{read:?}");
        store.append(name("a"), bytes(b"four")).await.unwrap();
    }
}

/// Maintenance without room on the disk gives up and changes nothing.
#[tokio::test]
async fn maintenance_on_a_full_disk_breaks_nothing() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    for number in 0..60u8 {
        let append = Append { messages: messages(&[&[number; 100], &[number; 50]]), ..Append::default() };
        store.append(name("a"), append).await.unwrap();
    }
    let before = read_all(&store, "a", 1000).await.unwrap();
    for room in [0, 100, 2_000, 6_000] {
        let room = disk.used() + room;
        disk.switch(|switches| switches.room = Some(room));
        assert!(store.compact().is_err());
        assert_eq!(read_all(&store, "a", 1000).await.unwrap(), before);
    }
    disk.switch(|switches| switches.room = None);
    store.compact().unwrap();
    assert_eq!(read_all(&store, "a", 1000).await.unwrap(), before);
    drop(store);
    assert_eq!(read_all(&open(&disk, &clock), "a", 1000).await.unwrap(), before);
}

/// S06: a store opens on a disk without one free byte, with the torn end of a commit too, and serves reads; writes
/// are refused until there is room.
#[tokio::test]
async fn a_store_opens_on_a_full_disk() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    let mut acknowledged = Vec::new();
    let room = disk.used() + 9_000;
    disk.switch(|switches| switches.room = Some(room));
    for number in 0..40u8 {
        let data = vec![number; 700];
        if store.append(name("a"), bytes(&data)).await.is_ok() {
            acknowledged.push(data);
        }
    }
    drop(store);
    // With and without bytes of a failed commit.
    for kept in [0, usize::MAX] {
        let disk = disk.image().after_power_cut(kept, |_, byte| byte);
        let room = disk.used();
        disk.switch(|switches| switches.room = Some(room));
        let store = open(&disk, &clock);
        assert_eq!(store.recovery().damage, None);
        assert!(read_all(&store, "a", 1000).await.unwrap() == acknowledged, "reads go on");
        let mut more = 0;
        // Opening may have freed some space.
        let refused = loop {
            match store.append(name("a"), bytes(&[99; 700])).await {
                Ok(_) => more += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::DiskFull), "{refused}");
        disk.switch(|switches| switches.room = None);
        store.append(name("a"), bytes(b"room")).await.unwrap();
        let read = read_all(&store, "a", 1000).await.unwrap();
        assert_eq!(read.len(), acknowledged.len() + more + 1);
        assert!(read[..acknowledged.len()] == acknowledged);
    }
}
