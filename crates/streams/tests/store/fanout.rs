//! Sessions and deliveries, one claim per test. Each of the ten defects of the original design has
//! its test here or in the server's tests.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::limits::FAN_OUT_BYTES;
use towpath_streams::{
    Append, Beyond, Error, FanOut, FanOutMode, Published, Retention, Step, Store, Subscribe, Subscribed,
    Watch,
};

use crate::sim::SimDisk;
use crate::support::*;

const INLINE: FanOut = FanOut { inline_max: 1_000, beyond: Beyond::Queue };
const LATER: FanOut = FanOut::LATER;
const NEVER: FanOut = FanOut { inline_max: 0, beyond: Beyond::Skip };

async fn with_sources(ids: &[&str]) -> (Embedded, SimDisk, Clock) {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let store = open(&disk, &clock);
    for id in ids {
        let mut create = plain();
        create.shape.content_type = Some(json());
        store.create(name(id), create).await.unwrap();
    }
    (store, disk, clock)
}

async fn subscribe(store: &Embedded, session: &str, source: &str) -> Subscribed {
    try_subscribe(store, session, source, false).await.unwrap()
}

async fn try_subscribe(
    store: &Embedded,
    session: &str,
    source: &str,
    envelope: bool,
) -> Result<Subscribed, Error> {
    let (session, source) = (name(session), name(source));
    store.subscribe(Subscribe { session, source, ttl_seconds: 60, envelope }).await
}

async fn publish(store: &Embedded, source: &str, data: &str, fan_out: FanOut) -> Published {
    store.publish(name(source), bytes(data.as_bytes()), fan_out).await.unwrap()
}

async fn drain(store: &Embedded, source: &str) -> u64 {
    let mut bytes = 0;
    loop {
        let step = store.fan_out(name(source)).await.unwrap();
        bytes += step.bytes;
        if step.lag_bytes == 0 {
            return bytes;
        }
    }
}

async fn held(store: &Embedded, session: &str) -> Vec<String> {
    let read = read_all(store, session, 30).await.unwrap();
    read.into_iter().map(|message| String::from_utf8(message).unwrap()).collect()
}

/// F05: messages that sessions wait for survive a trim of their source, even after a restart.
#[tokio::test]
async fn who_waits_keeps_what_was_trimmed_over_a_restart() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    try_subscribe(&store, "session:wrapped", "room", true).await.unwrap();
    publish(&store, "room", "1,", LATER).await;
    publish(&store, "room", "22,", LATER).await;
    store.trim(name("room"), Offset::new(2)).await.unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(drain(&store, "room").await, 5);
    let wrapped = held(&store, "session:wrapped").await;
    assert!(wrapped.len() == 2 && wrapped[0].ends_with("1},") && wrapped[1].ends_with("22},"), "{wrapped:?}");
}

/// F05, F11: a message reaches every session once, in one commit, and is stored once.
#[tokio::test]
async fn a_publish_reaches_every_session_in_one_commit() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    for number in 0..50 {
        assert!(subscribe(&store, &format!("session:{number}"), "room").await.is_new_session);
    }
    let (syncs, used) = (disk.syncs(), disk.used());
    let payload = format!("\"{}\",", "x".repeat(3_000));
    let published = publish(&store, "room", &payload, INLINE).await;
    assert_eq!((published.subscribers, published.mode), (50, FanOutMode::Inline));
    assert_eq!(disk.syncs(), syncs + 1, "one commit");
    assert!(disk.used() - used < 8_000, "stored once: {}", disk.used() - used);
    drop(store);
    let store = open(&disk, &clock);
    store.compact().unwrap();
    for number in 0..50 {
        assert_eq!(held(&store, &format!("session:{number}")).await, [payload.as_str()]);
    }
}

/// The cost of publishing: bytes, writes, commits, and sessions that pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    bytes: u64,
    writes: usize,
    commits: usize,
    pulls: u64,
}

const PUBLISHES: usize = 3_000;

