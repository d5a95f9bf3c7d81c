//! Claim: `sql/functions/job_claim.sql` and `job_wake.sql`.

use std::time::Duration;

use jiff::Timestamp;
use towpath_db::Error;
use towpath_db::job::{Claim, LeaseOwner, Listener, NewJob};
use towpath_testkit::queue::{EXECUTOR, LEASE, Queue, SECOND};

/// Q07: highest priority first, then oldest due; nothing before its time.
#[tokio::test]
async fn the_most_urgent_job_comes_first_and_none_before_its_time() {
    let queue = Queue::open().await;
    let low = queue.enqueue_job(&NewJob::new("mail").priority(1)).await;
    let first = queue.enqueue("mail").await;
    let second = queue.enqueue("sms").await;
    let urgent = queue.enqueue_job(&NewJob::new("mail").priority(200)).await;
    let soon = Timestamp::now() + jiff::SignedDuration::from_secs(60);
    let later = queue.enqueue_job(&NewJob::new("mail").priority(300).scheduled_at(soon)).await;
    let order: Vec<_> = queue.claim_as("a", 10).await.unwrap().iter().map(|job| job.lease.job_id()).collect();
    assert_eq!(order, [urgent, first, second, low]);
    queue.db.advance(Duration::from_secs(61)).await;
    assert_eq!(queue.claim().await.job_id(), later);
}

/// Q07: a claim for some kinds takes only those, and never more than its limit.
#[tokio::test]
async fn a_claim_takes_only_the_kinds_and_the_number_it_asked_for() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 5).await;
    queue.enqueue_times("sms", 5).await;
    let (owner, kinds) = (LeaseOwner::new("a"), ["sms".to_owned()]);
    let claim =
        Claim { executor: EXECUTOR, kinds: Some(&kinds), limit: 3, owner: &owner, lease: Some(LEASE) };
    let jobs = queue.worker.claim(&claim).await.unwrap();
    assert_eq!(jobs.len(), 3);
    assert!(jobs.iter().all(|job| job.kind == "sms" && job.lease.owner() == &owner));
    assert_eq!(queue.worker.claim(&claim).await.unwrap().len(), 2);
    for limit in [0, -1] {
        assert!(matches!(
            queue.worker.claim(&Claim { limit, ..claim.clone() }).await,
            Err(Error::Invalid(_))
        ));
    }
    let blank = LeaseOwner::new(" ");
    let refused = queue.worker.claim(&Claim { owner: &blank, ..claim }).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "a lease has an owner");
}

/// R06: kinds, domain, floor and the switch of the subscription are honoured, and the most
/// specific row decides.
#[tokio::test]
async fn a_subscription_decides_what_is_claimed() {
    let queue = Queue::open().await;
    queue.db.execute("delete from towpath.job_subscription").await;
    queue.subscribe("narrow", "'mail', 'billing', 50, null, true").await;
    let fits = queue.enqueue_job(&NewJob::new("mail").event_domain("billing").priority(50)).await;
    queue.enqueue_job(&NewJob::new("mail").event_domain("billing").priority(49)).await;
    queue.enqueue_job(&NewJob::new("mail").event_domain("other")).await;
    queue.enqueue_job(&NewJob::new("mail")).await;
    queue.enqueue_job(&NewJob::new("sms").event_domain("billing")).await;
    queue.enqueue_job(&NewJob::new("mail").event_domain("billing").executor("Hermes")).await;
    let claim = async |executor: &str| {
        let owner = LeaseOwner::new("a");
        let claim = Claim { executor, kinds: None, limit: 10, owner: &owner, lease: None };
        queue
            .worker
            .claim(&claim)
            .await
            .map(|jobs| jobs.iter().map(|job| (job.lease.job_id(), job.kind.clone())).collect::<Vec<_>>())
    };
    assert_eq!(claim("narrow").await.unwrap(), [(fits, "mail".to_owned())]);
    queue.subscribe("wide", "p_max_parallel => null, p_enabled => true").await;
    queue.subscribe("wide", "'mail', p_enabled => false").await;
    let kinds: Vec<_> = claim("wide").await.unwrap().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, ["sms"], "the disabled row for mail is the more specific one");
    queue.subscribe("wide", "p_max_parallel => null, p_enabled => false").await;
    assert!(claim("wide").await.unwrap_err().to_string().contains("no enabled subscription"));
}

/// R06: the unique rule also holds for nulls: the same row is changed, not added.
#[tokio::test]
async fn a_subscription_for_anything_exists_once() {
    let queue = Queue::open().await;
    let again = queue.subscribe(EXECUTOR, "p_max_parallel => 7, p_enabled => true").await;
    assert_eq!(again["created"], false);
    let rows = format!("select count(*) from towpath.job_subscription where executor_id = '{EXECUTOR}'");
    assert_eq!(queue.db.text(&rows).await, "1");
}

/// Q17: a paused kind is not claimed until it is resumed.
#[tokio::test]
async fn a_paused_kind_waits() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.db.json("towpath.fn_queue_pause('mail', 'me', 'too many')").await;
    assert!(queue.claim_as("a", 1).await.unwrap().is_empty());
    queue.db.json("towpath.fn_queue_resume('mail', 'me')").await;
    queue.claim().await;
}

/// Q06: either gate stops claims.
#[tokio::test]
async fn a_closed_gate_claims_nothing() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    for closed in ["queue.worker.enabled", "queue.job_substrate.enabled"] {
        let set = |value| format!("update towpath.config set value = '{value}' where key = '{closed}'");
        queue.db.execute(&set("false")).await;
        let refused = queue.claim_as("a", 1).await.unwrap_err();
        assert!(matches!(&refused, Error::GateClosed { gate } if gate == closed), "{refused}");
        queue.db.execute(&set("true")).await;
    }
    queue.claim().await;
}

/// Q15: an armed worker is notified of the next job, once; a busy queue notifies no worker.
#[tokio::test]
async fn an_armed_consumer_is_notified_once() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    let listener = Listener::open(&queue.worker).await.unwrap();
    let woken = async || tokio::time::timeout(SECOND / 4, listener.woken()).await.is_ok();
    assert_eq!(queue.worker.arm(EXECUTOR, None).await.unwrap().armed, 1);
    assert_eq!(queue.worker.arm(EXECUTOR, None).await.unwrap().armed, 0, "armed already");
    queue.enqueue("mail").await;
    assert!(woken().await, "the first job wakes");
    queue.enqueue("mail").await;
    assert!(!woken().await, "the second finds nobody armed");
}

/// Q15: arming says when a job that already waits becomes due.
#[tokio::test]
async fn arming_tells_the_next_due_moment() {
    let queue = Queue::open().await;
    let soon = Timestamp::now().round(jiff::Unit::Microsecond).unwrap() + jiff::SignedDuration::from_secs(60);
    queue.enqueue_job(&NewJob::new("mail").scheduled_at(soon)).await;
    assert_eq!(queue.worker.arm(EXECUTOR, None).await.unwrap().next_due_at, Some(soon));
}
