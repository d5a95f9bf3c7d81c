//! The calls of the store, one claim per test.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::state::{Accepted, Refusal};
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Error, List, Retention, RetentionChange, Step, Store};

use crate::sim::SimDisk;
use crate::support::*;

async fn with_stream(id: &str) -> (Embedded, SimDisk, Clock) {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name(id), plain()).await.unwrap();
    (store, disk, clock)
}

/// S05: appended messages are read in order, with their boundaries, in pages of any size.
#[tokio::test]
async fn reads_give_back_what_appends_gave() {
    let (store, ..) = with_stream("a").await;
    for count in 1..100usize {
        let parts: Vec<Vec<u8>> = (0..count % 5 + 1).map(|part| vec![part as u8 + 1; count]).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let append = Append { messages: messages(&parts), ..Append::default() };
        store.append(name("a"), append).await.unwrap();
    }
    let whole = read_all(&store, "a", usize::MAX).await.unwrap();
    assert_eq!(whole.len(), (1..100).map(|count| count % 5 + 1).sum::<usize>());
    for page in [1, 7, 100, 1000] {
        assert_eq!(read_all(&store, "a", page).await.unwrap(), whole);
    }
}

#[tokio::test]
async fn creating_again_is_the_same_or_a_conflict() {
    let (store, ..) = with_stream("a").await;
    assert!(!store.create(name("a"), plain()).await.unwrap().is_new);
    let other = store.create(name("a"), sliding(60)).await;
    assert!(matches!(other, Err(Error::Conflict { .. })), "{other:?}");
}

#[tokio::test]
async fn a_stream_that_is_not_there_is_not_found() {
    let (store, ..) = with_stream("a").await;
    assert!(matches!(store.append(name("b"), bytes(b"x")).await, Err(Error::NotFound(_))));
    assert!(matches!(store.head(&name("b")), Err(Error::NotFound(_))));
    assert!(matches!(store.delete(name("b")).await, Err(Error::NotFound(_))));
    store.delete(name("a")).await.unwrap();
    assert!(matches!(store.delete(name("a")).await, Err(Error::NotFound(_))));
}

/// Producers are fenced and duplicates are found, even after a restart.
#[tokio::test]
async fn producers_survive_a_restart() {
    let (store, disk, clock) = with_stream("a").await;
    store.append(name("a"), produced(b"one", "p", 1, 0)).await.unwrap();
    store.append(name("a"), produced(b"two", "p", 1, 1)).await.unwrap();
    drop(store);
    let store = open(&disk, &clock);
    let again = store.append(name("a"), produced(b"two", "p", 1, 1)).await.unwrap();
    assert!(again.is_duplicate);
    assert_eq!(again.producer, Some(Accepted { epoch: 1, seq: 1 }));
    let stale = store.append(name("a"), produced(b"old", "p", 0, 5)).await;
    let refusal = Refusal::StaleEpoch { current_epoch: 1 };
    assert!(matches!(stale, Err(Error::Refused { refusal: it, .. }) if it == refusal), "{stale:?}");
    assert_eq!(read_all(&store, "a", 100).await.unwrap(), [b"one", b"two"]);
}

