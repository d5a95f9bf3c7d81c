//! S04: several nodes on one log of commits. Random histories in which any node writes at any time, with errors before
//! and after a commit, nodes that fall behind, crash or lose their cache: every node is the model. A log that does not
//! do what it must is caught.

use std::panic::AssertUnwindSafe;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, TestRunner};
use towpath_model::stream::offset::Start;
use towpath_streams::embedded::disk::Disk;
use towpath_streams::{Append, Error, FanOut, IntakeBatch, IntakeMessage, Store, Subscribe};

use crate::histories::{Event, Pair, shared_event};
use crate::memory_log::{Broken, Fault, MemoryLog};
use crate::sim::SimDisk;
use crate::support::*;

/// What happens to a cluster.
#[derive(Debug, Clone)]
enum Happening {
    /// A node does something. Which one changes at random, so owners change all the time and others fall behind.
    On(u8, Event),
    /// The next call of the log fails, before or after it took effect.
    Fail(Fault),
    /// A node loses its power, and so many of 256 parts of what it had not synced.
    Crash(u8, u8),
    /// A node comes back with an empty disk.
    LoseCache(u8),
}

const NODES: u8 = 3;

fn happening() -> impl Strategy<Value = Happening> {
    let node = 0..NODES;
    prop_oneof![
        30 => (node.clone(), shared_event()).prop_map(|(node, event)| Happening::On(node, event)),
        3 => prop_oneof![Just(Fault::Before), Just(Fault::After)].prop_map(Happening::Fail),
        1 => (node.clone(), any::<u8>()).prop_map(|(node, kept)| Happening::Crash(node, kept)),
        1 => node.prop_map(Happening::LoseCache),
    ]
}

/// One model, and several nodes that must all be it.
struct Cluster {
    pair: Pair,
    nodes: Vec<(SimDisk, towpath_streams::embedded::Embedded)>,
    log: MemoryLog,
}

impl Cluster {
    fn new(log: MemoryLog) -> Cluster {
        let pair = Pair::shared(&log);
        let open = |_| {
            let disk = SimDisk::default();
            let store = open_shared(&disk, &pair.clock, &log);
            (disk, store)
        };
        let nodes = (0..NODES).map(open).collect();
        Cluster { pair, nodes, log }
    }

    /// Lets the pair use a node.
    fn turn_to(&mut self, node: u8) {
        let (disk, store) = self.nodes[usize::from(node)].clone();
        (self.pair.disk, self.pair.store) = (disk, store);
    }

    async fn live_through(&mut self, happening: &Happening) {
        match happening {
            Happening::On(node, event) => {
                self.turn_to(*node);
                if !event.is_a_change() {
                    self.pair.store.fresh().await.unwrap();
                }
                self.pair.live_through(event).await;
            }
            Happening::Fail(fault) => self.log.fail_next(*fault),
            Happening::Crash(node, kept) => {
                let image = self.nodes[usize::from(*node)].0.image();
                let kept = image.unsynced() * usize::from(*kept) / 256;
                self.replace(*node, image.after_power_cut(kept, |_, byte| byte));
            }
            Happening::LoseCache(node) => self.replace(*node, SimDisk::default()),
        }
    }

    fn replace(&mut self, node: u8, disk: SimDisk) {
        self.log.repair();
        self.nodes[usize::from(node)].1.shut_down();
        let store = open_shared(&disk, &self.pair.clock, &self.log);
        self.nodes[usize::from(node)] = (disk, store);
    }

    async fn agree(&mut self) {
        self.log.repair();
        for node in 0..NODES {
            self.turn_to(node);
            self.pair.store.fresh().await.unwrap();
            self.pair.agree().await;
        }
    }
}

fn play(log: MemoryLog, happenings: &[Happening]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut cluster = Cluster::new(log);
        for happening in happenings {
            cluster.live_through(happening).await;
        }
        cluster.agree().await;
        // A node that knows nothing but the log is the model too.
        cluster.replace(0, SimDisk::default());
        cluster.agree().await;
        cluster.nodes.iter().for_each(|(_, store)| store.shut_down());
    });
}

