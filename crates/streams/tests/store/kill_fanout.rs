//! F03, F05, F06: sessions subscribe, leave and come back while a process that publishes is killed
//! again and again. What each of them holds at the end is checked against all requests and answers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_model::stream::offset::Start;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Beyond, Error, FanOut, Messages, Store, Subscribe};

use crate::fanout_check::{Checker, Line};
use crate::support::*;

const DIRECTORY: &str = "TOWPATH_TEST_FANOUT_DIRECTORY";
const SOURCES: usize = 4;
/// Tasks that change what sessions follow; each has its own.
const CHANGERS: usize = 16;
/// All messages have this length, so that an offset gives a number.
const MESSAGE_BYTES: u64 = 20;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn kills() -> usize {
    setting("TOWPATH_FANOUT_KILLS", 8)
}

fn sessions() -> usize {
    setting("TOWPATH_FANOUT_SESSIONS", 1_000)
}

fn config(directory: &str) -> Config {
    Config { segment_bytes: 128 << 10, checkpoint_after_bytes: 192 << 10, ..Config::new(directory) }
}

fn source(number: usize) -> String {
    format!("source{number}")
}

fn session(number: usize) -> String {
    format!("session:{number}")
}

fn message(source: usize, number: u64) -> Vec<u8> {
    let message = format!("\"{source}:{number:015}\",");
    assert_eq!(message.len() as u64, MESSAGE_BYTES);
    message.into_bytes()
}

#[test]
fn sessions_hold_what_was_published_whatever_is_killed() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut checker = Checker::default();
    let mut lines = 0;
    for round in 0..kills() {
        lines += run_and_kill(path, round as u64, &mut checker);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let held = runtime.block_on(check(path, &mut checker));
    assert!(held > 1_000, "the sessions hold something: {held}");
    println!("{} kills, {} sessions, {lines} lines of history, {held} messages held", kills(), sessions());
}

/// Runs a child, reads what it prints, and kills it.
fn run_and_kill(directory: &str, round: u64, checker: &mut Checker) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill_fanout::child", "--exact", "--nocapture", "--ignored"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    // Different moments of the work: from the first publishes to half a second later.
    let patience = Duration::from_millis(30 + (round * 113) % 500);
    let (mut first, mut killed, mut count) = (None, false, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        let Some(line) = Line::parse(&line) else { continue };
        checker.take(&line).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        count += 1;
        if matches!(line, Line::Published { .. }) {
            first.get_or_insert_with(Instant::now);
        }
        if !killed && first.is_some_and(|first| first.elapsed() > patience) {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "round {round}: the child ended by itself after {count} lines");
    count
}

/// Opens what the last kill left, delivers what waits, and checks every session.
async fn check(directory: &str, checker: &mut Checker) -> usize {
    let store = Embedded::open(config(directory)).unwrap();
    assert_eq!(store.recovery().damage, None);
    for line in found(&store) {
        checker.take(&line).unwrap();
    }
    drain(&store).await;
    let mut held = 0;
    for number in 0..sessions() {
        let holds = match read_all(&store, &session(number), 100_000).await {
            Ok(messages) => Some(messages.iter().map(|message| read(message)).collect::<Vec<_>>()),
            Err(Error::NotFound(_)) => None,
            Err(error) => panic!("session {number}: {error}"),
        };
        checker.check(number, holds.as_deref()).unwrap();
        held += holds.map_or(0, |holds| holds.len());
    }
    held
}

/// A message's source and number, in an envelope or not.
fn read(message: &[u8]) -> (usize, u64) {
    let text = std::str::from_utf8(message).unwrap().trim_end_matches(',');
    let text = match text.split_once("\"data\":") {
        Some((head, data)) => {
            let data = data.strip_suffix('}').unwrap();
            let source = data.trim_matches('"').split_once(':').unwrap().0;
            assert!(head.contains(&format!("\"source{source}\"")), "{text}");
            data
        }
        None => text,
    };
    let (source, number) = text.trim_matches('"').split_once(':').unwrap();
    (source.parse().unwrap(), number.parse().unwrap())
}

async fn drain(store: &Embedded) {
    for (source, _) in store.lagging(usize::MAX) {
        while store.fan_out(source.clone()).await.unwrap().lag_bytes > 0 {}
    }
}

