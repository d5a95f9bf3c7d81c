//! The order of a key: what it caused comes in the order in which it happened (E09).

use std::collections::BTreeMap;

use towpath_route::Config;
use towpath_testkit::TestDb;

use crate::routing::{jobs, start_role_with};

const WRITERS: usize = 6;
const KEYS: usize = 5;
const EVENTS: usize = 40;

/// Keys whose numbers are not exactly 1, 2, 3 … up to `last`.
fn out_of_order(seen: &[(String, i32)], last: usize) -> Vec<String> {
    let mut by_key: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (key, number) in seen {
        by_key.entry(key).or_default().push(*number);
    }
    let wanted: Vec<i32> = (1..=last as i32).collect();
    by_key.iter().filter(|(_, numbers)| **numbers != wanted).map(|(key, n)| format!("{key}: {n:?}")).collect()
}

/// A checker that cannot fail proves nothing.
#[test]
fn the_checker_sees_disorder() {
    let seen = |numbers: &[i32]| numbers.iter().map(|n| ("k".to_owned(), *n)).collect::<Vec<_>>();
    assert!(out_of_order(&seen(&[1, 2, 3]), 3).is_empty());
    for bad in [&[1, 3, 2][..], &[1, 2], &[1, 2, 2, 3], &[2, 3]] {
        assert_eq!(out_of_order(&seen(bad), 3).len(), 1, "{bad:?}");
    }
}

/// E09: three roles of two passes each share four slices, which are cut again in the middle. The jobs of
/// every key are made in the order of its events, and claimed in it.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_key_become_jobs_in_order() {
    let db = TestDb::open().await;
    jobs(&db).await;
    db.call("fn_route_worker_put('default', 4, 0)").await;
    let mut roles = vec![];
    for _ in 0..3 {
        roles.push(start_role_with(&db, Config { passes: 2, ..Config::default() }).await);
    }
    // A key has one writer, so that its order is known; every number is a commit of its own.
    let mut writers = vec![];
    for writer in 0..WRITERS {
        let client = db.client().await;
        writers.push(tokio::spawn(async move {
            let emit = "select towpath.fn_event_emit('d', 't', p_ordering_key => $1, \
                        p_payload => jsonb_build_object('number', $2::int))";
            for number in 1..=EVENTS as i32 {
                for key in 0..KEYS {
                    let key = format!("key {writer}.{key}");
                    client.query_one(emit, &[&key, &number]).await.unwrap();
                }
            }
        }));
    }
    for slices in [3, 7, 4] {
        db.call(&format!("fn_route_worker_put('default', {slices})")).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let total = WRITERS * KEYS * EVENTS;
    db.until("select count(*) from towpath.job", &total.to_string()).await;
    for role in roles {
        role.stop().await;
    }
    let client = db.client().await;
    let of = |rows: &[tokio_postgres::Row]| -> Vec<(String, i32)> {
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let made = "select o.ordering_key, (o.payload ->> 'number')::int from towpath.job j \
                join towpath.event_outbox o on 'event:' || o.event_id = j.source_ref order by j.job_id";
    let made = of(&client.query(made, &[]).await.unwrap());
    assert_eq!(made.len(), total);
    let bad = out_of_order(&made, EVENTS);
    assert!(bad.is_empty(), "{} keys were made out of order: {:?}", bad.len(), bad.first());

    db.call("fn_consumer_put('worker', 'PG_worker')").await;
    db.call("fn_job_subscription_put('worker', 'PG_worker', p_enabled => true, p_max_parallel => 10000)")
        .await;
    let claim = "select o.ordering_key, (o.payload ->> 'number')::int \
                   from towpath.fn_job_claim_rows('worker', p_limit => 37) with ordinality c \
                   join towpath.event_outbox o on 'event:' || o.event_id = c.source_ref order by c.ordinality";
    let mut claimed = vec![];
    loop {
        let rows = client.query(claim, &[]).await.unwrap();
        if rows.is_empty() {
            break;
        }
        claimed.extend(of(&rows));
    }
    assert_eq!(claimed.len(), total, "every job was claimed");
    let bad = out_of_order(&claimed, EVENTS);
    assert!(bad.is_empty(), "{} keys were claimed out of order: {:?}", bad.len(), bad.first());
}