#[tokio::test]
async fn an_expected_tail_is_compared_inside_the_commit() {
    let (store, ..) = with_stream("a").await;
    let at_zero = |data: &[u8]| Append { expected_tail: Some(Offset::ZERO), ..bytes(data) };
    let both =
        tokio::join!(store.append(name("a"), at_zero(b"first")), store.append(name("a"), at_zero(b"second")));
    assert!(both.0.is_ok());
    let refused = both.1.unwrap_err();
    assert!(
        matches!(refused, Error::Refused { refusal: Refusal::TailMoved, tail, .. } if tail == Offset::new(5)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_end_is_remembered_with_who_ended_it() {
    let (store, disk, clock) = with_stream("a").await;
    let last = Append { close: true, ..produced(b"bye", "p", 0, 0) };
    assert!(store.append(name("a"), last.clone()).await.unwrap().closed);
    drop(store);
    let store = open(&disk, &clock);
    let again = store.append(name("a"), last).await.unwrap();
    assert!(again.is_duplicate && again.closed);
    let more = store.append(name("a"), bytes(b"more")).await;
    assert!(matches!(more, Err(Error::Refused { refusal: Refusal::Closed, closed: true, .. })), "{more:?}");
    let close = Append { close: true, ..Append::default() };
    assert!(store.append(name("a"), close).await.unwrap().is_duplicate);
}

#[tokio::test]
async fn a_batch_is_decided_one_by_one_in_one_commit() {
    let (store, disk, _) = with_stream("a").await;
    store.create(name("b"), plain()).await.unwrap();
    let before = disk.syncs();
    let answers = store
        .append_all(vec![
            (name("a"), bytes(b"1")),
            (name("missing"), bytes(b"2")),
            (name("b"), bytes(b"3")),
            (name("a"), bytes(b"4")),
        ])
        .await
        .unwrap();
    assert_eq!(disk.syncs(), before + 1);
    assert_eq!(answers[3].as_ref().unwrap().tail, Offset::new(2));
    assert!(matches!(answers[1], Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_fork_reads_its_source_and_goes_its_own_way() {
    let (store, disk, clock) = with_stream("a").await;
    store.append(name("a"), bytes(b"hello")).await.unwrap();
    store.append(name("a"), bytes(b"world")).await.unwrap();
    let created = store.create(name("f"), fork("a", Some(5), 2)).await.unwrap();
    assert_eq!(created.head.tail, Offset::new(7));
    assert!(!store.create(name("f"), fork("a", Some(5), 2)).await.unwrap().is_new);
    store.append(name("f"), bytes(b"!")).await.unwrap();
    store.append(name("a"), bytes(b"more")).await.unwrap();
    let (mut store, mut round) = (store, 0);
    while round < 3 {
        let read = read_all(&store, "f", 4).await.unwrap().concat();
        assert_eq!(read, b"hellowo!", "round {round}");
        store.compact().unwrap();
        drop(store);
        store = open(&disk, &clock);
        round += 1;
    }
    let beyond = store.create(name("g"), fork("a", Some(99), 0)).await;
    assert!(matches!(beyond, Err(Error::ForkPoint { .. })), "{beyond:?}");
    let beyond = store.create(name("g"), fork("a", Some(5), 6)).await;
    assert!(matches!(beyond, Err(Error::ForkPoint { .. })), "{beyond:?}");
}

#[tokio::test]
async fn a_sub_offset_of_a_json_fork_counts_messages() {
    let (store, ..) = with_stream("x").await;
    let mut create = plain();
    create.shape.content_type = Some(json());
    store.create(name("j"), create).await.unwrap();
    for _ in 0..3 {
        let append = Append { messages: messages(&[b"{}", b"[1]", b"2"]), ..Append::default() };
        store.append(name("j"), append).await.unwrap();
    }
    store.create(name("f"), fork("j", Some(0), 4)).await.unwrap();
    assert_eq!(read_all(&store, "f", 1).await.unwrap(), [&b"{}"[..], b"[1]", b"2", b"{}"]);
    let inside = store.create(name("g"), fork("j", Some(1), 0)).await;
    assert!(matches!(inside, Err(Error::ForkPoint { .. })), "{inside:?}");
    let beyond = store.create(name("g"), fork("j", Some(0), 10)).await;
    assert!(matches!(beyond, Err(Error::ForkPoint { .. })), "{beyond:?}");
}

#[tokio::test]
async fn a_deleted_source_lives_on_until_its_forks_are_gone() {
    let (store, disk, clock) = with_stream("a").await;
    store.append(name("a"), bytes(b"data")).await.unwrap();
    store.create(name("f"), fork("a", None, 0)).await.unwrap();
    store.create(name("g"), fork("f", None, 0)).await.unwrap();
    store.delete(name("a")).await.unwrap();
    store.delete(name("f")).await.unwrap();
    drop(store);
    let store = open(&disk, &clock);
    assert!(matches!(store.head(&name("a")), Err(Error::Deleted(_))));
    assert!(matches!(store.create(name("a"), plain()).await, Err(Error::Conflict { .. })));
    assert!(matches!(store.create(name("h"), fork("a", None, 0)).await, Err(Error::Conflict { .. })));
    assert_eq!(read_all(&store, "g", 100).await.unwrap(), [b"data"]);
    store.delete(name("g")).await.unwrap();
    for gone in ["a", "f", "g"] {
        assert!(matches!(store.head(&name(gone)), Err(Error::NotFound(_))), "{gone}");
        assert!(store.create(name(gone), plain()).await.unwrap().is_new);
    }
}

/// F08: reading a stream renews its life, `head` does not.
#[tokio::test]
async fn a_sliding_life_is_renewed_by_use() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), sliding(10)).await.unwrap();
    store.append(name("a"), bytes(b"x")).await.unwrap();
    for _ in 0..3 {
        clock.advance_millis(8_000);
        store.read(&name("a"), Start::Now, 10).await.unwrap();
    }
    clock.advance_millis(8_000);
    store.head(&name("a")).unwrap();
    // The keeper writes renewals by reading to the log.
    assert_eq!(store.keep().unwrap(), 0);
    drop(store);
    let store = open(&disk, &clock);
    store.head(&name("a")).unwrap();
    clock.advance_millis(2_000);
    assert!(matches!(store.head(&name("a")), Err(Error::NotFound(_))));
    assert_eq!(store.keep().unwrap(), 1);
    assert_eq!(store.status().streams, 0);
    assert!(store.create(name("a"), sliding(10)).await.unwrap().is_new);
    assert_eq!(read_all(&store, "a", 10).await.unwrap(), Vec::<Vec<u8>>::new());
}

/// The keeper can be called from a task any number of times; it once used up tokio's budget of polls.
#[tokio::test]
async fn the_keeper_works_inside_a_task() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), sliding(10)).await.unwrap();
    for _ in 0..300 {
        clock.advance_millis(2_000);
        store.touch(&name("a")).unwrap();
        assert_eq!(store.keep().unwrap(), 0);
    }
}