/// What the store holds now, as lines.
fn found(store: &Embedded) -> Vec<Line> {
    let mut lines = Vec::new();
    for number in 0..SOURCES {
        let tail = store.head(&name(&source(number))).map_or(0, |head| head.tail.bytes());
        lines.push(Line::Source { source: number, count: tail / MESSAGE_BYTES });
    }
    for number in 0..sessions() {
        let follows = store.session(&name(&session(number))).ok().map(|session| {
            let one = |it: &towpath_streams::Subscription| {
                let source = it.source.id.trim_start_matches("source").parse().unwrap();
                (source, it.start.bytes() / MESSAGE_BYTES)
            };
            session.subscriptions.iter().map(one).collect()
        });
        lines.push(Line::Session { session: number, follows });
    }
    lines
}

/// The process that is killed.
#[test]
#[ignore = "runs as a child of sessions_hold_what_was_published_whatever_is_killed"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(config(&directory)).unwrap();
        let mut create = plain();
        create.shape.content_type = Some(json());
        for number in 0..SOURCES {
            store.create(name(&source(number)), create.clone()).await.unwrap();
        }
        for line in found(&store) {
            say(&match line {
                Line::Source { source, count } => format!("source {source} {count}"),
                Line::Session { session, follows: None } => format!("session {session} -"),
                Line::Session { session, follows: Some(follows) } => {
                    let pairs = follows.iter().map(|(source, start)| format!(" {source} {start}"));
                    format!("session {session}{}", pairs.collect::<String>())
                }
                _ => unreachable!("only states are found"),
            });
        }
        // First of all, every session subscribes to something, all at once.
        let started = Arc::new(AtomicU64::new(0));
        for changer in 0..CHANGERS {
            tokio::spawn(change(store.clone(), changer, started.clone()));
        }
        for number in 0..SOURCES {
            tokio::spawn(publish(store.clone(), number));
        }
        loop {
            drain(&store).await;
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
    });
}

/// Publishes to a source in every way there is, one after the other.
async fn publish(store: Embedded, number: usize) {
    let source = name(&source(number));
    let mut next = store.head(&source).unwrap().tail.bytes() / MESSAGE_BYTES;
    loop {
        let append = Append { messages: Messages::one(message(number, next)), ..Append::default() };
        say(&format!("publish {number} {next}"));
        match next % 5 {
            0 => drop(store.append(source.clone(), append).await.unwrap()),
            kind => {
                let inline_max = if kind == 1 { 10 } else { usize::MAX };
                let fan_out = FanOut { inline_max, beyond: Beyond::Queue };
                store.publish(source.clone(), append, fan_out).await.unwrap();
            }
        }
        say(&format!("published {number} {next}"));
        next += 1;
    }
}

/// Its own sessions subscribe, leave, come back, are deleted and are read.
async fn change(store: Embedded, changer: usize, counter: Arc<AtomicU64>) {
    let mine: Vec<usize> = (changer..sessions()).step_by(CHANGERS).collect();
    // Pseudo-random numbers that differ from child to child.
    let seed = u64::from(std::process::id());
    let random = move || {
        let number =
            counter.fetch_add(1, Ordering::Relaxed).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (number >> 33) as usize
    };
    for number in &mine {
        subscribe(&store, *number, number % SOURCES).await;
    }
    loop {
        let number = mine[random() % mine.len()];
        let of = random() % SOURCES;
        match random() % 10 {
            0..5 => subscribe(&store, number, of).await,
            5..8 => {
                say(&format!("unsubscribe {number} {of}"));
                match store.unsubscribe(name(&session(number)), name(&source(of))).await {
                    Ok(_) | Err(Error::NotFound(_)) => say(&format!("unsubscribed {number} {of}")),
                    Err(error) => panic!("{error}"),
                }
            }
            8 => {
                say(&format!("delete {number}"));
                match store.delete(name(&session(number))).await {
                    Ok(()) | Err(Error::NotFound(_)) => say(&format!("deleted {number}")),
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                let read = store.read(&name(&session(number)), Start::Beginning, 4_000).await;
                assert!(matches!(read, Ok(_) | Err(Error::NotFound(_))), "{read:?}");
            }
        }
    }
}

async fn subscribe(store: &Embedded, number: usize, of: usize) {
    say(&format!("subscribe {number} {of}"));
    let (session, source) = (name(&session(number)), name(&source(of)));
    let envelope = (number + of).is_multiple_of(3);
    let subscribe = Subscribe { session, source, ttl_seconds: 3_600, envelope };
    let start = store.subscribe(subscribe).await.unwrap().start.bytes() / MESSAGE_BYTES;
    say(&format!("subscribed {number} {of} {start}"));
}

/// Prints one line, whole or not at all.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have closed its end: it is about to kill this process.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}