/// Publishes in turn to the sources, each followed by all sessions. One segment holds everything, so
/// that only the publishes are counted.
async fn cost_of_publishing(sessions: usize, sources: &[&str], envelope: bool) -> Cost {
    let (disk, clock) = (SimDisk::default(), Clock::new());
    let roomy = Config { segment_bytes: 32 << 20, checkpoint_after_bytes: 1 << 30, ..config(&clock) };
    let store = Embedded::open_on(Arc::new(disk.clone()), roomy).unwrap();
    for source in sources {
        let mut create = plain();
        create.shape.content_type = Some(json());
        store.create(name(source), create).await.unwrap();
        let all = (0..sessions).map(|number| {
            let (session, source) = (name(&format!("session:{number}")), name(source));
            store.subscribe(Subscribe { session, source, ttl_seconds: 60, envelope })
        });
        futures_util::future::join_all(all).await.into_iter().for_each(|it| drop(it.unwrap()));
    }
    let all = FanOut::AT_ONCE;
    let count = || {
        let ((bytes, writes), commits) = (disk.written(), disk.syncs());
        Cost { bytes, writes, commits, pulls: store.session_counts().pulls }
    };
    let before = count();
    for number in 0..PUBLISHES {
        let published = publish(&store, sources[number % sources.len()], &format!("{number:9},"), all).await;
        assert_eq!((published.subscribers, published.mode), (sessions, FanOutMode::Inline));
    }
    let after = count();
    let last = read_all(&store, &format!("session:{}", sessions - 1), 1 << 20).await.unwrap();
    assert_eq!(last.len(), PUBLISHES);
    Cost {
        bytes: after.bytes - before.bytes,
        writes: after.writes - before.writes,
        commits: after.commits - before.commits,
        pulls: after.pulls - before.pulls,
    }
}

/// F11: publishing to 10,000 subscribers is the same work as to one: the same commits, writes and bytes;
/// and on average a publish makes at most eight sessions pull.
#[tokio::test]
async fn publishing_to_ten_thousand_costs_what_it_costs_to_one() {
    for (sources, envelope) in [(&["a"][..], false), (&["a", "b"], false), (&["a", "b"], true)] {
        let one = cost_of_publishing(1, sources, envelope).await;
        let many = cost_of_publishing(10_000, sources, envelope).await;
        let same = |cost: Cost| (cost.bytes, cost.writes, cost.commits);
        assert_eq!(same(many), same(one), "{sources:?}");
        assert_eq!(many.commits, PUBLISHES);
        assert!(many.pulls <= 8 * PUBLISHES as u64, "{many:?}");
    }
}

/// F05, defect 1: a session that joins late or comes back gets what is published from then on, and
/// is never refused.
#[tokio::test]
async fn late_joiners_and_returners_get_what_follows() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    subscribe(&store, "session:early", "room").await;
    publish(&store, "room", "1,", INLINE).await;
    let late = subscribe(&store, "session:late", "room").await;
    assert_eq!(late.start, Offset::new(2));
    publish(&store, "room", "2,", INLINE).await;
    assert!(store.unsubscribe(name("session:late"), name("room")).await.unwrap());
    assert!(!store.unsubscribe(name("session:late"), name("room")).await.unwrap());
    publish(&store, "room", "3,", INLINE).await;
    let back = subscribe(&store, "session:late", "room").await;
    assert!(back.is_new && !back.is_new_session);
    publish(&store, "room", "4,", INLINE).await;
    let again = subscribe(&store, "session:late", "room").await;
    assert!(!again.is_new && again.start == back.start);
    for store in [store, open(&disk.image().after_power_cut(0, |_, byte| byte), &clock)] {
        assert_eq!(held(&store, "session:early").await, ["1,", "2,", "3,", "4,"]);
        assert_eq!(held(&store, "session:late").await, ["2,", "4,"]);
    }
}