#[tokio::test]
async fn an_expired_name_can_be_taken_before_the_keeper_comes() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    store.create(name("a"), sliding(1)).await.unwrap();
    store.append(name("a"), bytes(b"old")).await.unwrap();
    clock.advance_millis(1_000);
    assert!(matches!(store.append(name("a"), bytes(b"x")).await, Err(Error::NotFound(_))));
    assert!(store.create(name("a"), plain()).await.unwrap().is_new);
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(store.head(&name("a")).unwrap().tail, Offset::ZERO);
}

#[tokio::test]
async fn an_expired_source_with_forks_is_deleted_not_forgotten() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    let mut short = sliding(1);
    short.messages = messages(&[b"data"]);
    store.create(name("a"), short).await.unwrap();
    let mut long = fork("a", None, 0);
    long.shape.expiry = Some(towpath_model::stream::expiry::Expiry::Sliding { seconds: 100 });
    store.create(name("f"), long).await.unwrap();
    clock.advance_millis(5_000);
    assert!(matches!(store.head(&name("a")), Err(Error::Deleted(_))));
    assert_eq!(store.keep().unwrap(), 1);
    assert!(matches!(store.head(&name("a")), Err(Error::Deleted(_))));
    assert_eq!(read_all(&store, "f", 10).await.unwrap(), [b"data"]);
}

