//! How processes end when things go wrong: killed workers, late answers, races, the clock.

use std::time::Duration;

use serde_json::{Value, json};

use crate::process_kit::{DEADLINE, LEASE, Processes, SECOND, Send};

/// P08: a worker killed between the beginning and the outcome: the lease runs out, the attempt is
/// lost, and the next one has the same key and the same frozen content.
#[tokio::test]
async fn a_killed_worker_is_followed_by_the_same_key_and_content() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    let first = place.begin(&send, 1, false).await;
    assert_eq!(first["success"], true, "{first}");
    // Whatever happens to the message now, what was begun stays as it is.
    place.execute("update comms.email_message set subject = 'changed', text_body = 'changed'").await;
    place.advance(LEASE - SECOND).await;
    assert_eq!(place.scan().await["checked"], 0, "the lease still holds");
    place.advance(SECOND).await;
    assert_eq!(place.scan().await["checked"], 1);
    assert_eq!(
        place.facts(&send.process).await,
        ["started", "scheduled 1", "begun 1", "lost 1", "scheduled 2"]
    );
    let second = place.begin(&send, 2, false).await;
    for part in ["idempotency_key", "from", "to", "subject", "text", "html", "headers"] {
        assert_eq!(first["payload"][part], second["payload"][part], "{part}");
    }
    assert_eq!(second["payload"]["idempotency_key"], send.process.as_str());
    assert_eq!(place.succeed(&send, 2).await["success"], true);
    let lost = place
        .text("select string_agg(attempt_no || ' ' || begun, ',') from comms.send_email_task_lost")
        .await;
    assert_eq!(lost, "1 true");
    assert_eq!(place.state(&send.process).await, "succeeded");
    place.check().await;
}

/// P08: the job substrate runs a job again, or two workers have it: the attempt is begun once.
#[tokio::test]
async fn an_attempt_is_begun_once() {
    let place = Processes::open().await;
    let send = place.send("sms").await;
    assert_eq!(place.begin(&send, 1, false).await["success"], true);
    let again = place.begin(&send, 1, false).await;
    assert_eq!(again["success"], false);
    assert!(
        again["validation_failure_message"].as_str().unwrap().contains("already started by w1"),
        "{again}"
    );
    assert_eq!(again["payload"], Value::Null, "nothing to send");
    assert_eq!(place.facts(&send.process).await, ["started", "scheduled 1", "begun 1"]);
}

/// P06: a second outcome of the same attempt is refused, whatever it says.
#[tokio::test]
async fn an_outcome_is_recorded_once() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.begin(&send, 1, false).await;
    assert_eq!(place.succeed(&send, 1).await["success"], true);
    for again in [place.succeed(&send, 1).await, place.fail(&send, 1, json!("late")).await] {
        assert_eq!(again["success"], false);
        assert!(
            again["validation_failure_message"].as_str().unwrap().contains("has already ended"),
            "{again}"
        );
    }
    assert_eq!(place.facts(&send.process).await, ["started", "scheduled 1", "begun 1", "succeeded 1"]);
    let never = place.send("email").await;
    let unbegun = place.succeed(&never, 1).await;
    assert!(unbegun["validation_failure_message"].as_str().unwrap().contains("never started"), "{unbegun}");
    place.check().await;
}

/// P08: a stopped worker comes back after its lease and says that the message was accepted. That is
/// the truth: the process ends, and the attempt that waits is called off.
#[tokio::test]
async fn a_late_acceptance_ends_the_process() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.begin(&send, 1, false).await;
    place.advance(LEASE).await;
    place.scan().await;
    let late = place.succeed(&send, 1).await;
    assert_eq!((&late["success"], &late["payload"]["late"]), (&json!(true), &json!(true)), "{late}");
    assert_eq!(
        place.facts(&send.process).await,
        ["started", "scheduled 1", "begun 1", "lost 1", "scheduled 2", "late 1", "succeeded 1"]
    );
    assert_eq!(place.begin(&send, 2, false).await["success"], false, "nobody sends it again");
    let states = place.text("select string_agg(state, ',' order by job_id) from towpath.job_queue").await;
    assert_eq!(states, "queued,cancelled", "its job was called off");
    assert_eq!(place.succeed(&send, 1).await["success"], false, "and it is told once");
    place.check().await;
}

/// P08: the same while the next attempt is running: that one reports late, and changes nothing.
#[tokio::test]
async fn a_late_acceptance_wins_over_the_running_attempt() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.begin(&send, 1, true).await;
    place.advance(LEASE).await;
    place.scan().await;
    place.begin(&send, 2, true).await;
    assert_eq!(place.succeed(&send, 1).await["payload"]["state"], "succeeded");
    let second = place.succeed(&send, 2).await;
    assert_eq!((&second["success"], &second["payload"]["late"]), (&json!(true), &json!(true)), "{second}");
    let facts = place.facts(&send.process).await;
    assert_eq!(facts[facts.len() - 3..], ["late 1", "succeeded 1", "late 2"]);
    place.check().await;
}

