//! The pages over real HTTP, on a real database and a real store (O03).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response, redirect};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use towpath_dashboard::{Access, Config, Secret};
use towpath_db::Database;
use towpath_db::event::NewEvent;
use towpath_db::job::{Enqueued, NewJob};
use towpath_db::job_read::JobFilter;
use towpath_model::job_state::JobState;
use towpath_streams::Store;
use towpath_streams::embedded::{self, Embedded};
use towpath_testkit::database::TestDb;
use towpath_testkit::server::RunningServer;

const PAGES: [&str; 11] = [
    "/ui",
    "/ui/jobs",
    "/ui/dead-letters",
    "/ui/events",
    "/ui/routes",
    "/ui/processes",
    "/ui/schedules",
    "/ui/executors",
    "/ui/streams",
    "/ui/gates",
    "/ui/audit",
];

struct Place {
    db: TestDb,
    database: Database,
    server: RunningServer,
    client: Client,
    _directory: tempfile::TempDir,
}

impl Place {
    async fn open() -> Place {
        Place::with(Access::Open).await
    }

    async fn guarded() -> Place {
        let viewer = Some(Secret::new("look"));
        Place::with(Access::Guarded { admin: Secret::new("act"), viewer }).await
    }

    async fn with(access: Access) -> Place {
        let db = TestDb::open().await;
        let database = db.database().await;
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Embedded::open(embedded::Config::new(directory.path().join("streams"))).unwrap());
        let pages = towpath_dashboard::router(
            Config { database: database.clone(), store, access },
            CancellationToken::new(),
        );
        let server =
            RunningServer::start(towpath_server::Config { pages: Some(pages), ..Default::default() }).await;
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Place { db, database, server, client, _directory: directory }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.server.url(path))
    }

    async fn text(&self, path: &str) -> String {
        let response = self.get(path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.unwrap()
    }

    /// A form sent from a page of ours, with the word that its forms carry.
    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let csrf = csrf(&self.text("/ui/executors").await);
        let mut fields = fields.to_vec();
        fields.push(("csrf", &csrf));
        self.client.post(self.server.url(path)).form(&fields).send().await.unwrap()
    }

    async fn enqueue(&self, kind: &str, payload: serde_json::Value) -> Enqueued {
        self.database.enqueue(&NewJob::new(kind).payload(&payload).unwrap()).await.unwrap()
    }

    /// The cookie of somebody who signed in.
    async fn sign_in(&self, password: &str) -> String {
        let form = [("name", "ann"), ("password", password), ("to", "/ui/jobs")];
        let response = self.client.post(self.server.url("/ui/login")).form(&form).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/ui/jobs".parse().unwrap())
        );
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }
}

fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).expect("a page with a form");
    rest.split('"').next().unwrap().to_owned()
}