#[tokio::test]
async fn retention_drops_the_oldest_data_at_a_boundary() {
    let (store, _, clock) = with_stream("a").await;
    store.retain(name("a"), Retention { bytes: Some(100), age_seconds: None }.into()).await.unwrap();
    for _ in 0..50 {
        let append = Append { messages: messages(&[b"12345", b"67890"]), ..Append::default() };
        store.append(name("a"), append).await.unwrap();
    }
    store.keep().unwrap();
    let head = store.head(&name("a")).unwrap();
    assert_eq!((head.start, head.tail), (Offset::new(400), Offset::new(500)));
    let gone = store.read(&name("a"), Start::At(Offset::new(0)), 10).await;
    assert!(matches!(gone, Err(Error::Trimmed { start, .. }) if start == Offset::new(400)), "{gone:?}");
    assert_eq!(read_all(&store, "a", 10).await.unwrap().len(), 20);
    store.retain(name("a"), Retention { bytes: None, age_seconds: Some(160) }.into()).await.unwrap();
    for _ in 0..20 {
        store.append(name("a"), bytes(b"1234567890")).await.unwrap();
        clock.advance_millis(20_000);
    }
    store.keep().unwrap();
    let kept = store.head(&name("a")).unwrap();
    let bytes = kept.tail.bytes() - kept.start.bytes();
    assert!((70..=90).contains(&bytes), "160 of 400 seconds are kept, a 16th more or less: {bytes}");
}

/// A limit that is set later counts for existing data, from that time on; data of a stream that
/// nobody appends to ages too, even across a restart; each limit changes without the other.
#[tokio::test]
async fn retention_can_be_changed_later() {
    let (store, disk, clock) = with_stream("a").await;
    store.append(name("a"), bytes(b"before")).await.unwrap();
    let age = |seconds| RetentionChange { age_seconds: Some(seconds), ..RetentionChange::default() };
    let size = |bytes| RetentionChange { bytes: Some(bytes), ..RetentionChange::default() };
    assert_eq!(store.head(&name("a")).unwrap().retention, Retention::default());
    let (by_age, by_size) =
        tokio::join!(store.retain(name("a"), age(Some(160))), store.retain(name("a"), size(Some(1_000))));
    by_age.and(by_size).unwrap();
    let both = Retention { age_seconds: Some(160), bytes: Some(1_000) };
    assert_eq!(store.head(&name("a")).unwrap().retention, both, "neither change undoes the other");
    clock.advance_millis(50_000);
    store.append(name("a"), bytes(b"after")).await.unwrap();
    let kept = async |store: &Embedded| {
        store.keep().unwrap();
        store.keep().unwrap();
        read_all(store, "a", 1_000).await.unwrap().concat()
    };
    assert_eq!(kept(&store).await, b"beforeafter");
    clock.advance_millis(111_000);
    assert_eq!(kept(&store).await, b"after", "what was there is 160 seconds older than its limit");
    drop(store);
    let store = open(&disk, &clock);
    clock.advance_millis(100_000);
    kept(&store).await;
    clock.advance_millis(160_000);
    assert_eq!(kept(&store).await, b"", "the last message ages though nobody appends");
    assert_eq!(store.retain(name("a"), age(None)).await.unwrap(), Retention { age_seconds: None, ..both });
    store.append(name("a"), bytes(b"forever")).await.unwrap();
    clock.advance_millis(1_000_000);
    assert_eq!(kept(&store).await, b"forever");
    let missing = store.retain(name("b"), age(None)).await;
    assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
}

#[tokio::test]
async fn trimmed_data_leaves_the_disk_and_forks_keep_theirs() {
    let (store, disk, clock) = with_stream("a").await;
    for _ in 0..40 {
        store.append(name("a"), bytes(&[7; 1000])).await.unwrap();
    }
    store.create(name("f"), fork("a", Some(20_000), 0)).await.unwrap();
    assert_eq!(store.trim(name("a"), Offset::new(30_500)).await.unwrap(), Offset::new(30_000));
    store.compact().unwrap();
    assert_eq!(read_all(&store, "f", 5_000).await.unwrap().len(), 20);
    store.delete(name("f")).await.unwrap();
    store.trim(name("a"), Offset::new(31_000)).await.unwrap();
    store.compact().unwrap();
    assert!(disk.used() < 20_000, "{} bytes are used", disk.used());
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(read_all(&store, "a", 5_000).await.unwrap().len(), 9);
}