/// F03, defect 2: a message that is not delivered at once waits, even through a crash, and is
/// delivered once; only a skipped one is not.
#[tokio::test]
async fn what_is_queued_waits_and_arrives_once() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    subscribe(&store, "session:a", "room").await;
    assert_eq!(publish(&store, "room", "1,", LATER).await.mode, FanOutMode::Queued);
    store.append(name("room"), bytes(b"2,")).await.unwrap();
    assert!(held(&store, "session:a").await.is_empty());
    assert_eq!(store.fan_out_state(&name("room")).unwrap().lag_bytes(), 4);
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    assert_eq!(store.lagging(9).len(), 1, "it is known after a crash");
    // A session that joins now gets nothing of what the others wait for.
    subscribe(&store, "session:b", "room").await;
    assert_eq!(drain(&store, "room").await, 4);
    assert_eq!(drain(&store, "room").await, 0, "a second time delivers nothing");
    assert!(store.lagging(9).is_empty());
    assert_eq!(publish(&store, "room", "3,", NEVER).await.mode, FanOutMode::Skipped);
    publish(&store, "room", "4,", LATER).await;
    // While a message waits, later ones wait too: the order is kept.
    publish(&store, "room", "5,", NEVER).await;
    assert_eq!(publish(&store, "room", "6,", INLINE).await.mode, FanOutMode::Inline);
    assert_eq!(held(&store, "session:a").await, ["1,", "2,", "4,", "5,", "6,"]);
    assert_eq!(held(&store, "session:b").await, ["4,", "5,", "6,"]);
}

/// F12: a session gets what was acknowledged while it followed, in order and once, even if it leaves
/// before the delivery: with and without envelopes, beside a session that starts in the middle of
/// what waits, through a crash, a trim and a compaction.
#[tokio::test]
async fn who_leaves_gets_what_was_published_before() {
    for envelope in [false, true] {
        let (store, disk, clock) = with_sources(&["room"]).await;
        try_subscribe(&store, "session:leaves", "room", envelope).await.unwrap();
        try_subscribe(&store, "session:stays", "room", !envelope).await.unwrap();
        let mut sent = Vec::new();
        for number in 100..300 {
            sent.push(format!("{number},"));
            let published = publish(&store, "room", &sent[sent.len() - 1], LATER).await;
            assert_eq!(published.mode, FanOutMode::Queued);
            if number == 150 {
                try_subscribe(&store, "session:middle", "room", true).await.unwrap();
            }
        }
        store.trim(name("room"), Offset::new(400)).await.unwrap();
        assert!(store.unsubscribe(name("session:leaves"), name("room")).await.unwrap());
        publish(&store, "room", "0,", LATER).await;
        try_subscribe(&store, "session:leaves", "room", !envelope).await.unwrap();
        publish(&store, "room", "7,", LATER).await;
        assert!(store.unsubscribe(name("session:leaves"), name("room")).await.unwrap());
        store.compact().unwrap();
        for store in [store, open(&disk.image().after_power_cut(0, |_, byte| byte), &clock)] {
            let is_of = |holds: &[String], sent: &[String]| {
                let ends = |(held, sent): (&String, &String)| {
                    let value = sent.trim_end_matches(',');
                    held == sent || held.ends_with(&format!("\"data\":{value}}},"))
                };
                holds.len() == sent.len() && holds.iter().zip(sent).all(ends)
            };
            let stays: Vec<String> = sent.iter().cloned().chain(["0,".into(), "7,".into()]).collect();
            let leaves: Vec<String> = sent.iter().cloned().chain(["7,".into()]).collect();
            let held = [
                held(&store, "session:leaves").await,
                held(&store, "session:stays").await,
                held(&store, "session:middle").await,
            ];
            assert!(is_of(&held[0], &leaves), "{:?}", held[0]);
            assert!(is_of(&held[1], &stays), "{:?}", held[1]);
            assert!(is_of(&held[2], &stays[51..]), "{:?}", held[2]);
        }
    }
}

/// F12: a source that is deleted, expires or is created again first delivers what waits.
#[tokio::test]
async fn a_source_that_ends_delivers_what_waits() {
    for envelope in [false, true] {
        let (store, disk, clock) = with_sources(&["deleted"]).await;
        for id in ["expired", "renewed"] {
            let mut create = sliding(5);
            create.shape.content_type = Some(json());
            store.create(name(id), create).await.unwrap();
        }
        for id in ["deleted", "expired", "renewed"] {
            try_subscribe(&store, "session:a", id, envelope).await.unwrap();
            publish(&store, id, &format!("\"{id}\","), LATER).await;
        }
        store.delete(name("deleted")).await.unwrap();
        clock.advance_millis(6_000);
        assert!(store.create(name("renewed"), plain()).await.unwrap().is_new);
        assert_eq!(store.keep().unwrap(), 1);
        assert!(store.lagging(9).is_empty());
        for store in [store, open(&disk.image().after_power_cut(0, |_, byte| byte), &clock)] {
            let held = held(&store, "session:a").await;
            let ends = ["\"deleted\"", "\"renewed\"", "\"expired\""];
            let data = |text: &str| text.trim_end_matches([',', '}']).to_owned();
            assert!(
                held.len() == 3 && held.iter().zip(ends).all(|(it, end)| data(it).ends_with(end)),
                "{held:?}"
            );
            assert!(store.session(&name("session:a")).unwrap().subscriptions.is_empty());
        }
    }
}

