//! S07: messages that SQL transactions leave for streams, on both stores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_db::Database;
use towpath_node::{Intake, Round};
use towpath_route::Role;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{FanOut, Store, Subscribe};
use towpath_testkit::TestDb;
use towpath_testkit::background::Background;

use crate::log::plain;
use crate::{all, name, node, shut_down};

/// Both stores must do the same.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Embedded,
    Shared,
}

async fn open(kind: Kind, database: &Database, directory: &Path) -> Embedded {
    match kind {
        Kind::Shared => node(database, directory).await,
        Kind::Embedded => {
            let config = Config::new(directory);
            tokio::task::spawn_blocking(|| Embedded::open(config)).await.unwrap().unwrap()
        }
    }
}

fn intake(database: &Database, store: &Embedded) -> Intake {
    Intake::new(database.clone(), Arc::new(store.clone()), FanOut::AT_ONCE, "here")
}

/// Takes everything in that is there.
async fn take_all_in(database: &Database, store: &Embedded) {
    while intake(database, store).run_once().await.unwrap() != Round::Nothing {}
}

/// S07: a commit makes messages visible in the order of the calls, to readers and to sessions; a rollback leaves
/// nothing. An application needs no more than the rights of a producer.
async fn commits_and_rollbacks(kind: Kind) {
    let db = TestDb::new().await;
    let (database, _) = db.database_as("workflow_admin").await;
    let directory = tempfile::tempdir().unwrap();
    let store = open(kind, &database, directory.path()).await;
    let mut application = db.client_as("towpath_producer").await;
    store.create(name("log"), plain()).await.unwrap();

    application.execute("select towpath.publish('orders', '{\"n\": 1}')", &[]).await.unwrap();
    take_all_in(&database, &store).await;
    let subscribe =
        Subscribe { session: name("session:1"), source: name("orders"), ttl_seconds: 60, envelope: false };
    store.subscribe(subscribe).await.unwrap();

    let transaction = application.transaction().await.unwrap();
    transaction.execute("select towpath.publish('orders', '{\"n\": 2}')", &[]).await.unwrap();
    transaction.execute("select towpath.append('log', 'a line')", &[]).await.unwrap();
    transaction.execute("select towpath.publish('orders', '[{\"n\": 3}, {\"n\": 4}]')", &[]).await.unwrap();
    take_all_in(&database, &store).await;
    assert_eq!(all(&store, "orders").await, ["{\"n\": 1}"], "nothing is visible before the commit");
    transaction.commit().await.unwrap();

    let transaction = application.transaction().await.unwrap();
    transaction.execute("select towpath.publish('orders', '{\"n\": 99}')", &[]).await.unwrap();
    transaction.rollback().await.unwrap();

    take_all_in(&database, &store).await;
    assert_eq!(all(&store, "orders").await, ["{\"n\": 1}", "{\"n\": 2}", "{\"n\": 3}", "{\"n\": 4}"]);
    assert_eq!(all(&store, "session:1").await, ["{\"n\": 2}", "{\"n\": 3}", "{\"n\": 4}"]);
    assert_eq!(all(&store, "log").await, ["a line"]);
    assert_eq!(db.text("select count(*) from towpath.stream_intake").await, "0");
    shut_down(store).await;
}

/// S07: the store stops between the append and the deletion of the rows. The next round repeats nothing.
async fn a_stop_after_the_append(kind: Kind) {
    let db = TestDb::new().await;
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    for round in 1..4 {
        let store = open(kind, &database, directory.path()).await;
        db.execute(&format!("select towpath.publish('orders', '{round}')")).await;
        assert_eq!(intake(&database, &store).run_once().await.unwrap(), Round::Some(1));
        assert_eq!(
            db.text("select count(*) from towpath.stream_intake").await,
            "1",
            "the row is still there"
        );
        shut_down(store).await;
        let store = open(kind, &database, directory.path()).await;
        take_all_in(&database, &store).await;
        let expected: Vec<String> = (1..=round).map(|number| number.to_string()).collect();
        assert_eq!(all(&store, "orders").await, expected);
        shut_down(store).await;
    }
}