#[tokio::test]
async fn streams_are_listed_by_prefix_in_order() {
    let (store, ..) = with_stream("b/1").await;
    for id in ["a", "b/3", "b/2", "c"] {
        store.create(name(id), plain()).await.unwrap();
    }
    store.delete(name("b/3")).await.unwrap();
    let list = |prefix: &str, after: Option<&str>, limit| List {
        project: "test".into(),
        prefix: prefix.into(),
        after: after.map(str::to_owned),
        limit,
    };
    let ids = |listed: Vec<_>| listed.into_iter().map(|(name, _): (_, _)| name).collect::<Vec<_>>();
    assert_eq!(ids(store.list(list("b/", None, 10)).await.unwrap()), [name("b/1"), name("b/2")]);
    assert_eq!(ids(store.list(list("", Some("a"), 2)).await.unwrap()), [name("b/1"), name("b/2")]);
    let other = List { project: "other".into(), ..list("", None, 10) };
    assert!(store.list(other).await.unwrap().is_empty());
    assert_eq!((store.count("test"), store.count("other")), (4, 0));
}

/// S05: a follower gets the bytes that a reader gets, and then the end.
#[tokio::test]
async fn a_follower_gets_everything_once_and_then_the_end() {
    let (store, ..) = with_stream("a").await;
    store.append(name("a"), bytes(b"before")).await.unwrap();
    let mut follower = store.follow(&name("a"), Start::Beginning).unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for number in 0..500u32 {
            writer.append(name("a"), bytes(format!("{number},").as_bytes())).await.unwrap();
        }
        let last = Append { close: true, ..bytes(b"last") };
        writer.append(name("a"), last).await.unwrap();
    });
    let mut received = Vec::new();
    let ended = loop {
        match follower.next().await.unwrap() {
            Step::Data { batch, closed, .. } => {
                assert_eq!(batch.start().bytes(), received.len() as u64);
                received.extend_from_slice(batch.data());
                assert!(!closed || received.ends_with(b"last"));
            }
            Step::Closed => break true,
            Step::Gone => break false,
        }
    };
    writing.await.unwrap();
    assert!(ended);
    assert_eq!(received, read_all(&store, "a", usize::MAX).await.unwrap().concat());
}

#[tokio::test]
async fn a_slow_follower_catches_up_from_the_disk() {
    let (store, ..) = with_stream("a").await;
    let mut follower = store.follow(&name("a"), Start::Now).unwrap();
    for number in 0..300u32 {
        store.append(name("a"), bytes(&[number as u8; 3000])).await.unwrap();
    }
    let mut received = 0;
    while received < 900_000 {
        let Step::Data { batch, .. } = follower.next().await.unwrap() else { panic!("no end in sight") };
        received += batch.data().len();
    }
    let nothing = tokio::time::timeout(Duration::from_millis(20), follower.next()).await;
    assert!(nothing.is_err(), "there is nothing more: {nothing:?}");
}

#[tokio::test]
async fn followers_are_told_that_a_stream_is_gone() {
    let (store, ..) = with_stream("a").await;
    let mut follower = store.follow(&name("a"), Start::Now).unwrap();
    let (next, deleted) = tokio::join!(follower.next(), store.delete(name("a")));
    deleted.unwrap();
    assert!(matches!(next.unwrap(), Step::Gone));
}

#[tokio::test]
async fn many_followers_share_one_batch() {
    let (store, ..) = with_stream("a").await;
    let mut followers: Vec<_> = (0..10).map(|_| store.follow(&name("a"), Start::Now).unwrap()).collect();
    store.append(name("a"), bytes(b"x")).await.unwrap();
    let mut batches = Vec::new();
    for follower in &mut followers {
        let Step::Data { batch, .. } = follower.next().await.unwrap() else { panic!("data was appended") };
        batches.push(batch);
    }
    assert!(batches.iter().all(|batch| Arc::ptr_eq(batch, &batches[0])));
}