/// P08: a late failure is noted and counts once, as lost.
#[tokio::test]
async fn a_late_failure_changes_nothing() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.begin(&send, 1, false).await;
    place.advance(LEASE).await;
    place.scan().await;
    let late = place.fail(&send, 1, json!({ "outcome": "permanent", "message": "550 no" })).await;
    assert_eq!((&late["success"], &late["payload"]["state"]), (&json!(true), &json!("open")), "{late}");
    assert_eq!(
        place.facts(&send.process).await,
        ["started", "scheduled 1", "begun 1", "lost 1", "scheduled 2", "late 1"]
    );
    assert_eq!(place.begin(&send, 2, false).await["success"], true, "the next attempt goes on");
    place.check().await;
}

/// P07: at the deadline an attempt is running: its outcome is waited for, at most for its lease.
#[tokio::test]
async fn the_deadline_waits_for_an_attempt_but_not_longer_than_its_lease() {
    let place = Processes::open().await;
    let (told, silent) = (place.send("email").await, place.send("email").await);
    place.advance(DEADLINE - SECOND).await;
    place.begin(&told, 1, false).await;
    place.begin(&silent, 1, false).await;
    place.advance(SECOND * 2).await;
    place.scan().await;
    assert_eq!(place.state(&told.process).await, "open", "it may still be accepted");
    assert_eq!(place.succeed(&told, 1).await["payload"]["state"], "succeeded");
    place.advance(LEASE).await;
    place.scan().await;
    let facts = place.facts(&silent.process).await;
    assert_eq!(
        facts,
        ["started", "scheduled 1", "begun 1", "lost 1", "gave_up"],
        "no attempt after the deadline"
    );
    place.check().await;
}

/// P07: after the deadline nothing is begun, even if no scan has come by yet.
#[tokio::test]
async fn nothing_is_begun_after_the_deadline() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.advance(DEADLINE).await;
    let refused = place.begin(&send, 1, false).await;
    assert!(refused["validation_failure_message"].as_str().unwrap().contains("deadline"), "{refused}");
    place.scan().await;
    assert_eq!(place.state(&send.process).await, "gave_up");
    place.check().await;
}

/// P06: cancel and success meet, in both orders: one terminal fact, and the loser is told.
#[tokio::test]
async fn cancel_races_success() {
    for cancel_first in [true, false] {
        let place = Processes::open().await;
        let send = place.send("email").await;
        place.begin(&send, 1, false).await;
        let original = place.job(&send.process, 1).await;
        let cancel = format!("select towpath.fn_process_cancel('{}', 'ann', 'stop')", send.process);
        let success = format!(
            "select towpath.run_function('comms.record_email_success', '{}')",
            json!({ "original_payload": original, "worker_payload": {} })
        );
        let (first, second) = if cancel_first { (&cancel, &success) } else { (&success, &cancel) };
        let (a, b) = (place.db.rival().await, place.db.rival().await);
        a.run(&format!("begin; {first}")).await;
        let waiting = b.send(second);
        place.db.until_blocked(&waiting).await;
        a.run("commit").await;
        let answer: Value = serde_json::from_str(&waiting.value().await.unwrap().unwrap()).unwrap();
        if cancel_first {
            assert_eq!(
                answer["payload"],
                json!({
                "late": true, "state": "cancelled", "attempt_no": 1, "process_id": send.process })
            );
            assert_eq!(place.facts(&send.process).await[3..], ["cancelled", "late 1"]);
        } else {
            assert_eq!((&answer["error"], &answer["state"]), (&json!("conflict"), &json!("succeeded")));
            assert_eq!(place.facts(&send.process).await[3..], ["succeeded 1"]);
        }
        place.check().await;
    }
}

/// P07: a cancelled process takes its waiting job with it, and a claimed one finds nothing to do.
#[tokio::test]
async fn a_cancelled_process_sends_nothing_any_more() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    let cancel = format!("towpath.fn_process_cancel('{}', 'ann', 'wrong address')", send.process);
    assert_eq!(place.json(&cancel).await["state"], "cancelled");
    assert_eq!(place.text("select state from towpath.job_queue").await, "cancelled");
    let refused = place.begin(&send, 1, false).await;
    assert!(
        refused["validation_failure_message"].as_str().unwrap().contains("ended: cancelled"),
        "{refused}"
    );
    let fact = place.text("select actor || ': ' || reason from comms.send_email_task_cancelled").await;
    assert_eq!(fact, "ann: wrong address");
    assert_eq!(
        place.json(&format!("towpath.fn_process_cancel('{}', ' ')", send.process)).await["error"],
        "invalid"
    );
    assert_eq!(place.json("towpath.fn_process_cancel(gen_random_uuid(), 'ann')").await["error"], "not_found");
    place.check().await;
}