/// As many as fit into ten seconds by default; more in a campaign.
fn cases() -> u32 {
    std::env::var("TOWPATH_STREAM_SHARED_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 500, ..ProptestConfig::default() })]

    /// S04: whatever happens to nodes and to the log, every node is the model.
    #[test]
    fn every_node_is_the_model(happenings in prop::collection::vec(happening(), 1..60)) {
        play(MemoryLog::default(), &happenings);
    }
}

/// How many of some histories a log does not survive.
fn caught(broken: Broken) -> usize {
    let mut runner = TestRunner::deterministic();
    let histories = prop::collection::vec(happening(), 40..60);
    let mut caught = 0;
    for _ in 0..12 {
        let history = histories.new_tree(&mut runner).unwrap().current();
        let played = std::panic::catch_unwind(AssertUnwindSafe(|| play(MemoryLog::broken(broken), &history)));
        caught += usize::from(played.is_err());
    }
    caught
}

/// S04: the simulation notices a log that answers before a commit exists.
#[test]
fn an_early_acknowledgement_is_caught() {
    assert!(caught(Broken::AcknowledgesFirst) > 0);
}

/// S04: and a lease that is taken for a fence: the owner's commit replaces another node's.
#[test]
fn a_lease_as_a_fence_is_caught() {
    assert!(caught(Broken::TrustsItsOwner) > 0);
}

/// S04: and answers about the tail from a node that has not read the log.
#[test]
fn a_missing_barrier_is_caught() {
    assert!(caught(Broken::ShowsNothing) > 0);
}

/// A log loses acknowledged commits, and its node goes on. True if somebody noticed.
async fn loss_is_noticed(log: MemoryLog) -> bool {
    let (clock, disk) = (Clock::new(), SimDisk::default());
    let store = open_shared(&disk, &clock, &log);
    store.create(name("a"), plain()).await.unwrap();
    for text in [b"one", b"two"] {
        store.append(name("a"), bytes(text)).await.unwrap();
    }
    log.lose(2);
    let said = store.append(name("a"), bytes(b"three")).await;
    let other = open_shared(&SimDisk::default(), &clock, &log);
    let is_refused = matches!(said, Err(Error::Poisoned(_)));
    // The barrier of a node that has more than the log must not claim to be fresh either.
    is_refused && store.fresh().await.is_err() && other.fresh().await.is_ok()
}

/// S04: a database that lost commits is noticed by the chain; without it, it is not.
#[test]
fn lost_commits_are_noticed_by_the_chain() {
    let is_noticed = |log: MemoryLog| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(loss_is_noticed(log))
    };
    assert!(is_noticed(MemoryLog::default()));
    let broken = std::panic::catch_unwind(|| is_noticed(MemoryLog::broken(Broken::HasNoChain)));
    assert!(!matches!(broken, Ok(true)), "without a chain the node goes on behind a hole");
}

/// S04: after a loss, a restart drops the cache and the node is what the log says.
#[tokio::test]
async fn a_cache_that_is_not_part_of_the_log_is_dropped() {
    let (log, clock, disk) = (MemoryLog::default(), Clock::new(), SimDisk::default());
    let store = open_shared(&disk, &clock, &log);
    store.create(name("a"), plain()).await.unwrap();
    store.append(name("a"), bytes(b"kept")).await.unwrap();
    store.append(name("a"), bytes(b"lost")).await.unwrap();
    store.shut_down();
    log.lose(1);
    let other = open_shared(&SimDisk::default(), &clock, &log);
    other.append(name("a"), bytes(b"new")).await.unwrap();
    let store = open_shared(&disk, &clock, &log);
    assert_eq!(read_all(&store, "a", 100).await.unwrap(), [b"kept".to_vec(), b"new".to_vec()]);
}