/// A segment without live bytes is removed; it was once gathered again and again.
#[tokio::test]
async fn segments_without_life_are_dropped() {
    let (store, disk, _) = with_stream("a").await;
    for _ in 0..20 {
        store.append(name("a"), bytes(&[1; 1000])).await.unwrap();
    }
    store.compact().unwrap();
    store.delete(name("a")).await.unwrap();
    store.create(name("b"), plain()).await.unwrap();
    for _ in 0..4 {
        store.append(name("b"), bytes(&[1; 1500])).await.unwrap();
    }
    store.maintain().unwrap();
    store.compact().unwrap();
    assert!(disk.used() < 12_000, "{} bytes are used", disk.used());
    assert_eq!(read_all(&store, "b", 5_000).await.unwrap().len(), 4);
}

/// Compaction and checkpoints run beside appends, trims, deletions and readers, and every reader
/// gets the bytes of its own stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_beside_everything_changes_nothing() {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let maintainer = {
        let (store, stop) = (store.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut rounds = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || rounds < 3 {
                store.maintain().unwrap();
                store.compact().unwrap();
                std::thread::sleep(Duration::from_millis(1));
                rounds += 1;
            }
            rounds
        })
    };
    let tasks: Vec<_> = (0..8u8)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let id = format!("s{number}");
                store.create(name(&id), plain()).await.unwrap();
                let mut kept: Vec<Vec<u8>> = Vec::new();
                let (mut start, mut tail) = (0, 0u64);
                for round in 0..300u64 {
                    let message = vec![number; 1 + (round * 7 % 90) as usize];
                    tail += message.len() as u64;
                    store.append(name(&id), bytes(&message)).await.unwrap();
                    kept.push(message);
                    if round % 50 == 20 + u64::from(number) {
                        let cut = (start + tail) / 2;
                        start = store.trim(name(&id), Offset::new(cut)).await.unwrap().bytes();
                        let mut rest = tail - start;
                        let count = kept.iter().rev().take_while(|it| {
                            let fits = rest >= it.len() as u64;
                            rest = rest.saturating_sub(it.len() as u64);
                            fits
                        });
                        let count = count.count();
                        kept.drain(..kept.len() - count);
                    }
                    if round == 150 && number % 4 == 0 {
                        store.delete(name(&id)).await.unwrap();
                        store.create(name(&id), plain()).await.unwrap();
                        kept.clear();
                        (start, tail) = (0, 0);
                    }
                    if round % 10 == 0 {
                        assert_eq!(read_all(&store, &id, 200).await.unwrap(), kept, "{id} in round {round}");
                    }
                }
                (id, kept)
            })
        })
        .collect();
    let mut expected = Vec::new();
    for task in tasks {
        expected.push(task.await.unwrap());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(maintainer.join().unwrap() >= 3);
    drop(store);
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    for (id, kept) in expected {
        assert_eq!(read_all(&store, &id, 333).await.unwrap(), kept, "{id}");
    }
}

/// A real directory: locked, versioned, and the same after a restart with all threads.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_belongs_to_one_process_and_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { segment_bytes: 64 << 10, ..Config::new(directory.path()) };
    let store = Embedded::open(config.clone()).unwrap();
    assert!(matches!(Embedded::open(config.clone()), Err(Error::InUse(_))));
    for number in 0..20 {
        store.create(name(&format!("s{number}")), plain()).await.unwrap();
    }
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..50u8 {
                    store.append(name(&format!("s{number}")), bytes(&[round; 200])).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    store.shut_down();
    assert!(matches!(store.append(name("s1"), bytes(b"x")).await, Err(Error::ShutDown)));
    drop(store);
    let store = Embedded::open(config.clone()).unwrap();
    assert_eq!(store.recovery().replayed_records, 0, "a clean stop leaves a checkpoint");
    for number in 0..20 {
        let read = read_all(&store, &format!("s{number}"), 1000).await.unwrap();
        assert_eq!(read, (0..50u8).map(|round| vec![round; 200]).collect::<Vec<_>>());
    }
    drop(store);
    std::fs::write(directory.path().join("VERSION"), "towpath-streams 99\n").unwrap();
    assert!(matches!(Embedded::open(config), Err(Error::Unsupported(_))));
}
