//! S04: the log of commits in PostgreSQL.

use std::time::Duration;

use futures_util::future::join_all;
use towpath_db::Database;
use towpath_db::cluster::{self, Cluster};
use towpath_db::migrate::{self, Mode};
use towpath_db::stream_log::{Put, StoredCommit};
use towpath_model::stream::state::Shape;
use towpath_node::Lease;
use towpath_streams::{Create, Error, Messages, Retention, Store};
use towpath_testkit::TestDb;
use towpath_testkit::database::{programs, scratch};
use towpath_testkit::proxy::{Direction, FaultProxy};
use towpath_testkit::wait::until_some;
use uuid::Uuid;

use crate::{all, name, node, shut_down, text};

pub(crate) fn plain() -> Create {
    let shape = Shape { content_type: None, expiry: None, closed: false, fork: None };
    Create { shape, messages: Messages::default(), retention: Retention::default() }
}

fn commit(number: u64, chain: u32) -> StoredCommit {
    StoredCommit { number, chain, body: format!("body {number}").into() }
}

/// S04: a number is given once, a retry finds its own commit, and nothing is put behind a commit that is not there or
/// is another one.
#[tokio::test]
async fn a_commit_exists_once() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let opened = database.stream_log_open().await.unwrap();
    assert_eq!((opened.last, database.stream_log_open().await.unwrap().log_id), (0, opened.log_id));
    let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
    let put = async |writer, before, commit: &StoredCommit| {
        database.stream_log_put(writer, before, commit).await.unwrap()
    };
    assert_eq!(put(one, 0, &commit(1, 11)).await, Put::Done);
    assert_eq!(put(one, 0, &commit(1, 11)).await, Put::Done, "its own commit is found");
    assert_eq!(
        put(other, 0, &commit(1, 11)).await,
        Put::Taken,
        "the same bytes of another writer are not its own"
    );
    assert_eq!(put(one, 12, &commit(2, 22)).await, Put::Diverged, "the chain before is another");
    assert_eq!(put(one, 33, &commit(4, 44)).await, Put::Diverged, "a commit is missing before");
    assert_eq!(put(other, 11, &commit(2, 22)).await, Put::Done);
    assert_eq!(database.stream_log_read(0, 1 << 20).await.unwrap(), [commit(1, 11), commit(2, 22)]);
    assert_eq!(database.stream_log_read(0, 1).await.unwrap(), [commit(1, 11)], "at least one");
    assert_eq!(db.text("select settled from towpath.stream_log").await, "1");
}

/// S04: of many nodes one serves, and another takes its place when it stops or does not renew.
#[tokio::test]
async fn one_node_serves() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let first = Lease::take(&database, "first").await.unwrap().ok().unwrap();
    assert_eq!(Lease::take(&database, "second").await.unwrap().err().as_deref(), Some("first"));
    first.release().await;
    Lease::take(&database, "second").await.unwrap().ok().unwrap();
    db.advance(Duration::from_secs(6)).await;
    Lease::take(&database, "third").await.unwrap().ok().unwrap();
    assert_eq!(db.text("select address from towpath.stream_log").await, "third");
}

