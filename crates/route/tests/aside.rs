//! Senders go on: what one delivery breaks is its own, and told about (Q22).

use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_streams::Store;
use towpath_testkit::TestDb;
use towpath_testkit::receiver::Receiver;

use crate::routing::{emit, hook, start_role};
use crate::stream::{start, store};

const FAULTS: &str =
    "select coalesce(string_agg(loop_name, ', ' order by loop_name), '') from towpath.loop_fault";

const DELIVERED: &str = "select count(*) from towpath.delivery_attempt where outcome = 'delivered'";

/// Live routes into the streams `one` and `two` for every event of the domain `d`.
async fn streams(db: &TestDb) {
    for stream in ["one", "two"] {
        db.call(&format!("fn_route_put('{stream}', 'stream', '{{\"stream\": \"{stream}\"}}', 'd')")).await;
        db.call(&format!("fn_route_mode_set('{stream}', 'live', 'tester', 'a test')")).await;
    }
}

/// Makes the end of some deliveries raise.
async fn plant(db: &TestDb, when: &str) {
    let sql = format!(
        "create function public.planted() returns trigger language plpgsql as \
         $$ begin raise exception 'planted'; end $$; \
         create trigger planted before insert on towpath.delivery_attempt for each row when ({when}) \
         execute function public.planted()"
    );
    db.execute(&sql).await;
}

async fn heal(db: &TestDb) {
    db.execute(
        "drop trigger planted on towpath.delivery_attempt; \
         select towpath.fn_loop_fault_retry(loop_name, item, 'tester') from towpath.loop_fault",
    )
    .await;
}

/// Q22, E08: a route whose url, header, timeout or signing key cannot be read makes dead letters, one by one;
/// the sound route to the same host delivers.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_target_hurts_nobody_else() {
    let db = TestDb::open().await;
    let receiver = Receiver::content().await;
    hook(&db, &receiver.url(), "").await;
    let broken = [
        ("url", "update towpath.outbound_route set target = target || '{\"url\": 7}'"),
        (
            "port",
            "update towpath.outbound_route set target = target || '{\"url\": \"http://127.0.0.1:99999/\"}'",
        ),
        (
            "header",
            "update towpath.outbound_route set target = target || '{\"headers\": {\"x\": {\"y\": 1}}}'",
        ),
        (
            "name",
            "update towpath.outbound_route set target = target || '{\"headers\": {\"not a name\": \"1\"}}'",
        ),
        ("list", "update towpath.outbound_route set target = target || '{\"headers\": [1, 2]}'"),
        ("timeout", "update towpath.outbound_route set target = target || '{\"timeout_seconds\": \"soon\"}'"),
        (
            "key",
            "update towpath.route_secret s set secret = 'whsec_' || repeat('A', 33) from towpath.outbound_route r",
        ),
    ];
    for (route, sql) in broken {
        let put = format!("fn_route_put('{route}', 'webhook', '{{\"url\": \"{}\"}}', 'd')", receiver.url());
        db.call(&put).await;
        db.call(&format!("fn_route_secret_rotate('{route}')")).await;
        db.call(&format!("fn_route_mode_set('{route}', 'live', 'tester', 'a test')")).await;
        let of = if route == "key" { "s.route_no = r.route_no and" } else { "" };
        db.execute(&format!("{sql} where {of} route_name = '{route}'")).await;
    }
    let role = start_role(&db).await;
    emit(&db, 3).await;
    receiver.until_arrived(3).await;
    let letters = "select string_agg(concat_ws(' ', route_name, n), ', ' order by route_name) \
                   from (select route_name, count(*) as n from towpath.route_dead_letter group by 1) x";
    db.until(letters, "header 3, key 3, list 3, name 3, port 3, timeout 3, url 3").await;
    db.until("select count(*) from towpath.delivery", "0").await;
    assert_eq!(receiver.arrived().len(), 3);
    role.stop().await;
}

/// Q22: a webhook whose end cannot be recorded is set aside, the others are delivered, and it ends once it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_end_is_set_aside() {
    let db = TestDb::open().await;
    let receiver = Receiver::content().await;
    hook(&db, &receiver.url(), "").await;
    plant(&db, "new.position = 2").await;
    let role = start_role(&db).await;
    emit(&db, 4).await;
    db.until(DELIVERED, "3").await;
    db.until(FAULTS, "webhook_delivery").await;
    heal(&db).await;
    // Its lease has to run out first.
    db.advance(std::time::Duration::from_secs(16)).await;
    db.until("select count(*) from towpath.delivery", "0").await;
    db.until(FAULTS, "").await;
    role.stop().await;
}

/// Q22: a stream whose end cannot be recorded is set aside; the other stream of the same sender goes on, and it
/// does too once it can, with every event once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_end_is_set_aside() {
    let db = TestDb::open().await;
    streams(&db).await;
    plant(&db, "new.address like 'stream default/one %'").await;
    let (_dir, store) = store();
    let role = start(&db, &store).await;
    for round in 1..=2 {
        emit(&db, 5).await;
        db.until(DELIVERED, &(round * 5).to_string()).await;
    }
    db.until(FAULTS, "stream_delivery").await;
    heal(&db).await;
    db.advance(std::time::Duration::from_secs(31)).await;
    db.until("select count(*) from towpath.stream_delivery", "0").await;
    db.until(FAULTS, "").await;
    let name = StreamName::new("default", "one").unwrap();
    let page = store.read(&name, Start::Beginning, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(page.batch.data()).into_owned();
    assert_eq!(text.matches("\"position\"").count(), 10, "{text}");
    role.stop().await;
}

/// Q22, E08: a route that is switched off before its first append leaves its stream due at `-infinity`; the other
/// streams go on, and it does once its route is live again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_route_that_is_off_stops_nobody() {
    let db = TestDb::open().await;
    streams(&db).await;
    emit(&db, 5).await;
    db.call("fn_event_sequence()").await;
    db.call("fn_route_worker_run('default', 1000)").await;
    db.call("fn_route_mode_set('one', 'off', 'tester', 'a test')").await;
    let (_dir, store) = store();
    let role = start(&db, &store).await;
    emit(&db, 5).await;
    db.until(DELIVERED, "10").await;
    db.call("fn_route_mode_set('one', 'live', 'tester', 'a test')").await;
    db.until(DELIVERED, "15").await;
    role.stop().await;
}
