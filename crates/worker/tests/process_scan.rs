//! Maintenance of processes: the scan, run again and again by every node.

use std::time::Duration;
use towpath_testkit::queue::Queue;

use crate::worker::maintenance;

const SEND: &str = r#"comms.send_email('{"to": "a@b.example", "subject": "s", "text": "t"}')"#;

/// P07: jobs that vanished are made again by maintenance alone, under the maintainer's own login; a gate
/// closed for processes stops nothing else.
#[tokio::test]
async fn maintenance_leaves_no_process_behind() {
    let queue = Queue::open().await;
    let sent = queue.db.json(SEND).await;
    queue
        .db
        .execute("delete from towpath.job_live; delete from towpath.job_ready; delete from towpath.job")
        .await;
    let mut maintenance = maintenance(&queue);
    assert_eq!(maintenance.run_once().await.unwrap().supervised, 0, "its time has not come");
    queue.db.advance(Duration::from_secs(601)).await;
    queue.db.execute("update towpath.config set value = 'false' where key = 'process.enabled'").await;
    assert_eq!(maintenance.run_once().await.unwrap().supervised, 0, "the rest is done all the same");
    queue.db.execute("update towpath.config set value = 'true' where key = 'process.enabled'").await;
    assert_eq!(maintenance.run_once().await.unwrap().supervised, 1);
    let facts = format!(
        "select string_agg(fact, ' ' order by fact_no) from towpath.process_fact where process_id = '{}'",
        sent["process_id"].as_str().unwrap()
    );
    assert_eq!(queue.db.text(&facts).await, "started scheduled lost scheduled");
    assert_eq!(queue.db.text("select count(*) from towpath._job_now").await, "1", "a new job waits");
}
