//! A round of maintenance of which a part fails.

use std::time::Duration;

use towpath_testkit::queue::Queue;

use crate::worker::maintenance;

/// Q22: every task runs although earlier ones fail, and every failure is told with the task's name.
#[tokio::test]
async fn a_round_does_what_it_can_and_tells_every_failure() {
    let queue = Queue::open().await;
    queue
        .db
        .execute(
            "select towpath.fn_queue_heartbeat_tick('silent', 'PG_worker');
             alter function towpath.fn_job_partition_tick rename to fn_gone_1;
             alter function towpath.fn_job_lane_tick rename to fn_gone_2",
        )
        .await;
    queue.db.advance(Duration::from_secs(86_400)).await;
    let failure = maintenance(&queue).run_once().await.unwrap_err();
    let failed: Vec<&str> = failure.failed.iter().map(|(task, _)| *task).collect();
    assert_eq!(failed, ["partitions", "lanes"]);
    assert_eq!(failure.report.stale, 1, "the tasks after them ran");
    let words = failure.to_string();
    for part in ["partitions failed: ", "fn_job_partition_tick", "\nlanes failed: ", "fn_job_lane_tick"] {
        assert!(words.contains(part), "{words}");
    }
}
