//! Measures appends on the two stores, one after the other in each round:
//! `cargo run --release -p towpath-node --example stores -- DIRECTORY [ROUNDS]`.
//!
//! The directory gets a private PostgreSQL, with syncs, and the files of both stores. The figures depend on the disk and
//! on other load: only the ratio of one round says something.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people at a terminal")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_db::Database;
use towpath_db::cluster::{Cluster, Config as ClusterConfig};
use towpath_db::migrate::{self, Mode};
use towpath_model::stream::name::StreamName;
use towpath_model::stream::state::Shape;
use towpath_node::PostgresLog;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Create, Messages, Retention, Store};

const STREAMS: u64 = 1_000;
const SECONDS: u64 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory: PathBuf = arguments.first().map_or_else(|| "towpath-bench".into(), Into::into);
    let rounds: usize = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = ClusterConfig { data: directory.join("postgres"), ..ClusterConfig::default() };
        std::fs::create_dir_all(&config.data).unwrap();
        let cluster = Cluster::start(&config).await.unwrap();
        migrate::run(cluster.url(), Mode::Apply).await.unwrap();
        let database = Database::connect(cluster.url()).await.unwrap();
        for round in 0..rounds {
            for appenders in [1, 64, 1_024] {
                let embedded = measure(&embedded(&directory, round), appenders).await;
                let postgres = measure(&postgres(&directory, &database).await, appenders).await;
                println!(
                    "{appenders:>5} appenders: embedded {embedded:>8.0}/s, postgres {postgres:>8.0}/s, ratio {:.2}",
                    postgres / embedded
                );
            }
        }
        cluster.stop().await;
    });
}

fn embedded(directory: &Path, round: usize) -> Embedded {
    let directory = directory.join(format!("embedded-{round}"));
    let _ = std::fs::remove_dir_all(&directory);
    Embedded::open(Config::new(directory)).unwrap()
}

async fn postgres(directory: &Path, database: &Database) -> Embedded {
    let log = PostgresLog::open(database.clone()).await.unwrap();
    let mut config = Config::new(directory.join("cache"));
    config.clock = log.clock();
    config.log = Some(Arc::new(log));
    tokio::task::spawn_blocking(|| Embedded::open(config)).await.unwrap().unwrap()
}

fn name(id: u64) -> StreamName {
    StreamName::new("bench", &id.to_string()).unwrap()
}

/// Appends a second.
async fn measure(store: &Embedded, appenders: u64) -> f64 {
    let shape = Shape { content_type: None, expiry: None, closed: false, fork: None };
    let create = Create { shape, messages: Messages::default(), retention: Retention::default() };
    let created: Vec<_> = (0..STREAMS)
        .map(|number| {
            let (store, create) = (store.clone(), create.clone());
            tokio::spawn(async move { store.create(name(number), create).await.unwrap() })
        })
        .collect();
    for created in created {
        created.await.unwrap();
    }
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let data = Bytes::from(vec![b'x'; 100]);
    let start = Instant::now();
    let tasks: Vec<_> = (0..appenders)
        .map(|appender| {
            let (store, done, stop, data) = (store.clone(), done.clone(), stop.clone(), data.clone());
            tokio::spawn(async move {
                let mut stream = appender;
                while !stop.load(Ordering::Relaxed) {
                    stream = (stream + 17) % STREAMS;
                    let append = Append { messages: Messages::one(data.clone()), ..Append::default() };
                    store.append(name(stream), append).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.shut_down()).await.unwrap();
    rate
}