/// S07: many transactions at once, some rolled back, while the loop runs and the store is opened again and again:
/// every committed message is there once, and those of one writer in their order.
async fn many_writers(kind: Kind) {
    const WRITERS: usize = 6;
    const MESSAGES: usize = 40;
    let db = TestDb::new().await;
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let client = db.client();
        async move {
            let mut client = client.await;
            for number in 0..MESSAGES {
                let transaction = client.transaction().await.unwrap();
                let sql = format!("select towpath.publish('s{}', '\"{writer}:{number}\"')", number % 3);
                transaction.execute(&sql, &[]).await.unwrap();
                match number % 5 {
                    4 => transaction.rollback().await.unwrap(),
                    _ => transaction.commit().await.unwrap(),
                }
            }
        }
    });
    let taking = async {
        let mut store = open(kind, &database, directory.path()).await;
        for _ in 0..4 {
            let running = intake(&database, &store);
            let background = Background::start(|shutdown| running.run(shutdown));
            let before = db.text("select coalesce(max(intake_id), 0)::text from towpath.stream_intake").await;
            let sql = format!(
                "select (coalesce(max(intake_id), 0) > {before} or count(*) = 0)::text from towpath.stream_intake"
            );
            db.until(&sql, "true").await;
            background.stop().await;
            shut_down(store).await;
            store = open(kind, &database, directory.path()).await;
        }
        store
    };
    let (_, store) = tokio::join!(join_all(writers), taking);
    take_all_in(&database, &store).await;
    let mut found = Vec::new();
    for stream in ["s0", "s1", "s2"] {
        let messages = all(&store, stream).await;
        for writer in 0..WRITERS {
            let own = messages.iter().filter(|it| it.starts_with(&format!("\"{writer}:")));
            let numbers: Vec<usize> =
                own.map(|it| it.trim_matches('"').split(':').nth(1).unwrap().parse().unwrap()).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{stream} writer {writer}: {numbers:?}");
            found.extend(numbers.into_iter().map(|number| (writer, number)));
        }
    }
    found.sort_unstable();
    let committed = (0..WRITERS).flat_map(|writer| (0..MESSAGES).map(move |number| (writer, number)));
    assert_eq!(found, committed.filter(|(_, number)| number % 5 != 4).collect::<Vec<_>>());
    shut_down(store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_published_and_a_rollback_is_not_on_the_embedded_store() {
    commits_and_rollbacks(Kind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_published_and_a_rollback_is_not_on_the_shared_store() {
    commits_and_rollbacks(Kind::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_after_the_append_repeats_nothing_on_the_embedded_store() {
    a_stop_after_the_append(Kind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_after_the_append_repeats_nothing_on_the_shared_store() {
    a_stop_after_the_append(Kind::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_are_taken_in_once_and_in_order_by_the_embedded_store() {
    many_writers(Kind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_are_taken_in_once_and_in_order_by_the_shared_store() {
    many_writers(Kind::Shared).await;
}

/// S07: what a stream refuses stays, with the reason, and holds nothing up; an alert event says so, and it can be tried
/// again or discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_message_stays_with_its_reason() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    let store = open(Kind::Embedded, &database, directory.path()).await;
    db.execute(
        "select towpath.append('missing', 'x'), towpath.publish('fine', '1'),
                towpath.publish('session:0190f5a4-5c2e-7bb0-9f33-0123456789ab', '1'), towpath.append('missing', 'y')",
    )
    .await;
    let intake = intake(&database, &store);
    let background = Background::start(|shutdown| intake.run(shutdown));
    db.until("select count(*) from towpath.stream_intake where refused_at is not null", "3").await;
    db.until("select count(*) from towpath.stream_intake", "3").await;
    assert_eq!(all(&store, "fine").await, ["1"]);
    let refused = database.stream_intake_refused(10).await.unwrap();
    assert!(refused[0].error.contains("there is no stream"), "{}", refused[0].error);
    let events = "select count(*) from towpath.event_outbox where event_type = 'stream.intake_refused'";
    assert_eq!(db.text(events).await, "3");

    store.create(name("missing"), plain()).await.unwrap();
    database.stream_intake_end(refused[0].intake_id, "retry").await.unwrap();
    database.stream_intake_end(refused[1].intake_id, "discard").await.unwrap();
    assert!(database.stream_intake_end(refused[1].intake_id, "discard").await.is_err());
    db.until("select count(*) from towpath.stream_intake", "1").await;
    assert_eq!(all(&store, "missing").await, ["x"]);
    background.stop().await;
    shut_down(store).await;
}

/// S07: what no stream can take is refused in the transaction, with cause and field.
#[tokio::test]
async fn publish_refuses_what_no_stream_can_take() {
    let db = TestDb::new().await;
    let client = db.client_as("towpath_producer").await;
    for (call, field) in [
        ("publish(null, '1')", "stream"),
        ("publish(' ', '1')", "stream"),
        ("publish('a', null)", "data"),
        ("publish('a', '[]')", "data"),
        ("publish('a', '1', '')", "project"),
        ("append('a', '')", "data"),
    ] {
        let error = client.execute(&format!("select towpath.{call}"), &[]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "TP002", "{call}");
        assert!(error.message().contains(field), "{call}: {}", error.message());
    }
    let other = db.client_as("towpath_observer").await;
    assert!(other.execute("select towpath.publish('a', '1')", &[]).await.is_err());
}

/// S07: two stores on one database do not divide its messages; the second takes over when the first has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_takes_the_intake_in() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = open(Kind::Embedded, &database, dirs[0].path()).await;
    let second = open(Kind::Embedded, &database, dirs[1].path()).await;
    take_all_in(&database, &first).await;
    db.execute("select towpath.publish('a', '1')").await;
    assert_eq!(intake(&database, &second).run_once().await.unwrap(), Round::NotOurs);
    take_all_in(&database, &first).await;
    assert_eq!(all(&first, "a").await, ["1"]);
    db.execute("select towpath.publish('a', '2')").await;
    db.advance(Duration::from_secs(16)).await;
    take_all_in(&database, &second).await;
    assert_eq!(all(&second, "a").await, ["2"]);
    assert!(intake(&database, &first).run_once().await.unwrap() == Round::NotOurs);
}

/// S07: an idle store is notified of a message, and takes it in without polling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_is_woken() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    let store = open(Kind::Embedded, &database, directory.path()).await;
    let intake = intake(&database, &store);
    let background = Background::start(|shutdown| intake.run(shutdown));
    let armed = "select armed::text from towpath.stream_intake_wake order by wake_no desc limit 1";
    for number in 1..4 {
        db.until(armed, "true").await;
        db.execute(&format!("select towpath.publish('a', '{number}')")).await;
        db.until("select count(*) from towpath.stream_intake", "0").await;
    }
    assert_eq!(all(&store, "a").await, ["1", "2", "3"]);
    background.stop().await;
    shut_down(store).await;
}

/// E08, S07: with the store in the same process, events of a route go through the intake: once, in order, without a
/// sender. What the stream refuses is a dead letter of the route; a retired route leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_leaves_its_events_in_the_intake() {
    let db = TestDb::open().await;
    for (route, domain) in [("orders", "d"), ("notes", "e")] {
        db.call(&format!("fn_route_put('{route}', 'stream', '{{\"stream\": \"{route}\"}}', '{domain}')"))
            .await;
        db.call(&format!("fn_route_mode_set('{route}', 'live', 'tester', 'a test')")).await;
    }
    let database = db.database().await;
    let directory = tempfile::tempdir().unwrap();
    let store = open(Kind::Embedded, &database, directory.path()).await;
    // It holds bytes, and takes no JSON.
    store.create(name("notes"), plain()).await.unwrap();
    let taking = intake(&database, &store).with_routes();
    let taking = Background::start(|shutdown| taking.run(shutdown));
    db.until("select takes_routes::text from towpath.stream_intake_store", "true").await;
    let (router, _) = db.database_as("towpath_router").await;
    let role = Role::new(router, towpath_route::Config::default()).unwrap();
    let role = Background::start(|shutdown| role.run(shutdown));
    db.execute("select towpath.emit('d', 'thing', jsonb_build_object('n', n)) from generate_series(1, 30) n")
        .await;
    db.execute("select towpath.emit('e', 'thing', '{}')").await;

    db.until("select count(*) from towpath.delivery_attempt where outcome = 'delivered'", "30").await;
    db.until("select count(*) from towpath.route_dead_letter where route_name = 'notes'", "1").await;
    db.until("select count(*) from towpath.stream_delivery", "0").await;
    assert_eq!(db.text("select count(*) from towpath.stream_intake").await, "0");
    let events: Vec<serde_json::Value> = all(&*Arc::new(store.clone()), "orders")
        .await
        .iter()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let numbers: Vec<i64> = events.iter().map(|it| it["data"]["payload"]["n"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>());

    taking.stop().await;
    db.execute("select towpath.emit('d', 'thing', '{\"n\": 31}')").await;
    db.until("select count(*) from towpath.stream_intake", "1").await;
    role.stop().await;
    db.call("fn_route_retire('orders', 'tester', 'a test')").await;
    assert_eq!(
        db.text("select count(*) from towpath.stream_intake").await,
        "0",
        "it is cancelled with its delivery"
    );
    shut_down(store).await;
}
