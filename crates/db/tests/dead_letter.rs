//! Dead letters: `sql/functions/job_dead_letter.sql`.

use towpath_db::dead_letter::DeadLetterFilter;
use towpath_db::job::{Failure, NewJob};
use towpath_db::{Attribution, Database, Error};
use towpath_model::id::{DeadLetterId, JobId};
use uuid::Uuid;

use crate::job_read::{claim, enqueue, with_worker};

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "ticket 7" };

async fn dead(database: &Database, kind: &str) -> (JobId, DeadLetterId) {
    let job_id = enqueue(database, kind).await;
    claim(database).await.lease.fail(database, Failure::permanent("gone")).await.expect("a dead letter");
    let letter = database.job_show(job_id).await.expect("the job").dead_letter.expect("its letter");
    (job_id, letter.dead_letter_id)
}

/// Q12: a dead letter is found by its own id and its job's, and outlives the job.
#[tokio::test]
async fn a_letter_outlives_its_job() {
    let (db, database) = with_worker(None).await;
    let (job, letter) = dead(&database, "mail").await;
    dead(&database, "other").await;
    db.execute("delete from towpath.job; delete from towpath.job_run").await;
    for id in [letter, DeadLetterId::from(job.uuid())] {
        let shown = database.dead_letter_show(id).await.unwrap();
        assert_eq!((shown.dead_letter_id, shown.job_id, shown.final_error.as_str()), (letter, job, "gone"));
    }
    let absent = database.dead_letter_show(Uuid::now_v7().into()).await.unwrap_err();
    assert!(matches!(absent, Error::NotFound(_)), "{absent}");
}

/// Q12: replay makes one fresh job, linked both ways; a second replay is a conflict.
#[tokio::test]
async fn a_letter_is_replayed_once() {
    let (_db, database) = with_worker(None).await;
    let (job, letter) = dead(&database, "mail").await;
    let fresh = database.dead_letter_replay(letter, "tester").await.unwrap();
    assert_ne!(fresh.job_id, job);
    let shown = database.dead_letter_show(letter).await.unwrap();
    assert_eq!(shown.replayed_job_id, Some(fresh.job_id));
    assert_eq!(
        (shown.triage_status.as_str(), shown.replayed_by.as_deref()),
        ("manual_replay", Some("tester"))
    );
    assert!(matches!(database.dead_letter_replay(letter, "tester").await, Err(Error::Conflict(_))));
    assert!(matches!(database.dead_letter_replay(letter, " ").await, Err(Error::Invalid(_))));
    assert!(matches!(database.dead_letter_replay(Uuid::now_v7().into(), "t").await, Err(Error::NotFound(_))));
    claim(&database).await.lease.ack(&database).await.unwrap();
}

/// Q12: in bulk by filter: what fits and was not replayed, and what is in the way.
#[tokio::test]
async fn letters_are_replayed_by_filter() {
    let (_db, database) = with_worker(None).await;
    for _ in 0..3 {
        dead(&database, "mail").await;
    }
    dead(&database, "report").await;
    let keyed = NewJob::new("mail").idempotency_key("k");
    database.enqueue(&keyed).await.unwrap();
    claim(&database).await.lease.fail(&database, Failure::permanent("gone")).await.unwrap();
    database.enqueue(&keyed).await.unwrap();
    let mail = DeadLetterFilter { job_kind: Some("mail".into()), ..Default::default() };
    let done = database.dead_letter_replay_many(&mail, "tester", 100, None).await.unwrap();
    assert_eq!((done.replayed.len(), done.conflicts.len()), (3, 1));
    let again = database.dead_letter_replay_many(&mail, "tester", 100, None).await.unwrap();
    assert_eq!((again.replayed.len(), again.conflicts.len()), (0, 1));
    let counted = database.dead_letter_count(&mail).await.unwrap();
    assert_eq!((counted.count, counted.replayed, counted.kinds["mail"]), (4, 3, 4));
    let open = DeadLetterFilter { replayed: Some(false), ..Default::default() };
    assert_eq!(database.dead_letter_list(&open, 10, None).await.unwrap().dead_letters.len(), 2);
    let summary = database.dead_letter_summary().await.unwrap();
    let of: Vec<_> = summary
        .iter()
        .map(|row| (row.job_kind.as_str(), row.triage_status.as_str(), row.row_count))
        .collect();
    assert_eq!(of, [("mail", "manual_replay", 3), ("mail", "pending", 1), ("report", "pending", 1)]);
}

/// Q12: the five states and no other, with who and why.
#[tokio::test]
async fn triage_takes_the_five_states() {
    let (_db, database) = with_worker(None).await;
    let (_, letter) = dead(&database, "mail").await;
    for status in ["acknowledged", "manual_replay", "escalated", "closed", "pending"] {
        database.dead_letter_triage(letter, status, BY).await.unwrap();
        let shown = database.dead_letter_show(letter).await.unwrap();
        assert_eq!((shown.triage_status.as_str(), shown.triage_note.as_deref()), (status, Some("ticket 7")));
        assert_eq!(shown.triaged_by.as_deref(), Some("tester"));
    }
    assert!(matches!(database.dead_letter_triage(letter, "forgotten", BY).await, Err(Error::Invalid(_))));
    let absent = database.dead_letter_triage(Uuid::now_v7().into(), "closed", BY).await;
    assert!(matches!(absent, Err(Error::NotFound(_))));
}

/// A filter with every key is understood by the database; an empty one says that it is.
#[tokio::test]
async fn every_key_of_a_filter_is_understood() {
    let (_db, database) = with_worker(None).await;
    dead(&database, "mail").await;
    let now = jiff::Timestamp::now();
    let filter = DeadLetterFilter {
        job_kind: Some("mail".into()),
        executor: Some("PG_worker".into()),
        event_domain: None,
        triage_status: Some("pending".into()),
        run_id: None,
        error_contains: Some("on".into()),
        moved_after: Some(now - std::time::Duration::from_secs(3600)),
        moved_before: Some(now + std::time::Duration::from_secs(3600)),
        replayed: Some(false),
    };
    assert_eq!(database.dead_letter_list(&filter, 10, None).await.unwrap().dead_letters.len(), 1);
    let elsewhere =
        DeadLetterFilter { run_id: Some(Uuid::now_v7()), event_domain: Some("x".into()), ..filter };
    assert!(database.dead_letter_list(&elsewhere, 10, None).await.unwrap().dead_letters.is_empty());
    assert!(!elsewhere.is_empty() && DeadLetterFilter::default().is_empty());
}

/// Q12: letters that cannot be replayed do not keep those behind them from it, however
/// small the steps are.
#[tokio::test]
async fn a_bulk_replay_goes_past_conflicts() {
    let (_db, database) = with_worker(None).await;
    for key in ["a", "b", "c"] {
        let keyed = NewJob::new("mail").idempotency_key(key);
        database.enqueue(&keyed).await.unwrap();
        claim(&database).await.lease.fail(&database, Failure::permanent("gone")).await.unwrap();
        database.enqueue(&keyed.executor("DOT")).await.unwrap();
    }
    dead(&database, "mail").await;
    let all = DeadLetterFilter::default();
    let (mut cursor, mut replayed, mut conflicts) = (None, 0, 0);
    loop {
        let step = database.dead_letter_replay_many(&all, "tester", 2, cursor).await.unwrap();
        (replayed, conflicts) = (replayed + step.replayed.len(), conflicts + step.conflicts.len());
        cursor = step.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((replayed, conflicts), (1, 3));
}
