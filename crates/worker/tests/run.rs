//! Handlers: what they get, and what becomes of what they answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use towpath_db::job::NewJob;
use towpath_testkit::count::{AtOnce, Count};
use towpath_testkit::queue::Queue;
use towpath_worker::testing::run_until_drained;
use towpath_worker::{Error, Failure, Options, Worker, builtin};

use crate::worker::{Mail, builder, mail, start};

/// A typed payload arrives as it was enqueued, with everything around it.
#[tokio::test]
async fn a_handler_gets_its_type_and_its_context() {
    let queue = Queue::open().await;
    let seen = Arc::new(Mutex::new(vec![]));
    let notes = seen.clone();
    let worker = builder(&queue)
        .handle(move |mail: Mail, context| {
            let notes = notes.clone();
            async move {
                let told =
                    (mail.to_ref, context.id(), context.attempt().number(), context.actor().to_owned());
                notes.lock().unwrap().push(told);
                Ok(())
            }
        })
        .build()
        .unwrap();
    let job_id = queue.enqueue_job(&mail("user:1").actor("shop")).await;
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 1);
    assert_eq!(*seen.lock().unwrap(), [("user:1".to_owned(), job_id, 1, "shop".to_owned())]);
    assert_eq!(queue.state(job_id).await, "succeeded");
}

/// Q10: errors are retried, permanent ones and panics without attempts left are buried,
/// snoozes cost nothing.
#[tokio::test]
async fn answers_decide_what_follows() {
    let queue = Queue::open().await;
    let worker = builder(&queue)
        .handle(|mail: Mail, context| async move {
            match mail.to_ref.as_str() {
                "io" => Err(std::io::Error::other("no route"))?,
                "panic" => panic!("oh no"),
                "never" => Err(Failure::permanent("no such user")),
                "later" if context.attempt().number() == 1 => Err(Failure::snooze(Duration::from_secs(60))),
                "slow" => std::future::pending().await,
                _ => Ok(()),
            }
        })
        .build()
        .unwrap();
    let mut ids = vec![];
    for to in ["io", "panic", "never", "later"] {
        ids.push(queue.enqueue_job(&mail(to).max_attempts(1)).await);
    }
    let odd = queue.enqueue_job(&NewJob::new("mail").payload(&json!({"to": 7})).unwrap()).await;
    run_until_drained(&worker).await.unwrap();
    let error = async |id| {
        let sql = format!("select final_error from towpath.job_dead_letter where job_id = '{id}'");
        queue.db.text(&sql).await
    };
    assert_eq!(error(ids[0]).await, "no route");
    assert_eq!(error(ids[1]).await, "the handler panicked: oh no");
    assert_eq!(error(ids[2]).await, "no such user");
    assert_eq!(queue.states().await, "dead_letter 4, queued 1");
    assert!(
        error(odd).await.contains("does not match the handler's type"),
        "a payload of another type is buried at once"
    );
    queue.db.advance(Duration::from_secs(61)).await;
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 1, "the snoozed attempt did not count");
    assert_eq!(queue.state(ids[3]).await, "succeeded");
}

/// Q10: a failure that names no delay waits for the database's backoff, however many fail at once.
#[tokio::test]
async fn failures_without_a_delay_wait_for_the_backoff() {
    let queue = Queue::open().await;
    let worker = builder(&queue)
        .handle(|_: Mail, _| async { Err::<(), _>(Failure::retry("no route")) })
        .build()
        .unwrap();
    queue
        .db
        .execute("update towpath.config set value = '600' where key = 'queue.retry.backoff_base_sec'")
        .await;
    queue.admin.enqueue_many(&vec![mail("x").max_attempts(3); 3]).await.unwrap();
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 3, "none is due again at once");
    assert_eq!(queue.states().await, "retry_waiting 3");
    queue.db.advance(Duration::from_secs(601)).await;
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 3);
}

/// A handler past its time has failed, and the policy of its kind says when it is tried again.
#[tokio::test]
async fn timeouts_and_delays_are_the_kinds_own() {
    let queue = Queue::open().await;
    let options = Options::default().timeout(Duration::from_millis(20));
    let options = options.retry_delays([Duration::from_secs(5), Duration::from_secs(50)]);
    let worker = builder(&queue)
        .handle_with(options, |_: Mail, _| std::future::pending::<towpath_worker::Result>())
        .build()
        .unwrap();
    let job_id = queue.enqueue_job(&mail("x").max_attempts(4)).await;
    for delay in [5, 50, 50] {
        assert_eq!(run_until_drained(&worker).await.unwrap().len(), 1);
        assert_eq!(queue.state(job_id).await, "retry_waiting");
        queue.db.advance(Duration::from_secs(delay - 1)).await;
        assert_eq!(run_until_drained(&worker).await.unwrap().len(), 0, "not before {delay} s");
        queue.db.advance(Duration::from_secs(1)).await;
    }
    run_until_drained(&worker).await.unwrap();
    assert_eq!(queue.state(job_id).await, "dead_letter");
}

/// A kind's concurrency is its own; the others share the worker's.
#[tokio::test(flavor = "multi_thread")]
async fn concurrency_is_bounded_per_kind() {
    let queue = Queue::open().await;
    let (narrow, wide, done) = (AtOnce::default(), AtOnce::default(), Count::new());
    let counted = |at_once: AtOnce, done: Count| {
        move |_: serde_json::Value, _| {
            let (at_once, done) = (at_once.clone(), done.clone());
            async move {
                at_once.enter();
                tokio::time::sleep(Duration::from_millis(5)).await;
                at_once.leave();
                done.add();
                Ok(())
            }
        }
    };
    let worker = builder(&queue)
        .concurrency(6)
        .handle_kind("narrow", Options::default().concurrency(2), counted(narrow.clone(), done.clone()))
        .handle_kind("wide", Options::default(), counted(wide.clone(), done.clone()))
        .build()
        .unwrap();
    let jobs: Vec<_> = (0..80).map(|n| NewJob::new(if n % 2 == 0 { "narrow" } else { "wide" })).collect();
    queue.admin.enqueue_many(&jobs).await.unwrap();
    let running = start(worker);
    done.until(80).await;
    queue.until_states("succeeded 80").await;
    running.stop().await;
    assert_eq!((narrow.most(), wide.most()), (2, 6));
}

/// A worker that could not do anything is refused when it is built.
#[tokio::test]
async fn senseless_workers_are_refused() {
    let queue = Queue::open().await;
    let noop = |_: Mail, _| std::future::ready(Ok(()));
    assert_eq!(builder(&queue).build().err(), Some(Error::NoHandlers));
    let twice = builder(&queue).handle(noop).handle(noop).build();
    assert_eq!(twice.err(), Some(Error::HandledTwice("mail".into())));
    assert!(matches!(builder(&queue).concurrency(0).handle(noop).build().err(), Some(Error::Invalid(_))));
}

/// The kinds that come along do what they say.
#[tokio::test]
async fn the_built_in_kinds_work() {
    let queue = Queue::open().await;
    let worker: Worker = builtin::register(builder(&queue)).build().unwrap();
    assert_eq!(worker.kinds(), ["towpath.fail", "towpath.noop", "towpath.sleep"]);
    queue.enqueue_job(&NewJob::new("towpath.noop")).await;
    queue.enqueue_job(&NewJob::new("towpath.sleep").payload(&json!({"milliseconds": 1})).unwrap()).await;
    queue.enqueue_job(&NewJob::new("towpath.fail").payload(&json!({"permanent": true})).unwrap()).await;
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 3);
    assert_eq!(queue.states().await, "dead_letter 1, succeeded 2");
}
