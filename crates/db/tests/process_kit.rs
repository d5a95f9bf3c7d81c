//! Processes to test on: open gates, a frozen clock, a worker that has only its role.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_testkit::TestDb;

/// A begun attempt is lost after this; the default of every kind.
pub(crate) const LEASE: Duration = Duration::from_secs(120);
/// A job that was not begun is looked for after this.
pub(crate) const PICKUP: Duration = Duration::from_secs(600);
pub(crate) const DEADLINE: Duration = Duration::from_secs(86_400);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A database, its worker and its maintainer.
pub(crate) struct Processes {
    pub(crate) db: TestDb,
    pub(crate) worker: Client,
    pub(crate) maintainer: Client,
}

/// One message on its way: its task, its process, and the handlers of its channel.
pub(crate) struct Send {
    pub(crate) channel: &'static str,
    pub(crate) task: i64,
    pub(crate) process: String,
}

impl std::ops::Deref for Processes {
    type Target = TestDb;

    fn deref(&self) -> &TestDb {
        &self.db
    }
}

impl Processes {
    pub(crate) async fn open() -> Processes {
        let db = TestDb::open().await;
        db.freeze("2026-03-01T12:00:00Z".parse().unwrap()).await;
        // More than the one retry of source 5, so that every outcome can follow every other.
        db.execute("select towpath.fn_process_kind_put('comms.send_email', '{\"max_attempts\": 5}')").await;
        let worker = db.client_as("worker_service_user").await;
        let maintainer = db.client_as("towpath_maintainer").await;
        Processes { db, worker, maintainer }
    }

    /// With a kind `test.call` that the ready-made supervisor supervises.
    pub(crate) async fn with_kind(settings: &Value) -> Processes {
        let place = Processes::open().await;
        place.kind("test.call", settings).await;
        place
    }

    pub(crate) async fn kind(&self, name: &str, settings: &Value) {
        let answer = self.json(&format!("towpath.fn_process_kind_put('{name}', '{settings}')")).await;
        assert_eq!(answer["ok"], true, "{answer}");
    }

    /// Starts a process; answers its id.
    pub(crate) async fn start(&self, kind: &str, reference: &str) -> String {
        let answer = self.json(&format!("towpath.fn_process_start('{kind}', '{reference}')")).await;
        assert_eq!(answer["ok"], true, "{answer}");
        answer["process_id"].as_str().unwrap().to_owned()
    }

    /// A schema of functions that the owner of processes has, and workers may use.
    pub(crate) async fn functions(&self, sql: &str) {
        let schema = "create schema biz authorization towpath_owner; set role towpath_owner; \
                      grant usage on schema biz to worker_service_user";
        self.execute(&format!("{schema}; {sql}")).await;
    }

    /// Calls a business function as the worker does.
    pub(crate) async fn run(&self, function: &str, payload: &Value) -> Value {
        run_as(&self.worker, function, payload).await
    }

    /// The answer of a public function, called by the worker.
    pub(crate) async fn ask(&self, call: &str) -> Value {
        let row = self.worker.query_one(&format!("select towpath.{call}"), &[]).await;
        row.unwrap_or_else(|error| panic!("{call}: {error:?}")).get(0)
    }

    pub(crate) async fn scan(&self) -> Value {
        let row = self.maintainer.query_one("select towpath.fn_process_scan()", &[]).await;
        let answer: Value = row.expect("a scan").get(0);
        assert_eq!(answer["ok"], true, "{answer}");
        answer
    }

    /// The facts of a process, each with its attempt: `["started", "scheduled 1"]`.
    pub(crate) async fn facts(&self, process: &str) -> Vec<String> {
        let sql = format!(
            "select coalesce(string_agg(concat_ws(' ', fact, attempt_no), ',' order by fact_no), '')
               from towpath.process_fact where process_id = '{process}'"
        );
        self.text(&sql).await.split(',').map(str::to_owned).collect()
    }

    pub(crate) async fn state(&self, process: &str) -> String {
        self.text(&format!("select state from towpath.process where process_id = '{process}'")).await
    }

    /// The payload of the job of an attempt.
    pub(crate) async fn job(&self, process: &str, attempt: i32) -> Value {
        let sql = format!(
            "select payload_json from towpath.job join towpath.process_attempt a using (job_id)
              where a.process_id = '{process}' and a.attempt_no = {attempt}"
        );
        self.json(&sql).await
    }

    /// The promises are kept.
    pub(crate) async fn check(&self) {
        assert_eq!(self.broken().await, [""; 0]);
    }