/// S04: a cache with a hole is read again from the log.
#[tokio::test]
async fn a_cache_with_a_missing_or_damaged_file_is_read_again() {
    let (log, clock, disk) = (MemoryLog::default(), Clock::new(), SimDisk::default());
    let store = open_shared(&disk, &clock, &log);
    store.create(name("a"), plain()).await.unwrap();
    let mut expected = Vec::new();
    for number in 0..200u8 {
        store.append(name("a"), bytes(&[number; 60])).await.unwrap();
        expected.push(vec![number; 60]);
    }
    store.checkpoint().unwrap();
    store.shut_down();
    let files: Vec<String> = disk.names().unwrap().into_iter().filter(|name| name != "VERSION").collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let image = disk.image();
        let holed = image.after_power_cut(usize::MAX, |_, byte| byte);
        holed.remove(&file).unwrap();
        let at = (disk.open(&file).unwrap().len().unwrap() as usize - 1).min(70);
        let damaged = image.after_power_cut(usize::MAX, |_, byte| byte).image().flipped(&file, at);
        for disk in [holed, damaged] {
            let store = open_shared(&disk, &clock, &log);
            match read_all(&store, "a", 1 << 20).await {
                Ok(all) => assert_eq!(all, expected, "{file}"),
                // A block that is read long after the checkpoint: its checksum says that it is damaged.
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{file}: {error}"),
            }
            store.shut_down();
        }
    }
}

/// S04: an embedded store in the directory is not taken for a cache.
#[tokio::test]
async fn an_embedded_store_is_never_dropped_as_a_cache() {
    let (log, clock, disk) = (MemoryLog::default(), Clock::new(), SimDisk::default());
    let store = open(&disk, &clock);
    store.create(name("a"), plain()).await.unwrap();
    store.shut_down();
    assert!(matches!(try_open_shared(&disk, &clock, &log), Err(Error::Unsupported(_))));
    assert!(open(&disk, &clock).head(&name("a")).is_ok());
}

