//! The race: writers that commit late, roll back and react to each other, against four roles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use towpath_route::Config;
use towpath_testkit::TestDb;

use crate::routing::{jobs, start_role_with};

/// What is wrong with a run: every committed event must have made exactly one job, nothing else
/// may have, and no effect may have been numbered before its cause.
fn violations(committed: &[(String, Option<String>)], routed: &[(String, i64)]) -> Vec<String> {
    let mut found = vec![];
    let mut position = BTreeMap::new();
    for (event, at) in routed {
        if position.insert(event.as_str(), *at).is_some() {
            found.push(format!("{event} was routed twice"));
        }
    }
    let known: BTreeSet<&str> = committed.iter().map(|(event, _)| event.as_str()).collect();
    found.extend(
        position.keys().filter(|event| !known.contains(**event)).map(|event| format!("{event} never was")),
    );
    for (event, cause) in committed {
        let Some(at) = position.get(event.as_str()) else {
            found.push(format!("{event} was lost"));
            continue;
        };
        if let Some(before) = cause.as_ref().and_then(|cause| position.get(cause.as_str()))
            && before >= at
        {
            found.push(format!("{event} came before its cause"));
        }
    }
    found
}

/// A checker that cannot fail proves nothing.
#[test]
fn the_checker_sees_bad_histories() {
    let event = |name: &str, cause: Option<&str>| (name.to_owned(), cause.map(str::to_owned));
    let committed = [event("a", None), event("b", Some("a"))];
    let routed =
        |list: &[(&str, i64)]| list.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
    assert_eq!(violations(&committed, &routed(&[("a", 1), ("b", 2)])), Vec::<String>::new());
    for (bad, word) in [
        (routed(&[("a", 1)]), "lost"),
        (routed(&[("a", 1), ("b", 2), ("b", 3)]), "twice"),
        (routed(&[("a", 1), ("b", 2), ("c", 3)]), "never was"),
        (routed(&[("a", 2), ("b", 1)]), "before its cause"),
    ] {
        let found = violations(&committed, &bad);
        assert!(found.iter().any(|words| words.contains(word)), "{bad:?}: {found:?}");
    }
}

/// E03, E09: sixteen writers with late commits and rollbacks, four roles on four slices: nothing
/// lost, nothing twice, cause before effect. A cursor on (created_at, id) at their side loses
/// events: the control. `bench/events race` runs the same for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_four_roles() {
    let db = TestDb::open().await;
    jobs(&db).await;
    db.call("fn_route_worker_put('default', 4, 0)").await;
    let mut roles = vec![];
    for _ in 0..4 {
        roles.push(start_role_with(&db, Config { passes: 1, ..Config::default() }).await);
    }
    let until_then = Instant::now() + Duration::from_secs(4);
    let naive = tokio::spawn(naive_cursor(db.client().await, until_then));
    let mut writers = vec![];
    for number in 0..16 {
        writers.push(tokio::spawn(write(db.client().await, number, until_then)));
    }
    let mut committed = vec![];
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    let count = committed.len();
    db.until("select count(*) from towpath.job", &count.to_string()).await;
    for role in roles {
        role.stop().await;
    }
    let rows = db
        .client()
        .await
        .query(
            "select split_part(j.source_ref, ':', 2), p.position from towpath.job j \
             join towpath.event_position p on p.event_id = split_part(j.source_ref, ':', 2)::uuid",
            &[],
        )
        .await
        .unwrap();
    let routed: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let found = violations(&committed, &routed);
    assert!(found.is_empty(), "{} violations of {count}, the first: {:?}", found.len(), found.first());
    let seen = naive.await.unwrap();
    let lost = committed.iter().filter(|(event, _)| !seen.contains(event)).count();
    assert!(lost > 0, "the control lost none of {count} events: this race proves nothing");
}

/// Writes events, each naming the newest it saw as its cause, and answers those it committed.
async fn write(client: tokio_postgres::Client, number: u32, until: Instant) -> Vec<(String, Option<String>)> {
    let (mut committed, mut turn) = (vec![], number * 7 + 1);
    while Instant::now() < until {
        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let dice = turn >> 16;
        client.batch_execute("begin").await.unwrap();
        let last = "select event_id::text from towpath.event_outbox order by id desc limit 1";
        let cause: Option<String> = client.query_opt(last, &[]).await.unwrap().map(|row| row.get(0));
        let emit = "select towpath.fn_event_emit('d', 't', p_subject_ref => $1)";
        let answer: Value = client.query_one(emit, &[&dice.to_string()]).await.unwrap().get(0);
        if dice % 4 == 0 {
            let nap = format!("select pg_sleep({})", f64::from(dice % 60) / 1000.0);
            client.batch_execute(&nap).await.unwrap();
        }
        let end = if dice % 20 == 3 { "rollback" } else { "commit" };
        client.batch_execute(end).await.unwrap();
        if end == "commit" {
            committed.push((answer["event_id"].as_str().unwrap().to_owned(), cause));
        }
    }
    committed
}

/// The control: a reader that remembers the last (created_at, id) it saw.
async fn naive_cursor(client: tokio_postgres::Client, until: Instant) -> BTreeSet<String> {
    let sql = "select event_id::text, created_at::text, id from towpath.event_outbox \
               where (created_at, id) > ($1::text::timestamptz, $2) order by created_at, id limit 1000";
    let (mut at, mut id) = ("-infinity".to_owned(), 0_i64);
    let mut seen = BTreeSet::new();
    // A little longer than the writers, so that it misses nothing for lack of time.
    while Instant::now() < until + Duration::from_secs(1) {
        let rows = client.query(sql, &[&at, &id]).await.unwrap();
        for row in &rows {
            seen.insert(row.get(0));
            (at, id) = (row.get(1), row.get(2));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    seen
}
