//! The role as a whole: from a commit to a job.

use serde_json::{Value, json};
use towpath_route::Config;
use towpath_testkit::TestDb;

use crate::routing::{emit, jobs, start_role, start_role_with};

const JOBS: &str = "select count(*) from towpath.job";

/// E02, E03: an event becomes a job without anybody asking; with notifications and without.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_becomes_a_job() {
    for listen in [true, false] {
        let db = TestDb::open().await;
        jobs(&db).await;
        let role = start_role_with(&db, Config { listen, ..Config::default() }).await;
        for wanted in ["1", "2", "3"] {
            emit(&db, 1).await;
            db.until(JOBS, wanted).await;
        }
        role.stop().await;
    }
}

/// E03: a writer that stays open delays nobody, and its own event is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_writer_delays_nobody() {
    let db = TestDb::open().await;
    jobs(&db).await;
    let role = start_role(&db).await;
    let idle = db.rival().await;
    idle.run("begin; select towpath.fn_event_emit('d', 'late')").await;
    for turn in 1..=20 {
        emit(&db, 5).await;
        db.until(JOBS, &(turn * 5).to_string()).await;
    }
    idle.run("commit").await;
    db.until(JOBS, "101").await;
    role.stop().await;
}

/// E07: a dry run makes nothing and does not use up the live delivery; a cursor that is set back
/// delivers nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn dry_run_then_live_then_a_reset_cursor() {
    let db = TestDb::open().await;
    jobs(&db).await;
    db.call("fn_route_mode_set('jobs', 'dry_run', 'tester', 'a look first')").await;
    let role = start_role(&db).await;
    emit(&db, 50).await;
    let decisions = "select string_agg(distinct decision, ',') || ' ' || count(*) from towpath.route_attempt";
    db.until(decisions, "dry_run 50").await;
    assert_eq!(db.text(JOBS).await, "0");
    db.call("fn_route_mode_set('jobs', 'live', 'tester', 'looks good')").await;
    db.call("fn_route_worker_put('default', 1, 0)").await;
    db.until(JOBS, "50").await;
    // The cursor goes back to the start and the slices are cut again, many times, while events come in.
    for slices in [1, 4, 3, 2] {
        emit(&db, 10).await;
        db.call(&format!("fn_route_worker_put('default', {slices}, 0)")).await;
    }
    db.until(JOBS, "90").await;
    db.until("select min(position) from towpath.v_route_worker_cursor", "90").await;
    assert_eq!(db.text(JOBS).await, "90", "nothing twice");
    role.stop().await;
}

/// E06: one poison event in a thousand: 999 jobs, one dead letter that replays after the fix.
#[tokio::test(flavor = "multi_thread")]
async fn one_poison_event_in_a_thousand() {
    let db = TestDb::open().await;
    db.call(r#"fn_route_put('jobs', 'job', '{"job_kind": "k", "from_payload": {"priority": "p"}}', 'd')"#)
        .await;
    db.call("fn_route_mode_set('jobs', 'live', 'tester', 'a test')").await;
    let role = start_role(&db).await;
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'payload', jsonb_build_object('p', case when n = 500 then to_jsonb('poison'::text) else to_jsonb(7) end))) \
                from generate_series(1, 1000) n))";
    db.call(many).await;
    db.until(JOBS, "999").await;
    let letters = db.call("fn_route_dead_letter_list()").await;
    assert_eq!(letters["dead_letters"].as_array().unwrap().len(), 1);
    let letter = letters["dead_letters"][0]["dead_letter_id"].as_str().unwrap();
    db.call(r#"fn_route_put('jobs', 'job', '{"job_kind": "k"}', 'd')"#).await;
    let replayed = db.call(&format!("fn_route_dead_letter_replay('{letter}', 'tester')")).await;
    assert_eq!(replayed["resolved"], true);
    assert_eq!(db.text(JOBS).await, "1000");
    role.stop().await;
}

/// E04, O02: a closed gate is a rest, not an end; the role goes on when it opens.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_gate_is_a_rest() {
    for gate in ["event.routing.enabled", "event.route_worker.enabled", "queue.job_substrate.enabled"] {
        let db = TestDb::open().await;
        jobs(&db).await;
        db.call(&format!("fn_gate_set('{gate}', false, 'tester', 'a test')")).await;
        let role = start_role(&db).await;
        emit(&db, 3).await;
        db.until("select count(*) from towpath.event_position", "3").await;
        assert_eq!(db.text(JOBS).await, "0", "{gate}");
        db.call(&format!("fn_gate_set('{gate}', true, 'tester', 'a test')")).await;
        db.until(JOBS, "3").await;
        role.stop().await;
    }
}

/// E09: a slice that somebody holds keeps only itself waiting, and its holder's death frees it.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_slice_keeps_only_itself_waiting() {
    let db = TestDb::open().await;
    jobs(&db).await;
    db.call("fn_route_worker_put('default', 4, 0)").await;
    let holder = db.rival().await;
    holder.run("begin; select 1 from towpath.route_worker_cursor where slice = 2 for update").await;
    let role = start_role(&db).await;
    emit(&db, 400).await;
    db.until("select count(*) from towpath.event_position", "400").await;
    db.until("select (select sum(lag) from towpath.v_route_worker_cursor where slice <> 2)", "0").await;
    assert!(db.text(JOBS).await.parse::<i64>().unwrap() < 400, "slice 2 waits");
    let who = db.call("fn_event_verify()").await;
    let lag = who["checks"].as_array().unwrap().iter().find(|check| check["check"] == "W9_lag").unwrap();
    let named = |cursors: &Value| cursors[2]["held_by"]["pid"].as_i64().is_some();
    assert!(named(&lag["cursors"]), "the check names who holds it: {lag}");
    let list = db.call("fn_route_worker_list()").await;
    assert!(named(&list["workers"][0]["cursors"]), "and so does the list: {list}");
    assert_eq!(db.text("select worker_lag > 0 from towpath.v_route_health").await, "true");
    holder.run("rollback").await;
    db.until(JOBS, "400").await;
    role.stop().await;
}

/// E02: an error in one slice's pass does not stop the others, and goes away with its cause.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_pass_is_tried_again() {
    let db = TestDb::open().await;
    jobs(&db).await;
    // Fails as a lack of resources does, until it is taken away. A sequence keeps what a rolled
    // back pass leaves behind: how often it was tried.
    db.execute(
        "create sequence towpath._tries;
         create function towpath._full() returns trigger language plpgsql as \
         $$ begin perform nextval('towpath._tries'); raise exception 'no room' using errcode = 'disk_full'; end $$;
         create trigger full_disk before insert on towpath.job_ready execute function towpath._full();
         grant usage on sequence towpath._tries to towpath_owner",
    )
    .await;
    let role = start_role(&db).await;
    emit(&db, 10).await;
    db.until("select last_value >= 3 from towpath._tries", "true").await;
    db.execute("drop trigger full_disk on towpath.job_ready").await;
    db.until(JOBS, "10").await;
    assert_eq!(db.json("select to_jsonb(count(*)) from towpath.route_dead_letter").await, json!(0));
    role.stop().await;
}
