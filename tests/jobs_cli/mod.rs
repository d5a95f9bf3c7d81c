//! The operator's commands for jobs.

mod dlq;
mod executor;
mod fault;
mod job;
mod queue;
mod schedule;

use std::process::Command;

use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::job::{Claim, ClaimedJob, Failure, LeaseOwner, NewJob};
use towpath_db::subscription::SubscriptionSpec;
use towpath_testkit::TestDb;

use crate::towpath::{Place, words};

/// A shell on its own database, with open gates and the executor `w`, which claims
/// every kind for PG_worker.
pub(crate) struct Shell {
    pub(crate) db: TestDb,
    pub(crate) database: Database,
    place: Place,
}

impl Shell {
    pub(crate) async fn open() -> Shell {
        let db = TestDb::open().await;
        let database = db.database().await;
        database.consumer_put("w", "PG_worker", None, None, "tester").await.unwrap();
        let spec = SubscriptionSpec {
            executor_id: "w",
            executor_kind: "PG_worker",
            enabled: true,
            actor: "tester",
            ..Default::default()
        };
        database.subscription_put(&spec).await.unwrap();
        Shell { db, database, place: Place::new() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("DATABASE_URL", self.db.url());
        command
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.code(0, arguments)
    }

    /// Runs a command that must end with this code, and returns its output.
    pub(crate) fn code(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", words(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail, and returns its error message.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        self.complaint(1, arguments)
    }

    /// Runs a command whose arguments are wrong, and returns its error message.
    pub(crate) fn misused(&self, arguments: &[&str]) -> String {
        self.complaint(2, arguments)
    }

    fn complaint(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", words(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", words(&output));
        String::from_utf8(output.stderr).unwrap()
    }

    /// What a command prints with `--json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [&["--json"], arguments].concat();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// A job of this kind, and its id.
    pub(crate) async fn enqueue(&self, kind: &str) -> String {
        let job = NewJob::new(kind).payload(&json!({"ref": kind})).unwrap();
        self.database.enqueue(&job).await.unwrap().job_id.to_string()
    }

    /// The next job, which must be there, claimed by `w`.
    pub(crate) async fn claim(&self) -> ClaimedJob {
        let owner = LeaseOwner::new("w-1");
        let claim = Claim { executor: "w", kinds: None, limit: 1, owner: &owner, lease: None };
        self.database.claim(&claim).await.unwrap().pop().expect("a job to claim")
    }

    /// A dead letter of this kind, with this error: its job's id.
    pub(crate) async fn dead(&self, kind: &str, error: &str) -> String {
        let job_id = self.enqueue(kind).await;
        self.claim().await.lease.fail(&self.database, Failure::permanent(error)).await.unwrap();
        job_id
    }
}

/// The text contains every part.
pub(crate) fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
