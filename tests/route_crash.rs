//! Events while roles are killed at every fail point, and PostgreSQL in the middle of a pass.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::{Client, NoTls};
use towpath_testkit::TestDb;
use towpath_testkit::receiver::Receiver;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::{self, until_some, until_true};

use crate::towpath::Place;

/// Where a role can die: before and after every call whose effect is in the database, and between
/// sending a webhook and recording it.
const FAIL_POINTS: [&str; 8] = [
    "sequence.before",
    "sequence.after",
    "route.before",
    "route.after",
    "delivery.before_claim",
    "delivery.after_claim",
    "delivery.after_send",
    "delivery.after_end",
];

/// The outcome of one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fate {
    jobs: i64,
    /// Requests with its webhook id, by body.
    webhooks: Vec<String>,
    /// Attempts whose sender died before it recorded their end.
    lost: i64,
}

/// The violations: an event must have made one job, and its webhook must have arrived once, plus at most once more
/// for every sender that died with it; each time with the same body.
fn violations(fates: &BTreeMap<String, Fate>) -> Vec<String> {
    let mut found = vec![];
    for (event, fate) in fates {
        let came = fate.webhooks.len() as i64;
        if fate.jobs != 1 {
            found.push(format!("{event} made {} jobs", fate.jobs));
        }
        if came == 0 {
            found.push(format!("the webhook of {event} was lost"));
        }
        if came > 1 + fate.lost {
            found.push(format!("the webhook of {event} came {came} times, {} senders died", fate.lost));
        }
        if fate.webhooks.windows(2).any(|pair| pair[0] != pair[1]) {
            found.push(format!("the webhook of {event} changed"));
        }
    }
    found
}

/// The checker finds every kind of bad history.
#[test]
fn the_checker_sees_bad_fates() {
    let one = |jobs, webhooks: &[&str], lost| {
        let webhooks = webhooks.iter().map(|body| (*body).to_owned()).collect();
        violations(&[("e".to_owned(), Fate { jobs, webhooks, lost })].into()).join("; ")
    };
    assert_eq!(one(1, &["a"], 0), "");
    assert_eq!(one(1, &["a", "a"], 1), "");
    for (found, word) in [
        (one(0, &["a"], 0), "made 0 jobs"),
        (one(2, &["a"], 0), "made 2 jobs"),
        (one(1, &[], 3), "was lost"),
        (one(1, &["a", "a"], 0), "came 2 times"),
        (one(1, &["a", "b"], 1), "changed"),
    ] {
        assert!(found.contains(word), "{found}");
    }
}

/// E03, E08, E09: a role is killed with SIGKILL at every fail point, the first and the third time
/// it comes there, while another role runs too. Every event makes one job, and no webhook
/// is lost or sent more often than senders died with it. The proxy of the environment is not used.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_killed_at_every_fail_point_loses_and_repeats_nothing() {
    let (place, db) = (Place::new(), TestDb::open().await);
    let receiver = Receiver::content().await;
    prepare(&db, &receiver.url()).await;
    let beside = role(&place, &db, None);
    let mut events = 0;
    for point in FAIL_POINTS {
        for time in ["1", "3"] {
            let mut victim = role(&place, &db, Some(&format!("{point}:{time}")));
            // The one beside it takes its share; go on until the victim got to its point.
            until_true(format!("the victim's death at {point}"), async || {
                if victim.is_running() {
                    events += emit(&db, 5).await;
                }
                !victim.is_running()
            })
            .await;
            let status = victim.wait_exit().await;
            assert_eq!(status.signal(), Some(9), "{point}: {:?}", victim.lines());
        }
    }
    let fates = all_delivered(&db, &receiver, events).await;
    let found = violations(&fates);
    assert!(found.is_empty(), "{} violations, the first: {:?}", found.len(), found.first());
    let lost: i64 = fates.values().map(|fate| fate.lost).sum();
    assert!(lost > 0, "no sender died with a webhook: nothing was tested");
    let verified = db.json("towpath.fn_event_verify(true)").await;
    assert_eq!(verified["passed"], true, "{verified}");
    beside.terminate();
}