/// F12: what is too much for one commit is delivered step by step before the session leaves.
#[tokio::test]
async fn who_leaves_behind_much_gets_all_of_it() {
    let (store, ..) = with_sources(&["room"]).await;
    try_subscribe(&store, "session:a", "room", true).await.unwrap();
    let large = format!("\"{}\",", "x".repeat(90_000));
    for _ in 0..10 {
        publish(&store, "room", &large, LATER).await;
    }
    let state = store.fan_out_state(&name("room")).unwrap();
    assert!(state.lag_bytes() > 3 * FAN_OUT_BYTES as u64, "several steps");
    store.unsubscribe(name("session:a"), name("room")).await.unwrap();
    assert_eq!(read_all(&store, "session:a", 1 << 20).await.unwrap().len(), 10);
    try_subscribe(&store, "session:a", "room", true).await.unwrap();
    for _ in 0..10 {
        publish(&store, "room", &large, LATER).await;
    }
    store.delete(name("room")).await.unwrap();
    assert_eq!(read_all(&store, "session:a", 1 << 20).await.unwrap().len(), 20);
}

/// Defect 5: values of several sources can be distinguished, and keep the order of their delivery.
#[tokio::test]
async fn envelopes_say_where_a_value_comes_from() {
    let (store, disk, clock) = with_sources(&["a", "b"]).await;
    publish(&store, "a", "0,", INLINE).await;
    try_subscribe(&store, "session:s", "a", true).await.unwrap();
    try_subscribe(&store, "session:s", "b", true).await.unwrap();
    for round in 1..=20 {
        publish(&store, "a", &format!("{round},"), INLINE).await;
        publish(&store, "b", &format!("{{\"n\":{round}}},"), if round % 3 == 0 { LATER } else { INLINE })
            .await;
        // A session with envelopes that starts in the middle of what waits.
        if round == 9 {
            try_subscribe(&store, "session:late", "b", true).await.unwrap();
        }
        if round % 4 == 0 {
            drain(&store, "b").await;
            store.maintain().unwrap();
        }
    }
    let expected = held(&store, "session:s").await;
    assert_eq!(expected.len(), 40);
    let first = r#"{"stream":"a","offset":"0000000000000000_0000000000000004","data":1},"#;
    assert_eq!(expected[0], first);
    let of_b: Vec<&String> = expected.iter().filter(|it| it.contains(r#""stream":"b""#)).collect();
    let late = held(&store, "session:late").await;
    assert_eq!(late.iter().collect::<Vec<_>>(), of_b[9..], "from round 10 on");
    store.compact().unwrap();
    assert_eq!(held(&store, "session:s").await, expected);
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    assert_eq!(held(&store, "session:s").await, expected, "the order is the same after a crash");
    assert_eq!(held(&store, "session:late").await, late);
}

/// F07: a stream that cannot be followed is refused with a reason, and nothing is left of a new session.
#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let (store, ..) = with_sources(&["room"]).await;
    store.create(name("bytes"), plain()).await.unwrap();
    store.create(name("session:taken"), plain()).await.unwrap();
    let missing = try_subscribe(&store, "session:a", "nowhere", false).await;
    assert!(matches!(missing, Err(Error::NotFound(name)) if &*name.id == "nowhere"));
    let refused = |result: Result<Subscribed, Error>, word: &str| {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::CannotFollow { why, .. } if why.contains(word)), "{error}");
    };
    refused(try_subscribe(&store, "session:a", "bytes", true).await, "JSON");
    assert!(matches!(store.head(&name("session:a")), Err(Error::NotFound(_))), "nothing is left behind");
    subscribe(&store, "session:a", "room").await;
    refused(try_subscribe(&store, "session:a", "bytes", false).await, "content types");
    refused(try_subscribe(&store, "session:a", "room", true).await, "envelope setting");
    refused(try_subscribe(&store, "session:b", "session:a", false).await, "a session's stream");
    refused(try_subscribe(&store, "session:taken", "room", false).await, "ordinary stream");
}