/// S04: three nodes write to the same stream at the same time, one restarts, one has lost its cache: every append that
/// was answered is there once, on every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_write_at_once_are_the_same_store() {
    const APPENDS: usize = 40;
    let db = TestDb::new().await;
    let database = db.database().await;
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let nodes = join_all(dirs.iter().map(|dir| node(&database, dir.path()))).await;
    nodes[0].create(name("a"), plain()).await.unwrap();
    let writers = (0..9).map(|writer| {
        let store = nodes[writer % 3].clone();
        tokio::spawn(async move {
            for number in 0..APPENDS {
                store.append(name("a"), text(&format!("{writer}:{number}"))).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    let mut expected: Vec<String> =
        (0..9).flat_map(|writer| (0..APPENDS).map(move |number| format!("{writer}:{number}"))).collect();
    expected.sort_unstable();
    let first = all(&nodes[0], "a").await;
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    for store in nodes {
        assert_eq!(all(&store, "a").await, first);
        shut_down(store).await;
    }
    let again = node(&database, dirs[1].path()).await;
    assert_eq!(all(&again, "a").await, first, "from its cache");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(all(&node(&database, empty.path()).await, "a").await, first, "from the log alone");
}

/// S04: connections that break in the middle of a commit. What was answered is there once; what was asked while the
/// database was away is made when it is back, or refused as busy and not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_lose_and_repeat_nothing() {
    let db = TestDb::new().await;
    let proxy = FaultProxy::start(db.socket().await.as_path()).await;
    let url = format!("postgresql://postgres@{}/{}", proxy.addr(), db.name());
    let database = Database::connect(&url).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = node(&database, directory.path()).await;
    store.create(name("a"), plain()).await.unwrap();
    let mut made = Vec::new();
    for number in 0..120 {
        if number % 8 == 3 {
            // In the middle of a request, or of its answer.
            let direction = match number % 16 {
                3 => Direction::ToUpstream,
                _ => Direction::ToClient,
            };
            proxy.cut_after(direction, 40 + number);
        }
        let message = number.to_string();
        if store.append(name("a"), text(&message)).await.is_ok() {
            made.push(message);
        }
    }
    assert_eq!(all(&store, "a").await, made);
    assert!(made.len() > 60, "{}", made.len());
    let empty = tempfile::tempdir().unwrap();
    let direct = db.database().await;
    assert_eq!(all(&node(&direct, empty.path()).await, "a").await, made);
}

/// S04: PostgreSQL is ended at once while 16 writers append, and starts again: every append that was answered is there,
/// each once, on the node that lived through it and on one that reads only the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_database_loses_no_answered_append() {
    // The server of the other tests does not sync, and may lose what it has answered.
    let place = scratch("towpath-test-");
    let config = cluster::Config { data: place.clone(), bin: programs(), ..cluster::Config::default() };
    let server = Cluster::start(&config).await.unwrap();
    migrate::run(server.url(), Mode::Apply).await.unwrap();
    let database = Database::connect(server.url()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = node(&database, directory.path()).await;
    store.create(name("a"), plain()).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut made, mut number) = (Vec::new(), 0);
                while !stop.is_cancelled() {
                    let message = format!("{writer}:{number}");
                    number += 1;
                    if store.append(name("a"), text(&message)).await.is_ok() {
                        made.push(message);
                    }
                }
                made
            })
        })
        .collect();
    for _ in 0..2 {
        let before = all(&store, "a").await.len();
        until_some("appends", async || (all(&store, "a").await.len() > before + 50).then_some(())).await;
        end_at_once(server.url()).await;
        until_some("the database", async || Database::connect(server.url()).await.ok()?.ping().await.ok())
            .await;
        until_some("the store", async || store.fresh().await.ok()).await;
    }
    stop.cancel();
    let made: Vec<Vec<String>> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    let found = all(&store, "a").await;
    for (writer, made) in made.iter().enumerate() {
        let own: Vec<&String> = found.iter().filter(|it| it.starts_with(&format!("{writer}:"))).collect();
        let mut once = own.clone();
        once.dedup();
        assert_eq!(own, once, "writer {writer} has a message twice");
        let missing: Vec<_> = made.iter().filter(|message| !own.contains(message)).collect();
        assert!(missing.is_empty(), "writer {writer} lost {missing:?}");
    }
    let empty = tempfile::tempdir().unwrap();
    let database = Database::connect(server.url()).await.unwrap();
    let other = node(&database, empty.path()).await;
    assert_eq!(all(&other, "a").await, found);
    shut_down(store).await;
    shut_down(other).await;
    server.stop().await;
    let _ = std::fs::remove_dir_all(place);
}

/// Ends a PostgreSQL that a test started, without a shutdown.
async fn end_at_once(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer";
    let pid: i32 = client.query_one(sql, &[]).await.unwrap().get(0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// S04: a failover to a standby that was behind, or a restore, takes commits away that were answered. The node that has
/// them stops; after a restart it is what the log says, and so is every other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_commits_is_noticed() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    let store = node(&database, directory.path()).await;
    store.create(name("a"), plain()).await.unwrap();
    for number in 0..5 {
        store.append(name("a"), text(&number.to_string())).await.unwrap();
    }
    db.execute("delete from towpath.stream_commit where number > 4").await;
    let said = store.append(name("a"), text("5")).await;
    assert!(matches!(&said, Err(Error::Poisoned(why)) if why.contains("lost commits")), "{said:?}");
    assert!(store.fresh().await.is_err());
    shut_down(store).await;
    let store = node(&database, directory.path()).await;
    assert_eq!(all(&store, "a").await, ["0", "1", "2"]);
    store.append(name("a"), text("new")).await.unwrap();
    shut_down(store).await;
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(all(&node(&database, empty.path()).await, "a").await, ["0", "1", "2", "new"]);
}
