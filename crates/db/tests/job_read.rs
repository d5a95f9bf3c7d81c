//! Reading jobs and ending them: `sql/functions/job_read.sql`, `job_why.sql`, `graph.sql`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use towpath_db::job::{Claim, ClaimedJob, Failure, LeaseOwner, NewJob};
use towpath_db::job_read::JobFilter;
use towpath_db::subscription::SubscriptionSpec;
use towpath_db::{Attribution, Database, Error};
use towpath_model::id::JobId;
use towpath_model::job_state::JobState;
use towpath_testkit::TestDb;
use uuid::Uuid;

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "a test" };

/// Open gates, and the executor `w`, which claims everything for PG_worker, one at a time
/// if `max_parallel` says so.
pub(crate) async fn with_worker(max_parallel: Option<i32>) -> (TestDb, Database) {
    let db = TestDb::open().await;
    let database = db.database().await;
    database.consumer_put("w", "PG_worker", None, None, "tester").await.expect("an executor");
    let spec = SubscriptionSpec {
        executor_id: "w",
        executor_kind: "PG_worker",
        max_parallel,
        enabled: true,
        actor: "tester",
        ..Default::default()
    };
    database.subscription_put(&spec).await.expect("a subscription");
    (db, database)
}

/// The next job, which must be there.
pub(crate) async fn claim(database: &Database) -> ClaimedJob {
    let owner = LeaseOwner::new("w-1");
    let claim = Claim { executor: "w", kinds: None, limit: 1, owner: &owner, lease: None };
    database.claim(&claim).await.expect("a claim").pop().expect("a job to claim")
}

pub(crate) async fn enqueue(database: &Database, kind: &str) -> JobId {
    database.enqueue(&NewJob::new(kind)).await.expect("an enqueued job").job_id
}

/// Q20: each claim, retry, error and replay is in the history, with who and when.
#[tokio::test]
async fn a_history_tells_every_attempt() {
    let (_db, database) = with_worker(None).await;
    let job = enqueue(&database, "mail").await;
    let retry = Failure { retry_after: Some(std::time::Duration::ZERO), ..Failure::retry("no network") };
    claim(&database).await.lease.fail(&database, retry).await.unwrap();
    claim(&database).await.lease.fail(&database, Failure::permanent("no such address")).await.unwrap();
    let letter = database.job_show(job).await.unwrap().dead_letter.unwrap().dead_letter_id;
    let fresh = database.dead_letter_replay(letter, "tester").await.unwrap().job_id;
    let events = database.job_history(job).await.unwrap();
    let told: Vec<_> = events.iter().map(|e| (e.event.as_str(), e.attempt, e.actor.as_deref())).collect();
    let by_worker = |event, attempt| (event, Some(attempt), Some("w-1"));
    assert_eq!(
        told[1..5],
        [
            by_worker("claimed", 1),
            by_worker("failed", 1),
            by_worker("claimed", 2),
            by_worker("dead_letter", 2)
        ],
        "{told:?}"
    );
    assert_eq!(told.last().unwrap().0, "replayed");
    assert!(events.iter().all(|event| event.at.is_some()));
    assert_eq!(database.job_show(fresh).await.unwrap().replay_of, Some(job));
}