/// S04: three nodes append to the same streams at the same time; each append that was answered is there once, and all
/// nodes have the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nodes_that_write_at_once_lose_and_repeat_nothing() {
    const APPENDS: u64 = 60;
    let (log, clock) = (MemoryLog::default(), Clock::new());
    let nodes: Vec<_> = (0..3).map(|_| open_shared(&SimDisk::default(), &clock, &log)).collect();
    nodes[0].create(name("a"), plain()).await.unwrap();
    let writers = (0..12u64).map(|writer| {
        let store = nodes[writer as usize % 3].clone();
        let log = log.clone();
        tokio::spawn(async move {
            for number in 0..APPENDS {
                if number % 20 == writer {
                    log.fail_next(if writer.is_multiple_of(2) { Fault::Before } else { Fault::After });
                }
                let text = format!("{writer}:{number};");
                store.append(name("a"), bytes(text.as_bytes())).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    let mut all = Vec::new();
    for store in &nodes {
        store.fresh().await.unwrap();
        all.push(read_all(store, "a", 1 << 20).await.unwrap());
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
    let mut said: Vec<_> = all[0].iter().map(|it| String::from_utf8(it.clone()).unwrap()).collect();
    said.sort_unstable();
    let mut expected: Vec<_> =
        (0..12).flat_map(|writer| (0..APPENDS).map(move |number| format!("{writer}:{number};"))).collect();
    expected.sort_unstable();
    assert_eq!(said, expected);
    assert!(log.counts().1 > 0, "nodes met at a number");
}

/// S04: a live reader on one node gets what another node appends.
#[tokio::test]
async fn a_follower_gets_what_another_node_appends() {
    let (log, clock) = (MemoryLog::default(), Clock::new());
    let nodes: Vec<_> = (0..2).map(|_| open_shared(&SimDisk::default(), &clock, &log)).collect();
    nodes[0].create(name("a"), plain()).await.unwrap();
    let subscribe =
        Subscribe { session: name("session:1"), source: name("a"), ttl_seconds: 60, envelope: false };
    nodes[0].subscribe(subscribe).await.unwrap();
    nodes[1].fresh().await.unwrap();
    for id in ["a", "session:1"] {
        let mut follower = nodes[1].follow(&name(id), Start::Now).unwrap();
        nodes[0].publish(name("a"), bytes(b"hello"), FanOut::AT_ONCE).await.unwrap();
        match follower.next().await.unwrap() {
            towpath_streams::Step::Data { batch, .. } => assert_eq!(&batch.data()[..], b"hello"),
            step => panic!("{step:?}"),
        }
    }
}

/// S04: while the log does not answer, nothing is answered; what was asked is made once it is back.
#[tokio::test]
async fn an_append_waits_for_the_log_and_is_made_once() {
    let (log, clock) = (MemoryLog::default(), Clock::new());
    let store = open_shared(&SimDisk::default(), &clock, &log);
    store.create(name("a"), plain()).await.unwrap();
    for fault in [Fault::After, Fault::Before, Fault::Before, Fault::After] {
        log.fail_next(fault);
    }
    store.append(name("a"), bytes(b"x")).await.unwrap();
    assert_eq!(read_all(&store, "a", 100).await.unwrap(), [b"x".to_vec()]);
    assert_eq!(log.commits().len(), 2);
}

/// S04: a full disk stops a node, not the store: the commit is in the log, and the node catches up when there is room.
#[tokio::test]
async fn a_full_cache_loses_nothing() {
    let (log, clock, disk) = (MemoryLog::default(), Clock::new(), SimDisk::default());
    let store = open_shared(&disk, &clock, &log);
    store.create(name("a"), plain()).await.unwrap();
    disk.switch(|switches| switches.failing_write = true);
    store.append(name("a"), bytes(b"one")).await.unwrap();
    assert!(store.append(name("a"), bytes(b"two")).await.is_err(), "it cannot know what it decides about");
    assert!(store.fresh().await.is_err());
    disk.switch(|switches| switches.failing_write = false);
    store.append(name("a"), bytes(b"three")).await.unwrap();
    assert_eq!(read_all(&store, "a", 100).await.unwrap(), [b"one".to_vec(), b"three".to_vec()]);
}

fn batch(before: u64, ids: &[i64]) -> IntakeBatch {
    let message = |id: &i64| {
        let append: Append = bytes(format!("{id};").as_bytes());
        IntakeMessage { id: *id, name: name("a"), append }
    };
    IntakeBatch { before, messages: ids.iter().map(message).collect(), fan_out: FanOut::AT_ONCE }
}

/// S07: a batch that was read while another was taken in is refused, on the same node and on another one.
#[tokio::test]
async fn a_batch_is_taken_in_once() {
    let (log, clock) = (MemoryLog::default(), Clock::new());
    let nodes: Vec<_> = (0..2).map(|_| open_shared(&SimDisk::default(), &clock, &log)).collect();
    nodes[0].create(name("a"), plain()).await.unwrap();
    nodes[0].take_in(batch(0, &[1, 2])).await.unwrap();
    assert_eq!((nodes[0].noted().batch, nodes[0].noted().ids), (1, vec![1, 2]));
    assert!(matches!(nodes[1].take_in(batch(0, &[1, 2])).await, Err(Error::Busy(_))));
    nodes[1].take_in(batch(1, &[3])).await.unwrap();
    assert!(matches!(nodes[0].take_in(batch(1, &[3])).await, Err(Error::Busy(_))));
    nodes[0].fresh().await.unwrap();
    let all = read_all(&nodes[0], "a", 100).await.unwrap();
    assert_eq!(all, [b"1;".to_vec(), b"2;".to_vec(), b"3;".to_vec()]);
}

/// S07: what is refused is not noted, and a batch of nothing but refusals leaves the number as it is.
#[tokio::test]
async fn refused_messages_are_not_noted() {
    let clock = Clock::new();
    let store = open(&SimDisk::default(), &clock);
    let refused = store.take_in(batch(0, &[1])).await.unwrap();
    assert!(matches!(&refused[..], [Err(Error::NotFound(_))]));
    assert_eq!(store.noted().batch, 0);
    store.create(name("a"), plain()).await.unwrap();
    let mut mixed = batch(0, &[1, 2]);
    mixed.messages[0].name = name("missing");
    let said = store.take_in(mixed).await.unwrap();
    assert!(said[0].is_err() && said[1].is_ok());
    assert_eq!((store.noted().batch, store.noted().ids), (1, vec![2]));
}
