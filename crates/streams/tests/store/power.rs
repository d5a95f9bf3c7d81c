//! S03: power cuts at every byte of a commit, flipped bits, and the proof that the checker would
//! notice a store that does not sync.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use towpath_model::stream::state::Refusal;
use towpath_streams::embedded::Embedded;
use towpath_streams::{Append, Beyond, Error, FanOut, Store, Subscribe};

use crate::sim::SimDisk;
use crate::support::*;

/// What callers can see of a stream: bytes, boundaries, closed or not, and the next request that
/// each producer must send.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Print {
    messages: Vec<Vec<u8>>,
    closed: bool,
    expected: Vec<u64>,
    /// What a session follows, and the small value that is set with the last change.
    follows: Vec<(String, u64)>,
    meta: Option<Vec<u8>>,
}

type Prints = BTreeMap<&'static str, Option<Print>>;

const STREAMS: [&str; 11] = [
    "a",
    "b",
    "c",
    "doomed",
    "late",
    "plug",
    "src",
    "session:bare",
    "session:leaves",
    "session:new",
    "session:wrapped",
];

async fn prints(store: &Embedded) -> Prints {
    let mut prints = BTreeMap::new();
    for id in STREAMS {
        let print = match read_all(store, id, 50).await {
            Ok(messages) => Some(Print {
                messages,
                closed: store.head(&name(id)).unwrap().closed,
                expected: vec![expected_seq(store, id, "p").await, expected_seq(store, id, "q").await],
                follows: follows(store, id),
                meta: store.list_meta("power").pop().map(|(_, value)| value.to_vec()),
            }),
            Err(Error::NotFound(_)) => None,
            Err(error) => panic!("{id}: {error}"),
        };
        prints.insert(id, print);
    }
    prints
}

/// Sends a request that is always refused; the refusal says what would be accepted.
async fn expected_seq(store: &Embedded, id: &str, producer: &str) -> u64 {
    match store.append(name(id), produced(b"never", producer, 0, 1_000)).await {
        Err(Error::Refused { refusal: Refusal::ProducerGap { expected, .. }, .. }) => expected,
        Err(Error::Refused { refusal: Refusal::Closed, .. }) => u64::MAX,
        Err(Error::ReadOnly(_)) => u64::MAX,
        other => panic!("{id}: {other:?}"),
    }
}

fn follows(store: &Embedded, id: &str) -> Vec<(String, u64)> {
    let session = store.session(&name(id)).ok();
    let subscriptions = session.into_iter().flat_map(|session| session.subscriptions);
    subscriptions.map(|it| (it.source.id.to_string(), it.start.bytes())).collect()
}

async fn subscribe(store: &Embedded, session: &str, envelope: bool) {
    let (session, source) = (name(session), name("src"));
    store.subscribe(Subscribe { session, source, ttl_seconds: 3_600, envelope }).await.unwrap();
}

const INLINE: FanOut = FanOut { inline_max: 10, beyond: Beyond::Queue };

/// What happens before the commit that is cut.
async fn before(store: &Embedded) {
    let mut source = plain();
    source.shape.content_type = Some(json());
    store.create(name("src"), source).await.unwrap();
    subscribe(store, "session:bare", false).await;
    subscribe(store, "session:wrapped", true).await;
    subscribe(store, "session:leaves", false).await;
    for id in ["a", "b", "c", "doomed", "plug"] {
        store.create(name(id), plain()).await.unwrap();
    }
    for number in 0..60u64 {
        store.append(name("a"), produced(format!("a{number};").as_bytes(), "p", 0, number)).await.unwrap();
        store.append(name("b"), bytes(&[number as u8; 90])).await.unwrap();
        if number % 6 == 0 {
            store.publish(name("src"), bytes(format!("{number},").as_bytes()), INLINE).await.unwrap();
        }
        if number == 30 {
            store.maintain().unwrap();
            store.checkpoint().unwrap();
        }
    }
    store.delete(name("doomed")).await.unwrap();
    store.create(name("doomed"), plain()).await.unwrap();
    store.append(name("plug"), bytes(b".")).await.unwrap();
}