/// Every page answers on an empty database, says what to do, and takes nothing from elsewhere.
#[tokio::test]
async fn every_page_of_a_fresh_instance_answers() {
    let place = Place::open().await;
    for path in PAGES {
        let response = place.get(path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let text = response.text().await.unwrap();
        assert!(!text.contains("http://") && !text.contains("https://"), "{path} names another host");
        assert!(!text.contains("style=") && !text.contains(" onclick"), "{path} has something inline");
    }
    assert_eq!(place.get("/ui/nothing").send().await.unwrap().status(), 404);
    assert_eq!(place.get("/ui/jobs/nonsense").send().await.unwrap().status(), 404);
}

/// Markup in names, payloads, errors and streams is shown, never run.
#[tokio::test]
async fn markup_is_inert() {
    let place = Place::open().await;
    let evil = "<script>alert(1)</script>";
    let job = place.enqueue(evil, json!({ evil: evil })).await;
    place.database.queue_pause(evil, towpath_db::Attribution { actor: evil, reason: evil }).await.unwrap();
    let paths = ["/ui", "/ui/jobs", "/ui/executors", &format!("/ui/jobs/{}", job.job_id)];
    for path in paths {
        let text = place.text(path).await;
        assert!(!text.contains(evil), "{path}");
        assert!(text.contains("&#60;script&#62;"), "{path} does not show it at all");
    }
    let asked = place.text("/ui/jobs?kind=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(!asked.contains("<script>alert"));
}

/// The filter finds by kind, state, payload field and error text, and stands in the URL.
#[tokio::test]
async fn jobs_are_found_by_what_is_in_them() {
    let place = Place::open().await;
    for order in 0..120 {
        place
            .enqueue("order.ship", json!({ "order": order, "customer": { "id": format!("c{order}") } }))
            .await;
    }
    place.enqueue("mail", json!({ "order": 7 })).await;
    let rows = |text: &str| text.matches(r#"<td><a class="id" href="/ui/jobs/"#).count();
    assert_eq!(rows(&place.text("/ui/jobs?payload=order%3D7").await), 2);
    assert_eq!(rows(&place.text("/ui/jobs?payload=customer.id%3Dc5").await), 1);
    assert_eq!(rows(&place.text("/ui/jobs?payload=order%3D7&kind=mail&state=queued").await), 1);
    assert_eq!(rows(&place.text("/ui/jobs?state=succeeded").await), 0);
    let first = place.text("/ui/jobs?kind=order.ship").await;
    assert_eq!(rows(&first), 50);
    let older = first.split(r#"href="/ui/jobs?kind=order.ship&amp;cursor="#).nth(1).unwrap();
    let cursor = older.split('"').next().unwrap();
    assert_eq!(rows(&place.text(&format!("/ui/jobs?kind=order.ship&cursor={cursor}")).await), 50);
    let wrong = place.get("/ui/jobs?payload=nonsense").send().await.unwrap();
    assert_eq!(wrong.status(), 422);
    assert!(wrong.text().await.unwrap().contains("customer.id=x"));
}

/// An action does what the command line does, and leaves a row in the audit, also when refused.
#[tokio::test]
async fn an_action_is_done_and_written_down() {
    let place = Place::open().await;
    let job = place.enqueue("mail", json!({})).await.job_id;
    let path = format!("/ui/jobs/{job}");
    let done = place.post(&path, &[("do", "cancel"), ("reason", "a test")]).await;
    assert_eq!(done.status(), 303);
    assert_eq!(place.database.job_show(job).await.unwrap().job.unwrap().state, JobState::Cancelled);
    place.post(&path, &[("do", "cancel"), ("reason", "again")]).await;
    let audit = place.database.audit_list(10, None).await.unwrap();
    let told: Vec<_> =
        audit.iter().map(|row| (row.action.as_str(), row.detail.as_deref(), row.outcome == "ok")).collect();
    assert_eq!(told, [("job cancel", Some("again"), false), ("job cancel", Some("a test"), true)]);
    assert!(place.text("/ui/audit").await.contains(&job.to_string()));
    let gate = [("do", "close"), ("target", "queue.worker.enabled"), ("reason", "a test")];
    assert_eq!(place.post("/ui/gates", &gate).await.status(), 303);
    assert!(place.text("/ui/gates").await.contains("a test"));
    let silent = [("do", "open"), ("target", "queue.worker.enabled")];
    assert_eq!(place.post("/ui/gates", &silent).await.status(), 422);
}

/// A bulk action counts first, refuses to mean everything, and then does all that matches.
#[tokio::test]
async fn a_bulk_action_is_previewed_and_then_done() {
    let place = Place::open().await;
    for order in 0..450 {
        place.enqueue(if order % 3 == 0 { "keep" } else { "drop" }, json!({ "order": order })).await;
    }
    assert_eq!(place.post("/ui/jobs/bulk", &[("do", "cancel")]).await.status(), 422);
    let preview = place.post("/ui/jobs/bulk", &[("do", "cancel"), ("kind", "drop")]).await;
    assert!(preview.text().await.unwrap().contains("cancel 300 jobs?"));
    let left = JobFilter { state: Some(JobState::Queued), ..JobFilter::default() };
    assert_eq!(place.database.job_list(&left, 1000, None).await.unwrap().jobs.len(), 450);
    let begun = place.post("/ui/jobs/bulk", &[("do", "cancel"), ("kind", "drop"), ("sure", "yes")]).await;
    let page = begun.headers()[LOCATION].to_str().unwrap().to_owned();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.text(&page).await.contains("ended") {
        assert!(Instant::now() < deadline, "the bulk action never ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(place.text(&page).await.contains("300 done"));
    assert_eq!(place.database.job_list(&left, 1000, None).await.unwrap().jobs.len(), 150);
}

/// Somebody with the viewer's password sees every page and can change nothing.
#[tokio::test]
async fn a_viewer_looks_and_cannot_act() {
    let place = Place::guarded().await;
    let job = place.enqueue("mail", json!({})).await.job_id;
    let viewer = place.sign_in("look").await;
    for path in PAGES {
        let response = place.get(path).header(COOKIE, &viewer).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert!(!response.text().await.unwrap().contains(r#"name="csrf""#), "{path} offers a form");
    }
    let posts = [
        (format!("/ui/jobs/{job}"), "cancel"),
        ("/ui/jobs/bulk".into(), "cancel"),
        (format!("/ui/dead-letters/{job}"), "replay"),
        ("/ui/executors".into(), "pause"),
        (format!("/ui/events/{job}"), "send"),
        ("/ui/routes".into(), "enable"),
        (format!("/ui/processes/{job}"), "cancel"),
        ("/ui/schedules".into(), "run"),
        ("/ui/gates".into(), "close"),
    ];
    for (path, verb) in posts {
        let form = [
            ("do", verb),
            ("target", "queue.worker.enabled"),
            ("kind", "mail"),
            ("reason", "x"),
            ("sure", "yes"),
        ];
        for request in [
            place.client.post(place.server.url(&path)).header(COOKIE, &viewer).form(&form),
            place.client.post(place.server.url(&path)).bearer_auth("look").form(&form),
        ] {
            assert_eq!(request.send().await.unwrap().status(), 403, "{path}");
        }
    }
    assert_eq!(place.database.job_show(job).await.unwrap().job.unwrap().state, JobState::Queued);
    assert_eq!(place.db.json("select count(*)::text::jsonb from towpath.audit").await, 0);
}

/// Without a password nobody sees anything; guessing ends; a cookie cannot be changed.
#[tokio::test]
async fn nobody_gets_in_without_a_password() {
    let place = Place::guarded().await;
    for path in PAGES.into_iter().chain(["/ui/live", "/ui/stream?id=x"]) {
        let response = place.get(path).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/ui/login".parse().unwrap())
        );
    }
    let viewer = place.sign_in("look").await;
    let forged = viewer.replacen("viewer", "admin", 1);
    assert_eq!(place.get("/ui").header(COOKIE, forged).send().await.unwrap().status(), 303);
    let mut statuses = vec![];
    for guess in 0..40 {
        let form = [("password", format!("guess {guess}"))];
        let response = place.client.post(place.server.url("/ui/login")).form(&form).send().await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
}

/// A form from another site, without the word of the page, or by a strange name is refused.
#[tokio::test]
async fn a_page_elsewhere_cannot_act() {
    let place = Place::open().await;
    let form = [("do", "pause"), ("target", "mail")];
    let post = || place.client.post(place.server.url("/ui/executors"));
    assert_eq!(post().form(&form).send().await.unwrap().status(), 403);
    let csrf = csrf(&place.text("/ui/executors").await);
    let form = [("do", "pause"), ("target", "mail"), ("csrf", &csrf)];
    let foreign = post().header(ORIGIN, "https://evil.example").form(&form);
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    let cross = post().header("sec-fetch-site", "cross-site").form(&form);
    assert_eq!(cross.send().await.unwrap().status(), 403);
    let rebound = place.get("/ui").header(HOST, "evil.example:4437").send().await.unwrap();
    assert_eq!(rebound.status(), 403);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 0);
    assert_eq!(post().form(&form).send().await.unwrap().status(), 303);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 1);
}

/// An event's page says who hears it and what routes decided; a route is switched from its page.
#[tokio::test]
async fn an_event_is_explained_and_a_route_is_switched() {
    let place = Place::open().await;
    let event = NewEvent::new("sales", "order.placed").payload(&json!({ "order": 7 })).unwrap();
    let event = place.database.event_emit(&event).await.unwrap().event_id;
    place.database.event_sequence(100).await.unwrap();
    let list = place.text("/ui/events?payload=order%3D7&domain=sales").await;
    assert!(list.contains(&format!("/ui/events/{event}")), "{list}");
    assert!(!place.text("/ui/events?payload=order%3D8").await.contains(&event.to_string()));
    let page = place.text(&format!("/ui/events/{event}")).await;
    assert!(page.contains("broadcast") && page.contains("order.placed"));
    place
        .db
        .execute(
            "select towpath.fn_route_put('ship', 'job', '{\"job_kind\": \"order.ship\"}', 'sales', p_actor => 'test')",
        )
        .await;
    let switch = [("do", "dry-run"), ("target", "ship"), ("reason", "try it")];
    assert_eq!(place.post("/ui/routes", &switch).await.status(), 303);
    let routes = place.text("/ui/routes").await;
    assert!(routes.contains("dry run") && routes.contains("try it"), "{routes}");
    let send = [("do", "send"), ("route", "ship")];
    assert_eq!(place.post(&format!("/ui/events/{event}"), &send).await.status(), 303);
    assert!(place.text(&format!("/ui/events/{event}")).await.contains("by route ship"));
}

/// A process shows its facts, what its supervisor does next, and can be cancelled.
#[tokio::test]
async fn a_process_shows_its_facts() {
    let place = Place::open().await;
    place.db.execute("select comms.send_email('{\"to\": \"ann@example.com\", \"subject\": \"Hello\", \"text\": \"Hi\"}')").await;
    let list = place.text("/ui/processes").await;
    let id = list.split("/ui/processes/").nth(1).expect("a process").split('"').next().unwrap();
    let page = place.text(&format!("/ui/processes/{id}")).await;
    assert!(page.contains("Its supervisor looks again"), "{page}");
    let path = format!("/ui/processes/{id}");
    assert_eq!(place.post(&path, &[("do", "cancel"), ("reason", "not needed")]).await.status(), 303);
    assert!(place.text(&path).await.contains("cancelled"));
}

/// An open page hears of a change by our own stream.
#[tokio::test]
async fn an_open_page_hears_of_changes() {
    let place = Place::open().await;
    let mut live = place.get("/ui/live").send().await.unwrap();
    assert_eq!(live.status(), 200);
    let mut heard = String::new();
    let read = async |live: &mut Response, heard: &mut String, topic: &str| {
        while !heard.contains(topic) {
            heard.push_str(&String::from_utf8_lossy(&live.chunk().await.unwrap().expect("it goes on")));
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, read(&mut live, &mut heard, "gates")).await.unwrap();
    heard.clear();
    place.enqueue("mail", json!({})).await;
    tokio::time::timeout(patience, read(&mut live, &mut heard, "jobs")).await.unwrap();
    assert!(!heard.contains("gates"), "{heard}");
}