/// Defect 6: only its subscriptions write to a session's stream.
#[tokio::test]
async fn a_session_is_written_by_its_subscriptions_alone() {
    let (store, ..) = with_sources(&["room"]).await;
    subscribe(&store, "session:a", "room").await;
    let append = store.append(name("session:a"), bytes(b"1,")).await;
    assert!(matches!(append, Err(Error::ReadOnly(_))));
    let close = Append { close: true, ..Append::default() };
    assert!(matches!(store.append(name("session:a"), close).await, Err(Error::ReadOnly(_))));
    assert!(matches!(store.publish(name("session:a"), bytes(b"1,"), INLINE).await, Err(Error::ReadOnly(_))));
    let forked = store.create(name("f"), fork("session:a", None, 0)).await;
    assert!(matches!(forked, Err(Error::ForkPoint { .. })));
}

/// F06, F08, defect 4: the subscriptions of a session end when it is deleted or expires; deliveries
/// do not renew its life, reading and touching do.
#[tokio::test]
async fn a_session_ends_with_its_subscriptions() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    for id in ["session:deleted", "session:dead", "session:read", "session:touched"] {
        subscribe(&store, id, "room").await;
    }
    store.delete(name("session:deleted")).await.unwrap();
    assert_eq!(publish(&store, "room", "1,", INLINE).await.subscribers, 3);
    clock.advance_millis(40_000);
    held(&store, "session:read").await;
    store.touch(&name("session:touched")).unwrap();
    publish(&store, "room", "2,", INLINE).await;
    clock.advance_millis(40_000);
    assert_eq!(store.keep().unwrap(), 1);
    assert_eq!(store.fan_out_state(&name("room")).unwrap().subscribers, 2);
    let counts = store.session_counts();
    assert_eq!((counts.sessions, counts.created, counts.deleted, counts.expired), (2, 4, 1, 1));
    assert_eq!(counts.subscriptions_removed, 2);
    let again = subscribe(&store, "session:dead", "room").await;
    assert!(again.is_new_session, "a new life");
    assert!(held(&store, "session:dead").await.is_empty());
    drop(store);
    let store = open(&disk, &clock);
    assert_eq!(store.fan_out_state(&name("room")).unwrap().subscribers, 3);
    assert_eq!(store.session_counts().sessions, 3);
    assert!(matches!(store.session(&name("session:deleted")), Err(Error::NotFound(_))));
}

/// When a source ends, so do the subscriptions to it; delivered messages stay readable as long as the
/// session exists, and no longer.
#[tokio::test]
async fn a_source_ends_and_its_sessions_keep_what_they_got() {
    let (store, disk, clock) = with_sources(&["room", "other"]).await;
    subscribe(&store, "session:a", "room").await;
    try_subscribe(&store, "session:b", "room", true).await.unwrap();
    subscribe(&store, "session:a", "other").await;
    publish(&store, "room", "1,", INLINE).await;
    publish(&store, "other", "2,", INLINE).await;
    publish(&store, "room", "3,", INLINE).await;
    let wrapped = held(&store, "session:b").await;
    store.delete(name("room")).await.unwrap();
    assert!(matches!(store.head(&name("room")), Err(Error::NotFound(_))));
    // The name is free at once, and the new stream has no subscribers.
    let mut create = plain();
    create.shape.content_type = Some(json());
    assert!(store.create(name("room"), create).await.unwrap().is_new);
    assert_eq!(publish(&store, "room", "4,", INLINE).await.subscribers, 0);
    let follows = store.session(&name("session:a")).unwrap().subscriptions;
    assert_eq!(follows.iter().map(|it| &*it.source.id).collect::<Vec<_>>(), ["other"]);
    store.compact().unwrap();
    for store in [store.clone(), open(&disk.image().after_power_cut(0, |_, byte| byte), &clock)] {
        assert_eq!(held(&store, "session:a").await, ["1,", "2,", "3,"]);
        assert_eq!(held(&store, "session:b").await, wrapped);
        assert_eq!(store.list(all_of_it()).await.unwrap().len(), 4, "no hidden stream is listed");
    }
    let streams = store.status().streams;
    store.delete(name("session:a")).await.unwrap();
    store.delete(name("session:b")).await.unwrap();
    assert_eq!(store.status().streams, streams - 4, "sessions, source and envelopes are gone");
}

