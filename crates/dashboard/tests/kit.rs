//! A dashboard over real HTTP, on a real database and a real store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::header::{LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response, redirect};
use tokio_util::sync::CancellationToken;
use towpath_dashboard::{Access, Config, Cookies, Secret, TestSender, Tested};
use towpath_db::Database;
use towpath_db::event::RouteTest;
use towpath_db::job::{Enqueued, NewJob};
use towpath_route::webhook::{self, Reach, send_test};
use towpath_streams::embedded::{self, Embedded};
use towpath_streams::{Circuits, Store};
use towpath_testkit::database::TestDb;
use towpath_testkit::server::RunningServer;

/// The pages of the navigation.
pub(crate) const PAGES: [&str; 12] = [
    "/ui",
    "/ui/jobs",
    "/ui/dead-letters",
    "/ui/events",
    "/ui/routes",
    "/ui/processes",
    "/ui/schedules",
    "/ui/executors",
    "/ui/streams",
    "/ui/sessions",
    "/ui/gates",
    "/ui/audit",
];

/// A dashboard on a database and a store of its own.
pub(crate) struct TestDashboard {
    pub(crate) db: TestDb,
    pub(crate) database: Database,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) circuits: Circuits,
    pub(crate) server: RunningServer,
    pub(crate) client: Client,
    _directory: tempfile::TempDir,
}

impl TestDashboard {
    pub(crate) async fn open() -> TestDashboard {
        TestDashboard::with(Access::Open).await
    }

    pub(crate) async fn guarded() -> TestDashboard {
        let viewer = Some(Secret::new("look"));
        TestDashboard::with(Access::Guarded { admin: Secret::new("act"), viewer }).await
    }

    pub(crate) async fn with(access: Access) -> TestDashboard {
        TestDashboard::sending(access, Cookies::AsAsked).await
    }

    pub(crate) async fn sending(access: Access, cookies: Cookies) -> TestDashboard {
        let db = TestDb::open().await;
        let database = db.database().await;
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Embedded::open(embedded::Config::new(directory.path().join("streams"))).unwrap());
        let circuits = Circuits::default();
        let config = Config {
            database: database.clone(),
            store: store.clone(),
            circuits: circuits.clone(),
            webhooks: Arc::new(Webhooks::local()),
            access,
            cookies,
        };
        let pages = towpath_dashboard::router(config, CancellationToken::new());
        let server =
            RunningServer::start(towpath_server::Config { pages: Some(pages), ..Default::default() }).await;
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        TestDashboard { db, database, store, circuits, server, client, _directory: directory }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.server.url(path))
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        let response = self.get(path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.unwrap()
    }

    /// A form sent from a page of ours, with its CSRF token.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let csrf = csrf(&self.text("/ui/executors").await);
        let mut fields = fields.to_vec();
        fields.push(("csrf", &csrf));
        self.client
            .post(self.server.url(path))
            .header(ORIGIN, self.origin())
            .form(&fields)
            .send()
            .await
            .unwrap()
    }

    /// Where its own pages come from.
    pub(crate) fn origin(&self) -> String {
        self.server.url("")
    }

    pub(crate) async fn enqueue(&self, kind: &str, payload: serde_json::Value) -> Enqueued {
        self.database.enqueue(&NewJob::new(kind).payload(&payload).unwrap()).await.unwrap()
    }

    /// The cookie of Ann, signed in.
    pub(crate) async fn sign_in(&self, password: &str) -> String {
        self.sign_in_as("ann", password).await
    }

    pub(crate) async fn sign_in_as(&self, name: &str, password: &str) -> String {
        let form = [("name", name), ("password", password), ("to", "/ui/jobs")];
        let response = self
            .client
            .post(self.server.url("/ui/login"))
            .header(ORIGIN, self.origin())
            .form(&form)
            .send()
            .await
            .unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/ui/jobs".parse().unwrap())
        );
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }
}

pub(crate) fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).expect("a page with a form");
    rest.split('"').next().unwrap().to_owned()
}

/// The client of routes, which may reach this machine.
struct Webhooks(webhook::Client);

impl Webhooks {
    fn local() -> Webhooks {
        Webhooks(webhook::Client::new(Reach { local: true, networks: vec![] }).unwrap())
    }
}

impl TestSender for Webhooks {
    fn send(&self, test: RouteTest) -> Pin<Box<dyn Future<Output = Tested> + Send + '_>> {
        Box::pin(async move {
            let report = send_test(&self.0, &test).await;
            Tested { outcome: report.outcome, failure: report.failure }
        })
    }
}
