//! Measures the embedded store: `cargo run --release -p towpath-streams --example bench -- all`.
//!
//! The figures depend on the disk and on other load: compare only runs of the same minute, and trust
//! processor time more than wall-clock time.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people at a terminal")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::state::Shape;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Create, FanOut, Messages, Retention, Store, Subscribe};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("all", String::as_str);
    let directory = arguments.get(1).map_or_else(|| std::env::temp_dir().join("towpath-bench"), Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let run = |name: &str| what == name || what == "all";
    if run("sync") {
        bare_sync(&directory);
    }
    for appenders in [1, 64, 1_024] {
        if run("append") {
            runtime.block_on(appends(&directory, appenders));
        }
    }
    if run("fanout") {
        runtime.block_on(fan_out(&directory));
    }
    if run("streams") {
        runtime.block_on(many_streams(&directory));
    }
    if what == "open" {
        let start = Instant::now();
        let store = open(&directory);
        println!(
            "opened {} streams in {:?}, {:?}",
            store.status().streams,
            start.elapsed(),
            store.recovery()
        );
        // Exits without a shutdown, so that the next start replays the same log.
        std::process::exit(0);
    }
    if run("catchup") {
        runtime.block_on(catch_up(&directory));
    }
    if what == "read" {
        // Reads what `catchup` wrote, in a new process.
        runtime.block_on(read_whole(&open(&directory), "by a new process"));
    }
}

fn open(directory: &Path) -> Embedded {
    Embedded::open(Config::new(directory)).unwrap()
}

fn fresh(directory: &Path) -> Embedded {
    let _ = std::fs::remove_dir_all(directory);
    open(directory)
}

fn name(id: impl std::fmt::Display) -> StreamName {
    StreamName::new("bench", &id.to_string()).unwrap()
}

fn create(seconds: Option<u64>) -> Create {
    let expiry = seconds.map(|seconds| Expiry::Sliding { seconds });
    let shape = Shape { content_type: None, expiry, closed: false, fork: None };
    Create { shape, messages: Messages::default(), retention: Retention::default() }
}

fn append(data: &Bytes) -> Append {
    Append { messages: Messages::one(data.clone()), ..Append::default() }
}