fn all_of_it() -> towpath_streams::List {
    towpath_streams::List { project: "test".into(), prefix: String::new(), after: None, limit: 99 }
}

/// Retention of a source drops nothing that a session holds, and everything once the session ends.
#[tokio::test]
async fn retention_waits_for_sessions() {
    let (store, disk, clock) = with_sources(&["room"]).await;
    let big = format!("\"{}\",", "y".repeat(1_000));
    publish(&store, "room", &big, INLINE).await;
    subscribe(&store, "session:a", "room").await;
    for _ in 0..20 {
        publish(&store, "room", &big, INLINE).await;
    }
    try_subscribe(&store, "session:e", "room", true).await.unwrap();
    publish(&store, "room", &big, LATER).await;
    store.retain(name("room"), Retention { bytes: Some(10), age_seconds: None }.into()).await.unwrap();
    store.keep().unwrap();
    store.compact().unwrap();
    assert!(matches!(
        store.read(&name("room"), Start::At(Offset::ZERO), 99).await,
        Err(Error::Trimmed { .. })
    ));
    drain(&store, "room").await;
    assert_eq!(held(&store, "session:e").await.len(), 1, "what waited was not dropped");
    assert_eq!(held(&store, "session:a").await.len(), 21);
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    assert_eq!(held(&store, "session:a").await.len(), 21);
    let used = disk.used();
    drop(store);
    let store = open(&disk, &clock);
    store.delete(name("session:a")).await.unwrap();
    store.delete(name("session:e")).await.unwrap();
    store.compact().unwrap();
    assert!(disk.used() + 15_000 < used, "{} of {used}", disk.used());
}

/// F08: deliveries, inline or queued, wake live readers of a session, who get every message once and
/// in order; what is not in memory is read from the disk.
#[tokio::test]
async fn a_followed_session_gets_deliveries() {
    let (store, ..) = with_sources(&["a", "b"]).await;
    subscribe(&store, "session:s", "a").await;
    publish(&store, "a", "1,", INLINE).await;
    let mut follower = store.follow(&name("session:s"), Start::Beginning).unwrap();
    subscribe(&store, "session:s", "b").await;
    let mut received = Vec::new();
    for round in 2..40 {
        let source = if round % 2 == 0 { "a" } else { "b" };
        let fan_out = if round % 5 == 0 { LATER } else { INLINE };
        publish(&store, source, &format!("{round},"), fan_out).await;
        if round % 3 == 0 {
            drain(&store, "a").await;
            drain(&store, "b").await;
            while received.len() < round {
                let Step::Data { batch, .. } = follower.next().await.unwrap() else { panic!("data follows") };
                received.extend(batch.messages().map(|message| String::from_utf8(message.to_vec()).unwrap()));
            }
        }
    }
    assert_eq!(received, held(&store, "session:s").await);
    store.unsubscribe(name("session:s"), name("a")).await.unwrap();
    publish(&store, "a", "no,", INLINE).await;
    store.delete(name("session:s")).await.unwrap();
    assert!(matches!(follower.next().await.unwrap(), Step::Gone));
}

/// F08: thousands of sessions that are created together share their syncs.
#[tokio::test]
async fn a_burst_of_sessions_is_few_commits() {
    let (store, disk, _) = with_sources(&["room"]).await;
    let before = disk.syncs();
    let all = (0..2_000).map(|number| {
        let (session, source) = (name(&format!("session:{number}")), name("room"));
        store.subscribe(Subscribe { session, source, ttl_seconds: 60, envelope: number % 2 == 0 })
    });
    for subscribed in futures_util::future::join_all(all).await {
        assert!(subscribed.unwrap().is_new_session);
    }
    assert!(disk.syncs() - before < 500, "{} syncs", disk.syncs() - before);
    assert_eq!(publish(&store, "room", "1,", LATER).await.subscribers, 2_000);
    let some = store.subscribers(&name("room"), Some("session:1997"), 5).unwrap();
    assert_eq!(
        some.iter().map(|(name, _)| &*name.id).collect::<Vec<_>>()[..2],
        ["session:1998", "session:1999"]
    );
    assert_eq!(store.sources("test", None, 9).len(), 1);
}