    /// The promises that are broken now.
    pub(crate) async fn broken(&self) -> Vec<&'static str> {
        let mut broken = vec![];
        for (claim, sql) in INVARIANTS {
            if self.text(sql).await != "0" {
                broken.push(*claim);
            }
        }
        broken
    }

    /// Sends one message from its first attempt on.
    pub(crate) async fn send(&self, channel: &'static str) -> Send {
        let message = match channel {
            "email" => json!({ "to": "bob@example.org", "subject": "hello", "text": "how are you" }),
            _ => json!({ "to": "+4915112345678", "text": "hello" }),
        };
        let answer = self.json(&format!("comms.send_{channel}('{message}')")).await;
        assert_eq!(answer["ok"], true, "{answer}");
        Send {
            channel,
            task: answer[format!("send_{channel}_task_id")].as_i64().unwrap(),
            process: answer["process_id"].as_str().unwrap().to_owned(),
        }
    }

    /// Begins an attempt as a worker with a transport does.
    pub(crate) async fn begin(&self, send: &Send, attempt: i32, key_honoured: bool) -> Value {
        let mut payload = self.job(&send.process, attempt).await;
        payload["worker"] = json!({ "name": "w1", "transport": "test", "key_honoured": key_honoured, "from": "us@example.org" });
        self.run(&format!("comms.get_{}_payload", send.channel), &payload).await
    }

    pub(crate) async fn succeed(&self, send: &Send, attempt: i32) -> Value {
        let payload = json!({
            "original_payload": self.job(&send.process, attempt).await,
            "worker_payload": { "transport": "test", "provider_id": "id-1", "response": "250 ok" },
        });
        self.run(&format!("comms.record_{}_success", send.channel), &payload).await
    }

    pub(crate) async fn fail(&self, send: &Send, attempt: i32, error: Value) -> Value {
        let payload = json!({ "original_payload": self.job(&send.process, attempt).await, "error": error });
        self.run(&format!("comms.record_{}_failure", send.channel), &payload).await
    }
}

pub(crate) async fn run_as(client: &Client, function: &str, payload: &Value) -> Value {
    let row = client.query_one("select towpath.run_function($1, $2)", &[&function, payload]).await;
    row.unwrap_or_else(|error| panic!("{function}: {error:?}")).get(0)
}

/// What must be true at any moment, as counts of what is not.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "over, with exactly one terminal fact that is its state",
        "select count(*) from towpath.process p where p.finished_at is not null and 1 <> (
             select count(*) from towpath.process_fact f where f.process_id = p.process_id and f.fact = p.state)",
    ),
    (
        "not over, without a terminal fact",
        "select count(*) from towpath.process p where p.finished_at is null and exists (
             select 1 from towpath.process_fact f where f.process_id = p.process_id
                and f.fact in ('succeeded', 'gave_up', 'cancelled', 'invalid'))",
    ),
    (
        "never more than one attempt outstanding",
        "select count(*) from (select 1 from towpath.process_attempt a where a.outcome is null
             group by a.process_id having count(*) > 1) x",
    ),
    (
        "what may have reached the other side is within max_attempts",
        "select count(*) from towpath.process p where p.max_attempts < (
             select count(*) from towpath.process_attempt a where a.process_id = p.process_id and a.begun_at is not null
                and a.outcome is distinct from 'suspended')",
    ),
    (
        "a step, or a signal of a name, is recorded once",
        "select count(*) from (select 1 from towpath.process_fact f where f.fact in ('stepped', 'signalled')
             group by f.process_id, f.fact, f.name having count(*) > 1) x",
    ),
    (
        "a process that waits has no attempt outstanding, and one that was signalled does not wait",
        "select count(*) from towpath.process p where p.finished_at is null and p.waits_for is not null and (
             exists (select 1 from towpath.process_attempt a where a.process_id = p.process_id and a.outcome is null)
             or exists (select 1 from towpath.process_fact f where f.process_id = p.process_id and f.fact = 'signalled'
                           and f.name = p.waits_for))",
    ),
    (
        "attempts and facts have a process, and processes a kind",
        "select count(*) from (
             select from towpath.process_attempt a where not exists (
                 select from towpath.process p where p.process_id = a.process_id)
             union all select from towpath.process_fact f where not exists (
                 select from towpath.process p where p.process_id = f.process_id)
             union all select from towpath.process p where not exists (
                 select from towpath.process_kind k where k.process_kind = p.process_kind)) x",
    ),
    (
        "the terminal facts of e-mails are those of their processes",
        "select count(*) from towpath.process p where p.process_kind = 'comms.send_email' and (p.finished_at is not null)
             <> comms.is_send_email_task_over(p.ref::bigint)",
    ),
    (
        "the terminal facts of text messages are those of their processes",
        "select count(*) from towpath.process p where p.process_kind = 'comms.send_sms' and (p.finished_at is not null)
             <> comms.is_send_sms_task_over(p.ref::bigint)",
    ),
];
