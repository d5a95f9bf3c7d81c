//! Deliveries to streams: exactly once and in order (E08).

use std::sync::Arc;

use serde_json::Value;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_route::stream::Local;
use towpath_route::{Config, Role};
use towpath_streams::embedded::{self, Embedded};
use towpath_streams::{Append, Store};
use towpath_testkit::TestDb;
use towpath_testkit::background::Background;

use crate::routing::emit;

const LEFT: &str = "select count(*) from towpath.stream_delivery";

/// A live route into the stream `orders` for every event of the domain `d`.
async fn route(db: &TestDb) {
    db.call(r#"fn_route_put('orders', 'stream', '{"stream": "orders"}', 'd')"#).await;
    db.call("fn_route_mode_set('orders', 'live', 'tester', 'a test')").await;
}

pub(crate) fn store() -> (tempfile::TempDir, Arc<Embedded>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(embedded::Config::new(dir.path().join("streams"))).unwrap();
    (dir, Arc::new(store))
}

pub(crate) async fn start(db: &TestDb, store: &Arc<Embedded>) -> Background {
    let (database, _) = db.database_as("towpath_router").await;
    let role = Role::new(database, Config::default()).unwrap().streams(Arc::new(Local::new(store.clone())));
    Background::start(|shutdown| role.run(shutdown))
}

/// The positions of the events in the stream, in its order.
async fn positions(store: &Embedded) -> Vec<i64> {
    let name = StreamName::new("default", "orders").unwrap();
    let page = store.read(&name, Start::Beginning, usize::MAX).await.unwrap();
    let stored = page.batch.data().strip_suffix(b",").unwrap();
    let all: Vec<Value> = serde_json::from_slice(&[b"[", stored, b"]"].concat()).unwrap();
    all.iter().map(|event| event["data"]["position"].as_i64().unwrap()).collect()
}

async fn all_delivered(db: &TestDb, events: usize) {
    db.until("select count(*) from towpath.route_attempt where decision = 'sent'", &events.to_string()).await;
    db.until(LEFT, "0").await;
}

/// E08: four roles append what three slices route; the stream gets every event once, and those of a
/// key in their order.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gets_every_event_once_and_in_order() {
    let db = TestDb::open().await;
    route(&db).await;
    db.call("fn_route_worker_put('default', 3, 0)").await;
    let (_dir, store) = store();
    let mut roles = vec![];
    for _ in 0..4 {
        roles.push(start(&db, &store).await);
    }
    for _ in 0..10 {
        emit(&db, 30).await;
    }
    all_delivered(&db, 300).await;
    let mut appended = positions(&store).await;
    for slice in 0..3 {
        let sql = format!(
            "select array_agg(position order by position)::text from towpath.event_position \
                           where abs(key_hash::bigint) % 3 = {slice}"
        );
        let mine: Vec<i64> = db
            .text(&sql)
            .await
            .trim_matches(['{', '}'])
            .split(',')
            .map(|text| text.parse().unwrap())
            .collect();
        let kept: Vec<i64> = appended.iter().copied().filter(|position| mine.contains(position)).collect();
        assert_eq!(kept, mine, "slice {slice} is in order");
    }
    appended.sort_unstable();
    assert_eq!(appended, (1..=300).collect::<Vec<i64>>(), "every event once");
    for role in roles {
        role.stop().await;
    }
}

/// E08: a sender dies after it appended and before it reported: the next sender appends nothing twice.
/// The test restores the dead sender's lease.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_nobody_recorded_is_not_repeated() {
    let db = TestDb::open().await;
    route(&db).await;
    let (_dir, store) = store();
    // A killed sender leaves rows that the stream already has.
    db.execute("create table kept as select * from towpath.stream_delivery").await;
    db.execute(
        "create function keep() returns trigger language plpgsql security definer as \
         $$ begin insert into public.kept select new.*; return new; end $$;
         create trigger keep after insert on towpath.stream_delivery for each row execute function public.keep();
         grant all on kept to public",
    )
    .await;
    let role = start(&db, &store).await;
    emit(&db, 20).await;
    all_delivered(&db, 20).await;
    let before = positions(&store).await;
    db.execute("drop trigger keep on towpath.stream_delivery").await;
    db.execute("insert into towpath.stream_delivery select * from kept").await;
    db.until(LEFT, "0").await;
    assert_eq!(positions(&store).await, before);
    emit(&db, 1).await;
    all_delivered(&db, 21).await;
    assert_eq!(positions(&store).await, (1..=21).collect::<Vec<i64>>(), "and it goes on behind");
    role.stop().await;
}

/// E08: a database that was restored from a backup has lower numbers than the stream. The route continues
/// as a new producer, so that new events are not rejected as duplicates, and emits a warning event.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_does_not_lose_events_to_old_numbers() {
    let db = TestDb::open().await;
    route(&db).await;
    let (_dir, store) = store();
    let role = start(&db, &store).await;
    emit(&db, 10).await;
    all_delivered(&db, 10).await;
    db.execute("update towpath.route_stream set last_number = 3").await;
    emit(&db, 2).await;
    all_delivered(&db, 12).await;
    assert_eq!(positions(&store).await, (1..=12).collect::<Vec<i64>>());
    let warned = "select count(*) from towpath.event_outbox where event_type = 'route.stream_restored'";
    assert_eq!(db.text(warned).await, "1");
    role.stop().await;
}

/// E06, E08: a closed stream takes no more events: they become dead letters, and other streams do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_has_ended_makes_dead_letters() {
    let db = TestDb::open().await;
    route(&db).await;
    let (_dir, store) = store();
    let role = start(&db, &store).await;
    emit(&db, 1).await;
    all_delivered(&db, 1).await;
    let name = StreamName::new("default", "orders").unwrap();
    store.append(name, Append { close: true, ..Append::default() }).await.unwrap();
    emit(&db, 3).await;
    db.until("select count(*) from towpath.route_dead_letter where resolved_at is null", "3").await;
    assert_eq!(db.text(LEFT).await, "0");
    role.stop().await;
}