/// Small values are set, listed, and kept across a restart.
#[tokio::test]
async fn small_values_are_kept() {
    let (store, disk, clock) = with_sources(&[]).await;
    store.put_meta("project", "b", Some("2".into())).await.unwrap();
    store.put_meta("project", "a", Some("1".into())).await.unwrap();
    store.put_meta("projects", "a", Some("other".into())).await.unwrap();
    store.put_meta("project", "a", Some("3".into())).await.unwrap();
    store.checkpoint().unwrap();
    store.put_meta("project", "b", None).await.unwrap();
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    assert_eq!(store.list_meta("project"), [("a".to_owned(), Bytes::from("3"))]);
    assert_eq!(store.list_meta("projects"), [("a".to_owned(), Bytes::from("other"))]);
    let large = Bytes::from(vec![0; 70_000]);
    assert!(matches!(store.put_meta("project", "c", Some(large)).await, Err(Error::TooLarge(_))));
}

/// A watcher is notified of every change, and of deliveries if it wants them.
#[tokio::test]
async fn a_watcher_is_notified_of_everything() {
    struct Changes(Mutex<Vec<(String, u64)>>);
    impl Watch for Changes {
        fn changed(&self, name: &StreamName, tail: Offset, _: bool) {
            self.0.lock().unwrap().push((name.id.to_string(), tail.bytes()));
        }
        fn wants_sessions(&self, project: &str) -> bool {
            project == "test"
        }
    }
    let (store, ..) = with_sources(&["room"]).await;
    let changes = Arc::new(Changes(Mutex::default()));
    let watcher: Arc<dyn Watch> = changes.clone();
    store.watch(Arc::downgrade(&watcher));
    subscribe(&store, "session:a", "room").await;
    publish(&store, "room", "1,", INLINE).await;
    store.append(name("room"), bytes(b"2,")).await.unwrap();
    drain(&store, "room").await;
    store.delete(name("room")).await.unwrap();
    let received = changes.0.lock().unwrap().clone();
    let told = |id: &str, tail| (id.to_owned(), tail);
    let expected =
        [told("room", 2), told("session:a", 2), told("room", 4), told("session:a", 4), told("room", 4)];
    assert_eq!(received, expected);
}

/// A session may be in a checkpoint before it has pulled from its sources: their feeds must keep the
/// entries until the checkpoint is whole.
#[tokio::test]
async fn a_checkpoint_in_the_middle_of_deliveries_loses_none() {
    let (store, disk, clock) = with_sources(&["before"]).await;
    // So long that the checkpoint is written once it has the session, before the other source.
    let session = format!("session:{}", "s".repeat(490));
    subscribe(&store, &session, "before").await;
    let mut create = plain();
    create.shape.content_type = Some(json());
    store.create(name("behind"), create).await.unwrap();
    subscribe(&store, &session, "behind").await;
    disk.switch(|switches| switches.checkpoint_writes = Some(1));
    let checkpoint = std::thread::spawn({
        let store = store.clone();
        move || store.checkpoint()
    });
    disk.wait_for_checkpoint(|| checkpoint.is_finished());
    assert!(!checkpoint.is_finished(), "it waits in the middle");
    let mut expected = Vec::new();
    for number in 0..40 {
        let message = format!("{number},");
        publish(&store, if number % 2 == 0 { "before" } else { "behind" }, &message, INLINE).await;
        expected.push(message);
    }
    disk.switch(|switches| switches.checkpoint_writes = None);
    checkpoint.join().unwrap().unwrap();
    let store = open(&disk.image().after_power_cut(0, |_, byte| byte), &clock);
    assert!(store.recovery().replayed_records > 0, "the checkpoint counts, and the log behind it");
    assert_eq!(held(&store, &session).await, expected);
}