/// P07: outcomes are taken while the gate is closed; what follows waits until it opens.
#[tokio::test]
async fn the_truth_is_taken_through_a_closed_gate() {
    let place = Processes::open().await;
    let (good, bad) = (place.send("email").await, place.send("email").await);
    place.begin(&good, 1, false).await;
    place.begin(&bad, 1, false).await;
    for key in ["process.enabled", "queue.job_substrate.enabled"] {
        place.execute(&format!("update towpath.config set value = 'false' where key = '{key}'")).await;
    }
    assert_eq!(place.succeed(&good, 1).await["payload"]["state"], "succeeded");
    assert_eq!(place.fail(&bad, 1, json!("421 busy")).await["payload"]["state"], "open");
    assert_eq!(place.facts(&bad.process).await, ["started", "scheduled 1", "begun 1", "failed 1"]);
    place.execute("update towpath.config set value = 'true' where kind = 'gate'").await;
    place.advance(SECOND * 30).await;
    place.scan().await;
    assert_eq!(place.facts(&bad.process).await[4..], ["scheduled 2"]);
    place.check().await;
}

/// P06, P07, P08: whatever happens in whatever order, every process ends in exactly one terminal
/// fact by its deadline, attempts never overlap, and the provider is never called more often
/// than allowed. Histories are drawn from a seed that a failure names.
#[tokio::test]
async fn random_histories_keep_the_promises() {
    for seed in 0..6 {
        let place = Processes::open().await;
        let mut random = Random(0x9e37_79b9 + seed);
        let mut sends = vec![];
        for _ in 0..4 {
            sends.push(place.send(if random.below(2) == 0 { "email" } else { "sms" }).await);
        }
        for step in 0..120 {
            let send = &sends[random.below(4) as usize];
            let what = happen(&place, &mut random, send).await;
            if step % 10 == 9 {
                println!("seed {seed} step {step}: {what}");
                place.check().await;
            }
        }
        place.advance(DEADLINE + LEASE).await;
        place.scan().await;
        place.advance(LEASE).await;
        place.scan().await;
        assert_eq!(
            place.text("select count(*) from towpath.process where finished_at is null").await,
            "0",
            "seed {seed}"
        );
        place.check().await;
    }
}

/// The checker of the histories sees what it looks for: it is shown a broken one.
#[tokio::test]
async fn the_checker_sees_a_broken_history() {
    let place = Processes::open().await;
    let (first, second) = (place.send("email").await, place.send("sms").await);
    place.begin(&first, 1, false).await;
    assert!(place.broken().await.is_empty());
    let sql = format!(
        "update towpath.process set state = 'succeeded', finished_at = now(), next_check_at = null
          where process_id = '{}';
         insert into comms.send_sms_task_succeeded values ({}, 1, 'x', 'y', now());
         update towpath.process set max_attempts = 1;
         update towpath.process_attempt set outcome = 'lost', ended_at = now() where process_id = '{}';
         insert into towpath.process_attempt (process_id, attempt_no, job_id, scheduled_at, due_at, lease_until, begun_at, worker)
         values ('{}', 2, gen_random_uuid(), now(), now(), now(), now(), 'x');
         insert into towpath.process_fact (process_id, fact_no, fact, actor, recorded_at)
         values (gen_random_uuid(), 1, 'started', 'x', now())",
        first.process, second.task, first.process, first.process
    );
    place.execute(&sql).await;
    assert_eq!(place.broken().await.len(), 5, "{:?}", place.broken().await);
}

/// One thing that can happen to a send: a worker begins or reports, time passes, somebody acts.
async fn happen(place: &Processes, random: &mut Random, send: &Send) -> String {
    let newest = format!(
        "select coalesce(max(attempt_no), 1) from towpath.process_attempt where process_id = '{}'",
        send.process
    );
    let newest: i32 = place.text(&newest).await.parse().unwrap();
    // Mostly the attempt that matters, sometimes an old one that comes back.
    let attempt = if random.below(4) == 0 { 1 + random.below(newest as u64) as i32 } else { newest };
    match random.below(10) {
        0..3 => place.begin(send, attempt, random.below(2) == 0).await.to_string(),
        3 => place.succeed(send, attempt).await.to_string(),
        4 | 5 => {
            let outcome = ["transient", "permanent", "uncertain", "transient"][random.below(4) as usize];
            let error = json!({ "outcome": outcome, "message": "x", "key_honoured": random.below(2) == 0 });
            place.fail(send, attempt, error).await.to_string()
        }
        6 | 7 => {
            place.advance(Duration::from_secs(random.below(300))).await;
            place.scan().await.to_string()
        }
        8 => {
            let resolution = ["retry", "succeeded", "gave_up"][random.below(3) as usize];
            place
                .text(&format!("towpath.fn_process_resolve('{}', '{resolution}', 'ann')", send.process))
                .await
        }
        _ if random.below(10) == 0 => {
            place.text(&format!("towpath.fn_process_cancel('{}', 'ann')", send.process)).await
        }
        _ => {
            // The queue loses a job.
            let lose = "with lost as (delete from towpath.job_ready where job_id = (select job_id from towpath.job_ready limit 1)
                                      returning job_id),
                        gone as (delete from towpath.job j using lost l where j.job_id = l.job_id)
                        delete from towpath.job_live v using lost l where v.job_id = l.job_id";
            place.execute(lose).await;
            "a job vanished".to_owned()
        }
    }
}

/// A small generator of numbers (splitmix64), so that a seed is a history.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
