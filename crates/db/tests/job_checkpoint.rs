//! Checkpoints: what an attempt leaves for the next one.

use serde_json::json;
use towpath_db::Error;
use towpath_db::job::{Failure, LeaseOwner};
use towpath_testkit::queue::{LEASE, Queue, SECOND};

/// P13: the next attempt gets the last checkpoint, after a failure and after a lost lease; nobody else does, and a worker
/// that lost its lease leaves none.
#[tokio::test]
async fn a_checkpoint_is_handed_to_the_next_attempt() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("import").await;
    let (first, second) = (LeaseOwner::new("first"), LeaseOwner::new("second"));
    let lease = queue.claim_as("first", 1).await.unwrap().pop().unwrap().lease;
    let key = (job_id, lease.attempt());
    assert!(queue.worker.checkpoints(&first, &[job_id]).await.unwrap().is_empty());
    for row in [10, 20] {
        queue.worker.checkpoint(&first, key, &json!({ "row": row })).await.unwrap();
    }
    let large = json!("x".repeat(5_000));
    assert!(matches!(queue.worker.checkpoint(&first, key, &large).await, Err(Error::Invalid(_))));
    assert!(matches!(queue.worker.checkpoint(&second, key, &json!(1)).await, Err(Error::LeaseLost(_))));
    lease
        .fail(&queue.worker, Failure { error: "no".into(), permanent: false, retry_after: None })
        .await
        .unwrap();

    queue.db.advance(SECOND * 3_600).await;
    let again = queue.claim_as("second", 1).await.unwrap().pop().unwrap().lease;
    assert_eq!(queue.worker.checkpoints(&second, &[job_id]).await.unwrap()[&job_id], json!({ "row": 20 }));
    assert!(queue.worker.checkpoints(&first, &[job_id]).await.unwrap().is_empty(), "only the holder is told");
    queue.worker.checkpoint(&second, (job_id, again.attempt()), &json!({ "row": 30 })).await.unwrap();

    queue.db.advance(LEASE + SECOND).await;
    queue.reap().await;
    queue.db.advance(SECOND * 3_600).await;
    queue.claim_as("first", 1).await.unwrap();
    assert_eq!(queue.worker.checkpoints(&first, &[job_id]).await.unwrap()[&job_id], json!({ "row": 30 }));
}
