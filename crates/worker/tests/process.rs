//! Processes supervised from Rust.

use std::time::Duration;

use futures_util::future::join_all;
use towpath_db::process::{Decision, NewProcess};
use towpath_worker::process::{Supervisor, retry};

use crate::example;
use towpath_testkit::queue::Queue;

/// P11: the documented example runs: a failure, a retry, a success, one terminal fact.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_ships_a_parcel() {
    let queue = Queue::open().await;
    example::install(&queue.admin).await.unwrap();
    let whole = example::ship(queue.admin.clone(), 7).await.unwrap();
    let facts: Vec<&str> = whole.facts.iter().map(|fact| fact.fact.as_str()).collect();
    assert_eq!(facts, ["started", "scheduled", "begun", "failed", "scheduled", "begun", "succeeded"]);
    assert!(queue.admin.process_start(&parcel("7")).await.unwrap().duplicate, "a parcel is shipped once");
}

/// P07: eight supervisors at once, again and again: one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn eight_supervisors_make_one_attempt() {
    let queue = Queue::open().await;
    example::install(&queue.admin).await.unwrap();
    let process_id = queue.admin.process_start(&parcel("8")).await.unwrap().process_id;
    let supervisor =
        || Supervisor::new(queue.worker.clone(), "shop.ship_parcel", |whole| retry(whole, Duration::ZERO));
    for _ in 0..5 {
        join_all((0..8).map(|_| async { supervisor().run_once().await.unwrap() })).await;
    }
    let whole = queue.admin.process_show(process_id).await.unwrap();
    assert_eq!(whole.attempts.len(), 1, "{whole:?}");
}

/// P07: the same for the supervisor of e-mails, which is SQL: eight calls by name, one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn eight_calls_of_the_mail_supervisor_make_one_attempt() {
    let queue = Queue::open().await;
    let message = serde_json::json!({ "to": "ann@example.org", "subject": "hi", "text": "hello" });
    let options = towpath_db::message::SendOptions::default();
    let sent =
        queue.admin.message_send(towpath_db::message::Channel::Email, &message, options).await.unwrap();
    let payload = serde_json::json!({ "send_email_task_id": sent.more["send_email_task_id"] });
    for _ in 0..3 {
        let call = || queue.worker.run_function("comms.send_email_supervisor", &payload);
        for called in join_all((0..8).map(|_| call())).await {
            assert!(called.unwrap().success);
        }
    }
    let whole = queue.admin.process_show(sent.process_id).await.unwrap();
    assert_eq!(whole.attempts.len(), 1, "{whole:?}");
}

/// P11: a decision that was made on old facts changes nothing.
#[tokio::test]
async fn a_decision_on_old_facts_is_refused() {
    let queue = Queue::open().await;
    example::install(&queue.admin).await.unwrap();
    queue.admin.process_start(&parcel("9")).await.unwrap();
    let due = queue.worker.process_due("shop.ship_parcel", 10, 30).await.unwrap();
    let process = &due[0].process;
    let attempt = Decision::Attempt { due_at: None };
    queue.worker.process_decide(process.process_id, process.generation, &attempt).await.unwrap();
    let late = queue.worker.process_decide(process.process_id, process.generation, &attempt).await;
    assert!(matches!(late, Err(towpath_db::Error::Conflict(_))), "{late:?}");
    assert!(
        queue.worker.process_due("shop.ship_parcel", 10, 30).await.unwrap().is_empty(),
        "nobody else has it"
    );
}

/// Q22: a decision that panics, or that the database refuses, is recorded; the processes after it are decided.
#[tokio::test]
async fn a_bad_decision_holds_up_no_other_process() {
    let queue = Queue::open().await;
    example::install(&queue.admin).await.unwrap();
    for reference in ["panics", "refused", "sound"] {
        queue.admin.process_start(&parcel(reference)).await.unwrap();
    }
    let supervisor =
        Supervisor::new(queue.worker.clone(), "shop.ship_parcel", |whole| match &*whole.process.reference {
            "panics" => panic!("a planted panic"),
            "refused" => Decision::Succeed { detail: serde_json::json!({ "password": "x" }) },
            _ => retry(whole, Duration::ZERO),
        });
    assert_eq!(supervisor.run_once().await.unwrap(), 3);
    let attempts = "select string_agg(p.ref, ' ') from towpath.process p join towpath.process_attempt a using (process_id)";
    assert_eq!(queue.db.text(attempts).await, "sound");
    let errors = "select string_agg(p.ref, ' ' order by p.ref) from towpath.task_error join towpath.process p using (process_id) \
                  where kind = 'supervisor'";
    assert_eq!(queue.db.text(errors).await, "panics refused");
    // Each is asked about again when its turn has come.
    queue.db.advance(Duration::from_secs(31)).await;
    let sound =
        Supervisor::new(queue.worker.clone(), "shop.ship_parcel", |whole| retry(whole, Duration::ZERO));
    sound.run_once().await.unwrap();
    assert_eq!(queue.db.text("select count(distinct process_id) from towpath.process_attempt").await, "3");
}

fn parcel(reference: &str) -> NewProcess<'_> {
    NewProcess { process_kind: "shop.ship_parcel", reference, ..NewProcess::default() }
}