/// E08: a role is killed before, between and after its appends to a stream of another process. The
/// stream has every event once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_killed_while_it_appends_repeats_nothing() {
    let (place, db) = (Place::new(), TestDb::open().await);
    let server = Victim::spawn(place.command(&["serve"]));
    server.wait_for_line("towpath is ready").await;
    for call in [
        r#"fn_route_put('orders', 'stream', '{"stream": "orders"}', 'd')"#,
        "fn_route_mode_set('orders', 'live', 'tester', 'a test')",
    ] {
        assert_eq!(db.json(&format!("towpath.{call}")).await["ok"], true, "{call}");
    }
    let mut events = 0;
    for point in ["stream.before_append", "stream.between:1", "stream.between:7", "stream.after_append"] {
        let mut victim = role(&place, &db, Some(point));
        events += emit(&db, 10).await;
        let status = victim.wait_exit().await;
        assert_eq!(status.signal(), Some(9), "{point}: {:?}", victim.lines());
        // Its lease runs out at once.
        db.advance(Duration::from_secs(31)).await;
    }
    let last = role(&place, &db, None);
    let left =
        "select count(*) || ' ' || (select count(*) from towpath.route_attempt) from towpath.stream_delivery";
    db.until(left, &format!("0 {events}")).await;
    let url = format!("http://127.0.0.1:{}/v1/stream/orders", place.port);
    let read: serde_json::Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let positions: Vec<i64> =
        read.as_array().unwrap().iter().map(|event| event["data"]["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, (1..=events).collect::<Vec<i64>>());
    last.terminate();
    server.terminate();
}

/// E02, E03: PostgreSQL is ended as by `pg_ctl -m immediate` while a pass is in the middle of its
/// work: the sequencer's before its positions are written, the worker's after its jobs are. Both
/// are done again from the start, and leave nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_killed_during_a_pass_loses_and_repeats_nothing() {
    let place = Place::new();
    let up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let client = connect(&place).await;
    let put = r#"select towpath.fn_route_put('jobs', 'job', '{"job_kind": "k"}', 'd')"#;
    client.batch_execute(put).await.unwrap();
    let live = "select towpath.fn_route_mode_set('jobs', 'live', 'tester', 'a test')";
    client.batch_execute(live).await.unwrap();
    let mut events = 0;
    for table in ["event_position", "route_attempt"] {
        let client = connect(&place).await;
        let holder = connect(&place).await;
        // A process that writes here waits in the middle of its pass.
        holder.batch_execute(&format!("begin; lock towpath.{table} in share mode")).await.unwrap();
        client.batch_execute(EMIT).await.unwrap();
        events += 100;
        let waits = "select exists (select 1 from pg_locks l join pg_class c on c.oid = l.relation \
                     where not l.granted and c.relname like $1 || '%')::text";
        let look = async || client.query_one(waits, &[&table]).await.unwrap().get::<_, String>(0) == "true";
        until_true(format!("a pass that comes to {table}"), look).await;
        let postmaster = place.postmaster().unwrap();
        kill(Pid::from_raw(postmaster), Signal::SIGQUIT).unwrap();
        place.until_other_postmaster(postmaster).await;
    }
    let counted = "select count(*) || ' ' || count(distinct source_ref) from towpath.job";
    let wanted = format!("{events} {events}");
    let look = async || -> Option<String> {
        let row = try_connect(&place).await?.query_one(counted, &[]).await;
        row.map(|row| row.get(0)).ok()
    };
    wait::until("one job for every event", look, |counted| counted.as_ref() == Some(&wanted)).await;
    let verify = "select (towpath.fn_event_verify(true) ->> 'passed')";
    let passed: String = connect(&place).await.query_one(verify, &[]).await.unwrap().get(0);
    assert_eq!(passed, "true");
    up.terminate();
}

const EMIT: &str = "select towpath.fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', \
                    'event_type', 't', 'subject_ref', n::text)) from generate_series(1, 100) n))";

/// A route to jobs and one to a webhook, for every event.
async fn prepare(db: &TestDb, url: &str) {
    for call in [
        r#"fn_route_put('jobs', 'job', '{"job_kind": "k"}', 'd')"#.to_owned(),
        format!(r#"fn_route_put('hook', 'webhook', '{{"url": "{url}"}}', 'd')"#),
        "fn_route_secret_rotate('hook')".to_owned(),
        "fn_route_mode_set('jobs', 'live', 'tester', 'a test')".to_owned(),
        "fn_route_mode_set('hook', 'live', 'tester', 'a test')".to_owned(),
        "fn_route_worker_put('default', 3, 0)".to_owned(),
    ] {
        db.call(&call).await;
    }
}

fn role(place: &Place, db: &TestDb, fail_point: Option<&str>) -> Victim {
    let mut command = place.command(&["route", "--webhook-local"]);
    command.env("DATABASE_URL", db.url());
    // Nobody listens there: a webhook that went through it would not arrive.
    command.env("HTTP_PROXY", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1");
    if let Some(point) = fail_point {
        command.env("TOWPATH_TEST_FAIL_POINT", point);
    }
    Victim::spawn(command)
}

async fn emit(db: &TestDb, count: i64) -> i64 {
    let sql = EMIT.replace("100", &count.to_string());
    db.execute(&sql).await;
    count
}

/// The outcome of every event, after everything has ended.
async fn all_delivered(db: &TestDb, receiver: &Receiver, events: i64) -> BTreeMap<String, Fate> {
    let left = "select (select count(*) from towpath.job) || ' ' || (select count(*) from towpath.delivery)";
    let look = async || {
        // Leases of the dead run out at once.
        db.advance(Duration::from_secs(20)).await;
        db.text(left).await
    };
    wait::until("every job and every delivery", look, |left| *left == format!("{events} 0")).await;
    let arrived = receiver.arrived();
    let rows = db
        .client()
        .await
        .query(
            "select o.event_id::text, \
                    (select count(*) from towpath.job j where j.source_ref = 'event:' || o.event_id), \
                    (select count(*) from towpath.delivery_attempt a \
                      where a.event_id = o.event_id and a.outcome = 'lost') \
               from towpath.event_outbox o where o.event_domain = 'd'",
            &[],
        )
        .await
        .unwrap();
    let fate = |row: &tokio_postgres::Row| {
        let event: String = row.get(0);
        let id = format!("wh_{}_", event.replace('-', ""));
        let mine = arrived.iter().filter(|webhook| webhook.header("webhook-id").starts_with(&id));
        let webhooks = mine.map(|webhook| String::from_utf8(webhook.body.to_vec()).unwrap()).collect();
        (event, Fate { jobs: row.get(1), webhooks, lost: row.get(2) })
    };
    rows.iter().map(fate).collect()
}

async fn connect(place: &Place) -> Client {
    until_some("a connection to PostgreSQL", async || try_connect(place).await).await
}

async fn try_connect(place: &Place) -> Option<Client> {
    let url = String::from_utf8(place.run(&["db", "url"]).stdout).unwrap();
    let (client, connection) = tokio_postgres::connect(url.trim(), NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}
