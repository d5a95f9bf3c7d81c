//! S04: the embedded store writes the same files, byte for byte, as before the log of commits was put under the
//! engine. `files.txt` was written by the version before that.

use std::fmt::Write as _;
use std::sync::Arc;

use towpath_streams::embedded::Embedded;
use towpath_streams::embedded::disk::Disk;
use towpath_streams::{Beyond, FanOut, RetentionChange, Store, Subscribe};

use crate::sim::SimDisk;
use crate::support::*;

/// Every file: name, length and checksum.
fn listing(disk: &SimDisk) -> String {
    let mut all = String::new();
    for name in disk.names().unwrap() {
        let file = disk.open(&name).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        writeln!(all, "{name} {} {:08x}", bytes.len(), crc32c::crc32c(&bytes)).unwrap();
    }
    all
}

/// Changes of every kind, one after the other, so that every commit holds one of them.
async fn write_everything(store: &Embedded, clock: &Clock) {
    for id in ["a", "b", "c"] {
        let mut create = plain();
        create.shape.content_type = Some(json());
        create.messages = messages(&[b"\"first\""]);
        store.create(name(id), create).await.unwrap();
    }
    store.create(name("bytes"), sliding(600)).await.unwrap();
    for (session, source, envelope) in [("s1", "a", false), ("s2", "a", true), ("s2", "b", true)] {
        let subscribe = Subscribe { session: name(session), source: name(source), ttl_seconds: 60, envelope };
        store.subscribe(subscribe).await.unwrap();
    }
    for round in 0..20u64 {
        clock.advance_millis(250);
        let text = format!("\"{}\"", "x".repeat(round as usize * 3));
        let fan_out = FanOut { inline_max: [0, 1_000][round as usize % 2], beyond: Beyond::Queue };
        store.publish(name("a"), bytes(text.as_bytes()), fan_out).await.unwrap();
        store.append(name("b"), produced(text.as_bytes(), "p", 0, round)).await.unwrap();
        store.append(name("bytes"), bytes(&[round as u8; 40])).await.unwrap();
        if round.is_multiple_of(5) {
            store.fan_out(name("b")).await.unwrap();
            store.put_meta("space", &format!("key{round}"), Some("value".into())).await.unwrap();
            store.read(&name("s2"), towpath_model::stream::offset::Start::Beginning, 1 << 10).await.unwrap();
        }
    }
    store.create(name("fork"), fork("bytes", Some(40), 7)).await.unwrap();
    let change = RetentionChange { bytes: Some(Some(200)), age_seconds: Some(Some(30)) };
    store.retain(name("bytes"), change).await.unwrap();
    store.trim(name("c"), towpath_model::stream::offset::Offset::new(7)).await.unwrap();
    store.unsubscribe(name("s2"), name("b")).await.unwrap();
    store.delete(name("c")).await.unwrap();
    clock.advance_millis(61_000);
    store.keep().unwrap();
}

/// S04: on the file log not one byte differs from the version before.
#[tokio::test]
async fn the_files_of_the_embedded_store_are_the_same_byte_for_byte() {
    let mut all = String::new();
    for segment_bytes in [1 << 10, 1 << 20] {
        let (disk, clock) = (SimDisk::default(), Clock::new());
        let config = towpath_streams::embedded::Config { segment_bytes, ..config(&clock) };
        let store = Embedded::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, config).unwrap();
        write_everything(&store, &clock).await;
        // The order in which a checkpoint lists several segments is not fixed.
        if segment_bytes > 1 << 10 {
            store.checkpoint().unwrap();
        }
        store.shut_down();
        writeln!(all, "segments of {segment_bytes}").unwrap();
        all += &listing(&disk);
    }
    assert_eq!(all, include_str!("files.txt"), "the format of the files has changed");
}