/// The commit that is cut, change by change.
async fn change(store: &Embedded, number: usize) {
    let append = match number {
        0 => (name("a"), produced(b"x1;", "p", 0, 60)),
        1 => (name("a"), produced(b"y0;", "q", 0, 0)),
        2 => (name("b"), Append { messages: messages(&[b"one", b"two"]), ..Append::default() }),
        3 => return store.delete(name("doomed")).await.unwrap(),
        4 => {
            let published = store.publish(name("src"), bytes(b"[1],"), INLINE).await.unwrap();
            assert_eq!(published.subscribers, 3);
            return;
        }
        5 => {
            assert!(store.create(name("late"), plain()).await.unwrap().is_new);
            return;
        }
        6 => return subscribe(store, "session:new", true).await,
        7 => return assert!(store.unsubscribe(name("session:leaves"), name("src")).await.unwrap()),
        8 => return store.put_meta("power", "m", Some("value".into())).await.unwrap(),
        _ => (name("a"), Append { close: true, ..produced(b"bye", "p", 0, 61) }),
    };
    let (name, append) = append;
    assert!(!store.append(name, append).await.unwrap().is_duplicate);
}

const CHANGES: usize = 10;
/// The change of two records: an append and its delivery.
const PUBLISH: usize = 4;

/// The state after the first so many changes. A publish that is cut in two is a message that waits
/// to be delivered.
async fn expectations() -> Vec<Prints> {
    let mut all = Vec::new();
    for count in 0..=CHANGES {
        let store = open(&SimDisk::default(), &Clock::new());
        before(&store).await;
        for number in 0..count {
            change(&store, number).await;
        }
        all.push(prints(&store).await);
        if count == PUBLISH {
            store.append(name("src"), bytes(b"[1],")).await.unwrap();
            assert_eq!(store.lagging(9).len(), 1);
            all.push(prints(&store).await);
        }
    }
    all
}

/// A disk at the moment before the sync of a commit with all changes in it.
async fn interrupted() -> crate::sim::Image {
    let disk = SimDisk::default();
    let store = open(&disk, &Clock::new());
    before(&store).await;
    disk.switch(|switches| switches.hold_sync = true);
    // Keeps the committer busy, so that the changes become one commit. The prints do not show it.
    let plug = store.retain(name("plug"), towpath_streams::Retention::default().into());
    disk.wait_for_sync();
    let changes = join_all((0..CHANGES).map(|number| change(&store, number)));
    let release = async {
        disk.switch(|switches| {
            switches.hold_sync = false;
            switches.remember = true;
        });
    };
    let (plug, _, ()) = tokio::join!(plug, changes, release);
    plug.unwrap();
    disk.before_sync()
}