/// Q01: of the nine words every one but `failed` is reached, and reads as the model says. An attempt fails; its job is
/// `retry_waiting` or `dead_letter` then (docs/origins.md).
#[tokio::test]
async fn every_state_reads_as_the_model_says() {
    let (db, database) = with_worker(None).await;
    let mut reached = BTreeSet::new();
    let mut state = async |job: JobId, expected: JobState| {
        let whole = database.job_show(job).await.unwrap();
        assert_eq!(whole.job.unwrap().state, expected);
        reached.insert(db.text(&format!("select state from towpath.job_queue where job_id = '{job}'")).await);
    };
    let job = enqueue(&database, "mail").await;
    state(job, JobState::Queued).await;
    let claimed = claim(&database).await;
    state(job, JobState::Leased).await;
    claimed.lease.start(&database).await.unwrap();
    state(job, JobState::InProgress).await;
    claimed.lease.fail(&database, Failure::retry("x")).await.unwrap();
    state(job, JobState::RetryWaiting).await;
    database.job_move_to_dead_letter(job, BY).await.unwrap();
    state(job, JobState::DeadLetter).await;
    let other = enqueue(&database, "mail").await;
    assert_eq!(database.job_cancel(other, BY).await.unwrap().state, JobState::Cancelled);
    state(other, JobState::Cancelled).await;
    let good = enqueue(&database, "mail").await;
    claim(&database).await.lease.ack(&database).await.unwrap();
    state(good, JobState::Succeeded).await;
    let permanent = enqueue(&database, "mail").await;
    claim(&database).await.lease.fail(&database, Failure::permanent("x")).await.unwrap();
    state(permanent, JobState::DeadLetter).await;
    db.execute("update towpath.job_retention set cleaned_below = 'ffffffff-ffff-ffff-ffff-ffffffffffff'")
        .await;
    state(job, JobState::Cleaned).await;
    let words = "cancelled cleaned dead_letter in_progress leased queued retry_waiting succeeded";
    assert_eq!(reached, words.split(' ').map(str::to_owned).collect());
}

/// A list narrows by every key of its filter, and a page goes on where the last one ended.
#[tokio::test]
async fn lists_narrow_by_every_key() {
    let (_db, database) = with_worker(None).await;
    let run_id = Uuid::now_v7();
    let job = NewJob::new("mail").executor("Agent").event_domain("sales").actor("shop").run_id(run_id);
    let job_id = database.enqueue(&job.idempotency_key("k")).await.unwrap().job_id;
    for _ in 0..4 {
        enqueue(&database, "noise").await;
    }
    let none = JobFilter::default;
    for filter in [
        JobFilter { job_kind: Some("mail".into()), ..none() },
        JobFilter { executor: Some("Agent".into()), ..none() },
        JobFilter { event_domain: Some("sales".into()), ..none() },
        JobFilter { actor: Some("shop".into()), ..none() },
        JobFilter { run_id: Some(run_id), ..none() },
        JobFilter { idempotency_key: Some("k".into()), state: Some(JobState::Queued), ..none() },
    ] {
        let page = database.job_list(&filter, 10, None).await.unwrap();
        assert_eq!(page.jobs.iter().map(|job| job.job_id).collect::<Vec<_>>(), [job_id], "{filter:?}");
    }
    let held = claim(&database).await;
    let by_owner = JobFilter { lease_owner: Some("w-1".into()), ..none() };
    assert_eq!(database.job_list(&by_owner, 10, None).await.unwrap().jobs[0].job_id, held.lease.job_id());
    let (mut seen, mut cursor) = (vec![], None);
    loop {
        let page = database.job_list(&none(), 2, cursor).await.unwrap();
        seen.extend(page.jobs.iter().map(|job| job.job_id));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|a, b| a > b), "newest first, none twice: {seen:?}");
}

/// What is not there is not found; what has finished cannot be ended.
#[tokio::test]
async fn absent_and_finished_jobs_are_distinguished() {
    let (_db, database) = with_worker(None).await;
    let absent = JobId::from(Uuid::now_v7());
    assert!(matches!(database.job_show(absent).await, Err(Error::NotFound(_))));
    assert!(matches!(database.job_history(absent).await, Err(Error::NotFound(_))));
    assert!(matches!(database.job_why(absent).await, Err(Error::NotFound(_))));
    assert!(matches!(database.job_cancel(absent, BY).await, Err(Error::NotFound(_))));
    let job = enqueue(&database, "mail").await;
    claim(&database).await.lease.ack(&database).await.unwrap();
    assert!(matches!(database.job_cancel(job, BY).await, Err(Error::Conflict(_))));
    assert!(matches!(database.job_move_to_dead_letter(job, BY).await, Err(Error::Conflict(_))));
    let blank = Attribution { actor: " ", reason: "x" };
    assert!(matches!(database.job_cancel(job, blank).await, Err(Error::Invalid(_))));
}

