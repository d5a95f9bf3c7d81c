//! The executor API: work over HTTP without a database login, and nothing beyond a token.

mod emit;
mod events;
mod many;
mod payload;
mod process;
mod producer;
mod refusal;
mod register;
mod status;
mod stream;
mod work;

use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::executor_token::TokenSpec;
use towpath_db::job::NewJob;
use towpath_db::subscription::SubscriptionSpec;
use towpath_server::Config;
use towpath_testkit::TestDb;
use towpath_testkit::server::RunningServer;

/// A database with open gates, a server on it, and two executors: `py` claims `resize` and
/// `crop`, `ts` claims `crop`, both as external_worker.
pub(crate) struct Api {
    pub(crate) db: TestDb,
    pub(crate) database: Database,
    pub(crate) server: RunningServer,
    http: reqwest::Client,
}

/// What the server said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

impl Api {
    pub(crate) async fn start() -> Api {
        let db = TestDb::open().await;
        let database = db.database().await;
        for (executor_id, job_kind) in [("py", "resize"), ("py", "crop"), ("ts", "crop")] {
            database.consumer_put(executor_id, "external_worker", None, None, "tester").await.unwrap();
            let spec = SubscriptionSpec {
                executor_id,
                executor_kind: "external_worker",
                job_kind: Some(job_kind),
                enabled: true,
                actor: "tester",
                ..Default::default()
            };
            database.subscription_put(&spec).await.unwrap();
        }
        let server =
            RunningServer::start(Config { database: Some(database.clone()), ..Default::default() }).await;
        Api { db, database, server, http: reqwest::Client::new() }
    }

    /// A token of an executor for some kinds (none: all) that may enqueue.
    pub(crate) async fn token(&self, executor_id: &str, kinds: &[&str]) -> String {
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let spec = TokenSpec {
            executor_id,
            kinds: (!kinds.is_empty()).then_some(&kinds),
            may_enqueue: true,
            actor: "tester",
            ..Default::default()
        };
        self.database.executor_token_create(&spec).await.unwrap().token
    }

    /// A job of this kind, enqueued by somebody with a database login.
    pub(crate) async fn enqueue(&self, kind: &str) -> String {
        let job = NewJob::new(kind).executor("external_worker").payload(&json!({"ref": kind})).unwrap();
        self.database.enqueue(&job).await.unwrap().job_id.to_string()
    }

    pub(crate) async fn post(&self, token: &str, verb: &str, body: Value) -> Said {
        self.send(verb, Some(format!("Bearer {token}")), body.to_string()).await
    }

    pub(crate) async fn send(&self, verb: &str, authorization: Option<String>, body: String) -> Said {
        self.post_to(&format!("/api/v1/jobs/{verb}"), authorization, body).await
    }

    pub(crate) async fn post_to(&self, path: &str, authorization: Option<String>, body: String) -> Said {
        let mut request = self.http.post(self.server.url(path)).body(body);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        Said::of(path, request).await
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Said {
        Said::of(path, self.http.get(self.server.url(path)).bearer_auth(token)).await
    }

    /// Claims one job, which must be there: its id and attempt, as later calls take them.
    pub(crate) async fn claim(&self, token: &str) -> Value {
        let said = self.post(token, "claim", json!({})).await;
        assert_eq!(said.status, 200, "{said:?}");
        let job = &said.body["jobs"][0];
        assert!(job.is_object(), "nothing to claim: {said:?}");
        json!({ "job_id": job["job_id"], "attempt": job["attempt"] })
    }

    /// Waits until the server has called a function of the database after a moment.
    pub(crate) async fn until_called(&self, function: &str, since: &str) {
        let called = format!(
            "select count(*) > 0 from pg_stat_activity
              where datname = current_database() and query like '%{function}%' and query_start > '{since}'"
        );
        self.db.until(&called, "true").await;
    }

    /// The state of a job.
    pub(crate) async fn state(&self, job_id: &Value) -> String {
        let id = job_id.as_str().unwrap();
        self.db.text(&format!("select state from towpath.job_queue where job_id = '{id}'")).await
    }
}

/// An object with more fields.
pub(crate) fn with(held: &Value, more: &Value) -> Value {
    let mut both = held.as_object().unwrap().clone();
    both.extend(more.as_object().unwrap().clone());
    both.into()
}

impl Said {
    async fn of(what: &str, request: reqwest::RequestBuilder) -> Said {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").map(|v| v.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{what}: {status} {text:?}"));
        Said { status, retry_after, body }
    }

    /// The status and the word of refusal.
    pub(crate) fn word(&self) -> (u16, &str) {
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        (self.status, self.body["error"].as_str().unwrap())
    }
}