/// How many of the changes survived; panics if the disk shows anything but a beginning.
async fn survived(disk: &SimDisk, expected: &[Prints], what: &str) -> usize {
    let store = try_open(disk, &Clock::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(store.recovery().damage, None, "{what}");
    let found = prints(&store).await;
    let count = expected.iter().position(|expected| *expected == found);
    let count = count.unwrap_or_else(|| panic!("{what}: {found:#?}"));
    // And it goes on from there.
    store.append(name("b"), bytes(b"after")).await.unwrap();
    drop(store);
    let store = open(disk, &Clock::new());
    let read = read_all(&store, "b", 1000).await.unwrap();
    assert_eq!(read.last().unwrap(), b"after", "{what}");
    count
}

#[tokio::test]
async fn a_power_cut_at_any_byte_leaves_a_beginning_of_the_commit() {
    let (expected, image) = (expectations().await, interrupted().await);
    let bytes = image.unsynced();
    assert!(bytes > 300, "the commit holds everything: {bytes}");
    let mut last = 0;
    for kept in 0..=bytes {
        let disk = image.after_power_cut(kept, |_, byte| byte);
        let count = survived(&disk, &expected, &format!("cut at {kept} of {bytes}")).await;
        assert!(count >= last, "more bytes, fewer changes at {kept}");
        last = count;
    }
    assert_eq!(last, expected.len() - 1);
}

#[tokio::test]
async fn garbage_in_any_byte_of_an_unsynced_commit_is_cut_off() {
    let (expected, image) = (expectations().await, interrupted().await);
    let bytes = image.unsynced();
    for wrong in 0..bytes {
        let disk = image.after_power_cut(bytes, |at, byte| if at == wrong { byte ^ 0x11 } else { byte });
        survived(&disk, &expected, &format!("byte {wrong} of {bytes} is wrong")).await;
    }
    for hole in (0..bytes).step_by(64) {
        let disk =
            image.after_power_cut(bytes, |at, byte| if (hole..hole + 64).contains(&at) { 0 } else { byte });
        survived(&disk, &expected, &format!("a hole at {hole} of {bytes}")).await;
    }
}

/// Whatever bit of acknowledged data flips: no reader gets a wrong byte, and if something is missing
/// the store reports it.
#[tokio::test]
async fn flipped_bits_are_never_read_and_never_silent() {
    let disk = SimDisk::default();
    let store = open(&disk, &Clock::new());
    before(&store).await;
    let expected = prints(&store).await;
    drop(store);
    let image = disk.image();
    for (file, size) in image.names() {
        for at in (0..size).step_by(13) {
            let Ok(store) = try_open(&image.flipped(&file, at), &Clock::new()) else { continue };
            let recovery = store.recovery().clone();
            let mut missing = false;
            for id in STREAMS {
                let Ok(read) = read_all(&store, id, 500).await else {
                    missing |= expected[id].is_some();
                    continue;
                };
                let expected = expected[id].as_ref().map_or(&[][..], |print| &print.messages);
                assert!(expected.starts_with(&read), "{file} byte {at}: stream {id} reads {read:?}");
                missing |= read.len() < expected.len();
            }
            // A flip in the last commit looks the same as a torn commit.
            let said = recovery.damage.is_some() || recovery.torn_bytes > 0;
            assert!(!missing || said || corrupt(&store).await, "{file} byte {at}: silence, {recovery:?}");
        }
    }
}

/// A store that was killed before its first checkpoint: the header of its first segment is all that leads to
/// its data. Without it nothing is found, and nothing may be removed.
#[tokio::test]
async fn a_log_without_its_beginning_is_missed_and_kept() {
    let disk = SimDisk::default();
    let store = open(&disk, &Clock::new());
    store.create(name("a"), plain()).await.unwrap();
    for number in 0..9u8 {
        store.append(name("a"), bytes(&[number; 90])).await.unwrap();
    }
    let image = disk.image();
    drop(store);
    for at in 0..64 {
        let spoilt = image.flipped("0000000001.log", at);
        let store = try_open(&spoilt, &Clock::new()).unwrap();
        let damage = store.recovery().damage.clone().unwrap_or_default();
        assert!(damage.contains("damaged-0000000001.log"), "byte {at}: {:?}", store.recovery());
        assert!(spoilt.image().names().iter().any(|(name, _)| name == "damaged-0000000001.log"));
    }
}

async fn corrupt(store: &Embedded) -> bool {
    for id in STREAMS {
        if matches!(read_all(store, id, 500).await, Err(Error::Corrupt(_))) {
            return true;
        }
    }
    false
}

/// The checker works: it fails for a store whose syncs do nothing.
#[tokio::test]
async fn a_store_without_sync_is_found_out() {
    let disk = SimDisk::default();
    let store = open(&disk, &Clock::new());
    before(&store).await;
    disk.switch(|switches| switches.lying_sync = true);
    for number in 0..CHANGES {
        change(&store, number).await;
    }
    let acknowledged = prints(&store).await;
    let honest = disk.image();
    drop(store);
    let store = open(&honest.after_power_cut(0, |_, byte| byte), &Clock::new());
    assert_ne!(prints(&store).await, acknowledged, "a store without sync must lose what it acknowledged");
}

/// An acknowledged deletion survives a power cut right after it.
#[tokio::test]
async fn what_was_deleted_stays_deleted() {
    let disk = SimDisk::default();
    let store = open(&disk, &Clock::new());
    before(&store).await;
    store.delete(name("doomed")).await.unwrap();
    store.compact().unwrap();
    store.delete(name("b")).await.unwrap();
    store.checkpoint().unwrap();
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &Clock::new());
    for id in ["doomed", "b"] {
        assert!(matches!(store.head(&name(id)), Err(Error::NotFound(_))), "{id}");
    }
}

/// A checkpoint or a compaction that is cut at any sync changes nothing.
#[tokio::test]
async fn maintenance_can_lose_power_at_any_sync() {
    let mut points = 0;
    loop {
        let disk = SimDisk::default();
        let store = open(&disk, &Clock::new());
        before(&store).await;
        let expected = prints(&store).await;
        disk.switch(|switches| switches.remember = true);
        let mut images = Vec::new();
        store.compact().unwrap();
        images.push(disk.before_sync());
        store.append(name("b"), bytes(b"more")).await.unwrap();
        store.checkpoint().unwrap();
        images.push(disk.before_sync());
        for (position, image) in images.iter().enumerate() {
            for kept in [0, image.unsynced() / 2, image.unsynced()] {
                let store = open(&image.after_power_cut(kept, |_, byte| byte), &Clock::new());
                let mut found = prints(&store).await;
                if position == 1 {
                    found.get_mut("b").unwrap().as_mut().unwrap().messages.pop();
                }
                assert_eq!(found, expected, "image {position}, {kept} bytes kept");
            }
        }
        points += 1;
        if points == 2 {
            return;
        }
    }
}