/// R06: why names who holds the places when max_parallel is used up, and the priority floor.
#[tokio::test]
async fn why_names_full_places_and_floors() {
    let (_db, database) = with_worker(Some(1)).await;
    enqueue(&database, "mail").await;
    let waiting = enqueue(&database, "mail").await;
    claim(&database).await;
    let why = database.job_why(waiting).await.unwrap();
    assert_eq!(why.reasons[0].code, "max_parallel");
    assert!(why.reasons[0].text.contains("w-1"), "{why:?}");
    let spec = SubscriptionSpec {
        executor_id: "w",
        executor_kind: "PG_worker",
        priority_floor: 500,
        max_parallel: Some(1),
        enabled: true,
        actor: "tester",
        ..Default::default()
    };
    database.subscription_put(&spec).await.unwrap();
    assert_eq!(database.job_why(waiting).await.unwrap().reasons[0].code, "priority_floor");
}

/// Q18: a graph is emitted once per key, and a bad one names its node.
#[tokio::test]
async fn graphs_are_emitted_once_and_whole() {
    let (db, database) = with_worker(None).await;
    let graph = |edges: Value| {
        json!({"name": "g", "idempotency_key": "g1", "edges": edges,
               "nodes": [{"node": "a", "job_kind": "x"}, {"node": "b", "job_kind": "y"}]})
    };
    let cycle = graph(json!([{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]));
    let error = database.graph_emit(&cycle).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(words) if words.contains("cycle: a, b")), "{error}");
    let mut bad = graph(json!([]));
    bad["nodes"][1]["payload_json"] = json!({"secret": 1});
    let error = database.graph_emit(&bad).await.unwrap_err().to_string();
    assert!(error.contains("node b: the key"), "{error}");
    assert_eq!(db.text("select count(*) from towpath.job").await, "0");
    let good = graph(json!([{"from": "a", "to": "b"}]));
    let first = database.graph_emit(&good).await.unwrap();
    let again = database.graph_emit(&good).await.unwrap();
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!(first.jobs, again.jobs);
    let shown = database.graph_show(first.graph_id).await.unwrap();
    assert_eq!(shown.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(shown.edges.len(), 1);
}

/// O: reading is for observers and administrators; ending is for administrators.
#[tokio::test]
async fn only_the_named_roles_read_and_end_jobs() {
    let db = TestDb::open().await;
    let id = "gen_random_uuid()";
    let reads = [
        format!("fn_job_history({id})"),
        format!("fn_job_why({id})"),
        "fn_job_list()".into(),
        format!("fn_mot_graph_show({id})"),
        "fn_job_dead_letter_list()".into(),
        format!("fn_job_dead_letter_show({id})"),
        "fn_queue_chart()".into(),
    ];
    let ends = [
        format!("fn_job_cancel({id}, 'x')"),
        format!("fn_job_retry({id}, 'x')"),
        format!("fn_job_move_to_dead_letter({id}, 'x', 'y')"),
        format!("fn_job_dead_letter_triage({id}, 'closed', 'x')"),
        format!("fn_job_dead_letter_replay({id}, 'x')"),
        "fn_job_dead_letter_replay_many('{}', 'x')".into(),
        "fn_queue_pause('x', 'y')".into(),
        "fn_queue_resume('x', 'y')".into(),
        "fn_queue_heartbeat_forget('x')".into(),
    ];
    for (role, may_read, may_end) in [
        ("workflow_admin", true, true),
        ("towpath_observer", true, false),
        ("towpath_producer", false, false),
        ("worker_service_user", false, false),
    ] {
        let client = db.client_as(role).await;
        for (calls, may) in [(&reads[..], may_read), (&ends[..], may_end)] {
            for call in calls {
                let outcome = client.batch_execute(&format!("select towpath.{call}")).await;
                let refused = outcome.is_err_and(|error| error.code().unwrap().code() == "42501");
                assert_eq!(refused, !may, "{role}: {call}");
            }
        }
    }
}