/// Creates streams, a thousand at a time.
async fn create_streams(store: &Embedded, from: u64, to: u64, template: &Create) {
    for chunk in (from..to).collect::<Vec<_>>().chunks(1_000) {
        let tasks: Vec<_> = chunk
            .iter()
            .map(|number| {
                let (store, template, number) = (store.clone(), template.clone(), *number);
                tokio::spawn(async move { store.create(name(number), template).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

/// What one write and one sync cost here, without any store.
fn bare_sync(directory: &Path) {
    use std::os::unix::fs::FileExt;
    std::fs::create_dir_all(directory).unwrap();
    let file = std::fs::File::create(directory.join("bare")).unwrap();
    file.write_all_at(&vec![0; 4 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let mut times: Vec<Duration> = (0..300u64)
        .map(|number| {
            let start = Instant::now();
            file.write_all_at(&[1; 8192], number * 8192).unwrap();
            file.sync_data().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("bare 8 KiB overwrite + fdatasync: p50 {:?}, p99 {:?}", times[150], times[297]);
}

async fn appends(directory: &Path, appenders: u64) {
    let store = fresh(directory);
    let streams = 1_000.min(appenders.max(64) * 16);
    create_streams(&store, 0, streams, &create(None)).await;
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let data = Bytes::from(vec![b'x'; 100]);
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let tasks: Vec<_> = (0..appenders)
        .map(|appender| {
            let (store, done, stop, data) = (store.clone(), done.clone(), stop.clone(), data.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut stream = appender;
                while !stop.load(Ordering::Relaxed) {
                    stream = (stream + 17) % streams;
                    let begin = Instant::now();
                    store.append(name(stream), append(&data)).await.unwrap();
                    times.push(begin.elapsed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
                times
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    times.sort_unstable();
    let done = done.load(Ordering::Relaxed) as f64;
    println!(
        "{appenders} appenders, {streams} streams: {:.0} durable appends/s, p50 {:?}, p99 {:?}, p99.9 {:?}, {:.2} µs of processor each",
        done / seconds,
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() * 999 / 1000],
        cpu * 1e6 / done
    );
}

/// One publish to many sessions, alone and among others that follow two sources each.
async fn fan_out(directory: &Path) {
    const ROUNDS: usize = 2_000;
    let fan_out = FanOut::AT_ONCE;
    let data = Bytes::from(vec![b'x'; 200]);
    for count in [0, 1, 1_000, 10_000, 100_000] {
        for sources in [1, 2] {
            if count == 0 && sources == 2 {
                continue;
            }
            let store = fresh(directory);
            let before = resident_mib();
            let start = Instant::now();
            for source in 0..sources {
                store.create(name(source), create(None)).await.unwrap();
                subscribe_all(&store, source, count).await;
            }
            let subscribing = start.elapsed().as_secs_f64();
            let memory = resident_mib() - before;
            let (mut times, cpu) = (Vec::new(), cpu_seconds());
            for round in 0..ROUNDS as u64 {
                let start = Instant::now();
                let published = store.publish(name(round % sources), append(&data), fan_out).await.unwrap();
                times.push(start.elapsed());
                assert_eq!(published.subscribers as u64, count);
            }
            let each = (cpu_seconds() - cpu) * 1e6 / ROUNDS as f64;
            times.sort_unstable();
            let cpu = cpu_seconds();
            for number in 0..count {
                let page = store.read(&session(number), Start::Beginning, 1 << 20).await.unwrap();
                assert_eq!(page.batch.data().len(), ROUNDS * 200);
                if number == 99 {
                    break;
                }
            }
            let read = (cpu_seconds() - cpu) * 1e3 / count.clamp(1, 100) as f64;
            println!(
                "publish to {count} sessions of {sources} sources each: p50 {:?}, p99 {:?}, worst {:?}, {each:.1} µs of processor; subscribed at {:.0}/s, {memory:.0} MiB; a session read whole in {read:.2} ms",
                times[ROUNDS / 2],
                times[ROUNDS * 99 / 100],
                times[ROUNDS - 1],
                (count * sources) as f64 / subscribing
            );
        }
    }
}

fn session(number: u64) -> StreamName {
    StreamName::session("bench", &number.to_string()).unwrap()
}

/// Subscribes sessions, a thousand at a time.
async fn subscribe_all(store: &Embedded, source: u64, count: u64) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let subscribed = chunk.iter().map(|number| {
            let (session, source) = (session(*number), name(source));
            store.subscribe(Subscribe { session, source, ttl_seconds: 3_600, envelope: false })
        });
        for subscribed in futures_util::future::join_all(subscribed).await {
            assert!(subscribed.unwrap().is_new);
        }
    }
}

async fn many_streams(directory: &Path) {
    let before = resident_mib();
    let store = fresh(directory);
    let mut template = create(Some(3_600));
    template.messages = Messages::one(vec![b'x'; 116]);
    let start = Instant::now();
    create_streams(&store, 0, 1_000_000, &template).await;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "1M streams of one message created in {seconds:.1} s, {:.0} MiB resident more",
        resident_mib() - before
    );
    let start = Instant::now();
    for number in (0..1_000_000u64).step_by(9_973) {
        let page = store.read(&name(number), Start::Beginning, 1 << 20).await.unwrap();
        assert_eq!(page.batch.data().len(), 116);
    }
    println!("a random first read: {:?} on average", start.elapsed() / 101);
    let start = Instant::now();
    store.shut_down();
    println!("shut down with a checkpoint in {:?}", start.elapsed());
    drop(store);
    let start = Instant::now();
    let store = open(directory);
    println!("opened again in {:?}", start.elapsed());
    let start = Instant::now();
    store.checkpoint().unwrap();
    println!("a checkpoint beside the work takes {:?}", start.elapsed());
    drop(store);
    // The same store an hour later: everything has expired.
    let config = Config {
        clock: Arc::new(|| jiff::Timestamp::now() + jiff::SignedDuration::from_hours(2)),
        background: false,
        ..Config::new(directory)
    };
    let store = Embedded::open(config).unwrap();
    let start = Instant::now();
    let ended = store.keep().unwrap();
    println!("{ended} expired streams ended in {:?}", start.elapsed());
}

async fn catch_up(directory: &Path) {
    let store = fresh(directory);
    store.create(name("long"), create(None)).await.unwrap();
    let data = Bytes::from(vec![b'x'; 100]);
    let start = Instant::now();
    for _ in 0..10_000 {
        let appends = (0..1_000).map(|_| (name("long"), append(&data))).collect();
        store.append_all(appends).await.unwrap();
    }
    println!("10M messages of 100 bytes written in {:?}", start.elapsed());
    read_whole(&store, "as written").await;
    println!("{:.0} MiB resident before maintenance", resident_mib());
    let start = Instant::now();
    while store.status().segments > 24 && start.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!(
        "gathered to {} segments after {:?}, {:.0} MiB resident",
        store.status().segments,
        start.elapsed(),
        resident_mib()
    );
    read_whole(&store, "gathered").await;
    store.shut_down();
    drop(store);
    let start = Instant::now();
    let store = open(directory);
    println!("opened again in {:?}", start.elapsed());
    read_whole(&store, "after a restart").await;
    let start = Instant::now();
    for part in 0..100u64 {
        let from = Start::At(Offset::new(part * 10_000_000));
        assert!(!store.read(&name("long"), from, 4096).await.unwrap().batch.is_empty());
    }
    println!("a small page anywhere in it: {:?} on average", start.elapsed() / 100);
}

async fn read_whole(store: &Embedded, what: &str) {
    let (mut from, mut messages, mut bytes) = (Start::Beginning, 0, 0);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    loop {
        let page = store.read(&name("long"), from, 4 << 20).await.unwrap();
        messages += page.batch.ends().len();
        bytes += page.batch.data().len();
        from = Start::At(page.batch.end());
        if page.is_up_to_date() {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "catch-up {what}: {messages} messages in {seconds:.2} s, {:.0} MB/s, {:.2} µs of processor a message",
        bytes as f64 / 1e6 / seconds,
        (cpu_seconds() - cpu) * 1e6 / messages as f64
    );
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / (1024.0 * 1024.0)
}
