//! S03: a process with 64 appenders is killed, again and again, in the same directory.
//!
//! The child is this test binary; a variable names its directory. It prints what was acknowledged;
//! the parent kills it and compares that with what the directory holds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_model::stream::state::Refusal;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Error, Store};

use crate::support::*;

const DIRECTORY: &str = "TOWPATH_STREAM_KILL_DIRECTORY";
/// The number of the child in its directory; process ids repeat.
const LIFE: &str = "TOWPATH_STREAM_KILL_LIFE";
const APPENDERS: u64 = 64;
const STREAMS: u64 = 16;
/// Kills in one directory.
const LIVES: usize = 5;

/// How often: a few times by default, more often in a campaign.
fn kills() -> u64 {
    std::env::var("TOWPATH_STREAM_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Small segments, so that sealing, gathering and checkpoints are killed too.
fn config(directory: &str) -> Config {
    Config { segment_bytes: 256 << 10, checkpoint_after_bytes: 512 << 10, ..Config::new(directory) }
}

fn stream_of(appender: u64) -> String {
    format!("s{}", appender % STREAMS)
}

/// The request a producer would have to send next.
async fn next_seq(store: &Embedded, appender: u64) -> u64 {
    let ask = produced(b"never", &format!("p{appender}"), 0, 1 << 40);
    match store.append(name(&stream_of(appender)), ask).await {
        Err(Error::Refused { refusal: Refusal::ProducerGap { expected, .. }, .. }) => expected,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let (mut appends, mut deletions) = (0, 0);
    // A few kills per directory: enough to recover what was recovered before, few enough that
    // checking all of it is quick.
    for first in (0..kills()).step_by(LIVES) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let mut acknowledged = Acknowledged::default();
        for round in first..(first + LIVES as u64).min(kills()) {
            run_and_kill(path, round, &mut acknowledged);
            check(path, round, &acknowledged);
        }
        appends += acknowledged.appends.values().sum::<u64>();
        deletions += acknowledged.deleted.len();
    }
    assert!(appends > 64, "the children did something: {appends}");
    println!("{} kills, {appends} acknowledged appends, {deletions} deletions", kills());
}

/// What the children printed.
#[derive(Default)]
struct Acknowledged {
    /// Per appender the number of appends.
    appends: BTreeMap<u64, u64>,
    deleted: Vec<String>,
}

fn run_and_kill(directory: &str, round: u64, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill::child", "--exact", "--nocapture", "--ignored"])
        .env(DIRECTORY, directory)
        .env(LIFE, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut first = None;
    // Different moments of the work: from the first acknowledgement to half a second later.
    let patience = Duration::from_millis(20 + (round * 97) % 480);
    let (mut seen, mut killed) = (0u64, false);
    while let Some(Ok(line)) = lines.next() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("append"), Some(appender), Some(seq)) => {
                let (appender, seq): (u64, u64) = (appender.parse().unwrap(), seq.parse().unwrap());
                acknowledged.appends.insert(appender, seq + 1);
                seen += 1;
            }
            (Some("delete"), Some(id), None) => acknowledged.deleted.push(id.to_owned()),
            _ => continue,
        }
        let first = *first.get_or_insert_with(std::time::Instant::now);
        if !killed && first.elapsed() > patience {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed && seen > 0, "round {round}: the child ended by itself after {seen} appends");
}

fn check(directory: &str, round: u64, acknowledged: &Acknowledged) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(config(directory)).unwrap();
        assert_eq!(store.recovery().damage, None, "round {round}");
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for number in 0..STREAMS {
            for message in read_all(&store, &format!("s{number}"), 100_000).await.unwrap() {
                let text = String::from_utf8(message).unwrap();
                let (appender, seq) = text.trim_end_matches('.').split_once(':').unwrap();
                let (appender, seq): (u64, u64) = (appender.parse().unwrap(), seq.parse().unwrap());
                let next = found.entry(appender).or_default();
                assert_eq!(seq, *next, "round {round}: appender {appender} skips or repeats");
                *next += 1;
            }
        }
        for (appender, count) in &acknowledged.appends {
            let stored = found.get(appender).copied().unwrap_or(0);
            assert!(stored >= *count, "round {round}: appender {appender} lost {count} > {stored}");
            let next = next_seq(&store, *appender).await;
            assert_eq!(next, stored, "round {round}: producer and data of {appender} disagree");
        }
        for id in &acknowledged.deleted {
            let head = store.head(&name(id));
            assert!(matches!(head, Err(Error::NotFound(_))), "round {round}: {id} came back: {head:?}");
        }
    });
}

/// The process that is killed.
#[test]
#[ignore = "runs as a child of nothing_acknowledged_is_lost_by_kills"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(config(&directory)).unwrap();
        for number in 0..STREAMS {
            store.create(name(&format!("s{number}")), plain()).await.unwrap();
        }
        let deletions = Arc::new(AtomicU64::new(0));
        for appender in 0..APPENDERS {
            let store = store.clone();
            tokio::spawn(async move {
                for seq in next_seq(&store, appender).await.. {
                    let data = format!("{appender}:{seq}{}", ".".repeat((seq % 200) as usize));
                    let append = produced(data.as_bytes(), &format!("p{appender}"), 0, seq);
                    store.append(name(&stream_of(appender)), append).await.unwrap();
                    say(&format!("append {appender} {seq}\n"));
                }
            });
        }
        // One that creates and deletes, beside the appenders.
        let life = std::env::var(LIFE).unwrap();
        loop {
            let id = format!("d{life}-{}", deletions.fetch_add(1, Ordering::Relaxed));
            store.create(name(&id), plain()).await.unwrap();
            store.append(name(&id), bytes(b"short life")).await.unwrap();
            store.delete(name(&id)).await.unwrap();
            say(&format!("delete {id}\n"));
        }
    });
}

/// Prints one line, whole or not at all.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have closed its end: it is about to kill this process.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
