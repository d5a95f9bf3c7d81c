//! Keeping leases: renewed while the work goes on, told when they are gone, and none taken
//! that could not be kept.

use std::net::Ipv4Addr;
use std::time::Duration;

use towpath_db::Database;
use towpath_db::job::NewJob;
use towpath_testkit::count::Count;
use towpath_testkit::proxy::{Fault, FaultProxy};
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_worker::{Options, Worker};

use crate::worker::{builder, maintenance, start};

const LEASE: Duration = Duration::from_secs(1);

/// Q09: a job that runs for three leases keeps its lease, and is shown as in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_keeps_its_lease() {
    let queue = Queue::open().await;
    let (begun, go) = (Count::new(), Count::new());
    let worker = waiting_worker(&queue, begun.clone(), go.clone());
    let job_id = queue.enqueue_job(&NewJob::new("long")).await;
    let running = start(worker);
    begun.until(1).await;
    let mut maintenance = maintenance(&queue);
    let owned = "select lease_until > clock_timestamp() from towpath._job_now";
    for _ in 0..6 {
        tokio::time::sleep(LEASE / 2).await;
        assert_eq!(maintenance.run_once().await.unwrap().reaped, 0);
        assert_eq!(queue.db.text(owned).await, "true");
    }
    assert_eq!(queue.state(job_id).await, "in_progress");
    go.add();
    queue.until_states("succeeded 1").await;
    running.stop().await;
    assert_eq!(begun.now(), 1);
}

/// Q17: the handler of a job that somebody cancelled is told to stop.
#[tokio::test(flavor = "multi_thread")]
async fn the_handler_of_a_cancelled_job_is_told() {
    let queue = Queue::open().await;
    let (begun, told) = (Count::new(), Count::new());
    let (begins, tells) = (begun.clone(), told.clone());
    let worker = builder(&queue)
        .lease(LEASE)
        .handle_kind("long", Options::default(), move |_: serde_json::Value, context| {
            begins.add();
            let tells = tells.clone();
            async move {
                context.lost().cancelled().await;
                tells.add();
                Ok(())
            }
        })
        .build()
        .unwrap();
    let job_id = queue.enqueue_job(&NewJob::new("long")).await;
    let running = start(worker);
    begun.until(1).await;
    queue.db.json(&format!("towpath.fn_job_cancel('{job_id}', 'me', 'why not')")).await;
    told.until(1).await;
    running.stop().await;
    assert_eq!(queue.state(job_id).await, "cancelled", "its success came too late");
}

/// Q13: a running worker sends heartbeats, and says when it stops, so that nobody misses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_sends_heartbeats() {
    let queue = Queue::open().await;
    let worker = builder(&queue).name("node-1").handle_kind("x", Options::default(), fine).build().unwrap();
    let owner = worker.owner().to_string();
    let running = start(worker);
    let heartbeat =
        "select executor_name || ' ' || executor_kind || ' ' || last_tick_status || ' ' || lease_owner
                  from towpath.queue_heartbeat";
    queue.db.until(heartbeat, &format!("node-1 PG_worker ok {owner}")).await;
    running.stop().await;
    assert_eq!(queue.db.text("select count(*) from towpath.queue_heartbeat").await, "0");
}

/// Q13: two processes of one executor on one machine have a heartbeat each.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_process_is_its_own() {
    let queue = Queue::open().await;
    let worker = builder(&queue).handle_kind("x", Options::default(), fine).build().unwrap();
    let name = format!("-{}#", std::process::id());
    assert!(worker.owner().as_str().contains(&name), "{}", worker.owner());
}

/// A worker that cannot renew takes nothing more, and goes on when it can again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_while_leases_cannot_be_kept() {
    let queue = Queue::open().await;
    // Renewing needs the function; claiming does not.
    let extend = "towpath.fn_job_extend_lease_many(uuid[], text, integer[], integer)";
    let (begun, go) = (Count::new(), Count::new());
    let worker = waiting_worker(&queue, begun.clone(), go.clone());
    queue.enqueue_job(&NewJob::new("long")).await;
    let running = start(worker);
    begun.until(1).await;
    queue.db.execute(&format!("revoke execute on function {extend} from worker_service_user")).await;
    // Longer than a third of the lease: the renewal has been refused by then.
    tokio::time::sleep(LEASE).await;
    queue.enqueue_job(&NewJob::new("long")).await;
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(begun.now(), 1, "the second job was left to others");
    queue.db.execute(&format!("grant execute on function {extend} to worker_service_user")).await;
    begun.until(2).await;
    go.add();
    queue.until_states("succeeded 2").await;
    running.stop().await;
}

/// Results outlive an outage of the database: they wait in memory and are recorded once.
#[tokio::test(flavor = "multi_thread")]
async fn results_outlive_a_lost_connection() {
    let queue = Queue::open().await;
    let proxy = FaultProxy::start(queue.db.socket().await.as_path()).await;
    assert_eq!(proxy.addr().ip(), Ipv4Addr::LOCALHOST);
    let url = format!("postgresql://postgres@{}/{}", proxy.addr(), queue.db.name());
    let through = Database::connect(&url).await.unwrap();
    let (begun, go) = (Count::new(), Count::new());
    let (begins, waits) = (begun.clone(), go.clone());
    let worker = Worker::builder(through, EXECUTOR)
        .handle_kind("long", Options::default(), move |_: serde_json::Value, _| {
            begins.add();
            let waits = waits.clone();
            async move {
                waits.until(1).await;
                Ok(())
            }
        })
        .build()
        .unwrap();
    queue.admin.enqueue_many(&vec![NewJob::new("long"); 20]).await.unwrap();
    let running = start(worker);
    begun.until(20).await;
    proxy.set(Fault::Refuse);
    proxy.reset();
    go.add();
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.set(Fault::Pass);
    queue.until_states("succeeded 20").await;
    running.stop().await;
    assert_eq!(begun.now(), 20, "nothing ran twice");
}

/// Jobs that were claimed ahead and cannot begin, because jobs have become slow, go back to
/// the queue for others.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_too_long_are_given_back() {
    let queue = Queue::open().await;
    let (begun, go) = (Count::new(), Count::new());
    let (begins, waits) = (begun.clone(), go.clone());
    let worker = builder(&queue)
        .handle_kind("x", Options::default().concurrency(1), move |_: serde_json::Value, _| {
            let (begins, waits) = (begins.clone(), waits.clone());
            async move {
                if begins.add() > 100 {
                    waits.until(1).await;
                }
                Ok(())
            }
        })
        .build()
        .unwrap();
    queue.admin.enqueue_many(&vec![NewJob::new("x"); 1_000]).await.unwrap();
    let running = start(worker);
    queue.until_states("in_progress 1, queued 899, succeeded 100").await;
    go.add();
    queue.until_states("succeeded 1000").await;
    running.stop().await;
    assert_eq!(begun.now(), 1_000, "given back is not lost");
}

fn waiting_worker(queue: &Queue, begun: Count, go: Count) -> Worker {
    builder(queue)
        .lease(LEASE)
        .handle_kind("long", Options::default(), move |_: serde_json::Value, _| {
            begun.add();
            let go = go.clone();
            async move {
                go.until(1).await;
                Ok(())
            }
        })
        .build()
        .unwrap()
}

async fn fine(_: serde_json::Value, _: towpath_worker::Context) -> towpath_worker::Result {
    Ok(())
}
