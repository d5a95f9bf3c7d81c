//! Every page answers, and its actions do what the command line does (O03).

use reqwest::Response;
use reqwest::header::{CONTENT_SECURITY_POLICY, LOCATION};
use serde_json::json;
use towpath_db::event::NewEvent;
use towpath_db::job_read::JobFilter;
use towpath_model::job_state::JobState;
use towpath_testkit::wait::{self, within};

use crate::kit::{PAGES, TestDashboard};

/// Every page answers on an empty database, says what to do, and takes nothing from elsewhere.
#[tokio::test]
async fn every_page_of_a_fresh_instance_answers() {
    let place = TestDashboard::open().await;
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

/// The filter finds by kind, state, payload field and error text, and stands in the URL.
#[tokio::test]
async fn jobs_are_found_by_what_is_in_them() {
    let place = TestDashboard::open().await;
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
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().await.unwrap().contains("customer.id=x"));
}

/// Q20: an actor that is not the login stands beside it, on the page of a job and on that of an event.
#[tokio::test]
async fn a_claimed_actor_stands_beside_the_login() {
    let place = TestDashboard::open().await;
    let job = place.db.text("select towpath.enqueue('mail', actor => 'alice')").await;
    let event = place.db.text("select towpath.emit('orders', 'paid', actor => 'alice')").await;
    let login = place.db.text("select session_user").await;
    for path in [format!("/ui/jobs/{job}"), format!("/ui/events/{event}")] {
        let page = place.text(&path).await;
        assert!(page.contains(&format!("alice (claimed by login {login})")), "{path}: {page}");
    }
}

/// A filter that does not fit is said on its own page, beside what was typed.
#[tokio::test]
async fn a_bad_filter_is_a_bad_request_on_its_own_page() {
    let place = TestDashboard::open().await;
    for (path, title, kept) in [
        ("/ui/jobs?kind=a%00b&executor=typed", "Jobs", "a"),
        ("/ui/jobs?state=nonsense&kind=typed", "Jobs", "typed"),
        ("/ui/jobs?payload=nonsense&kind=typed", "Jobs", "typed"),
        ("/ui/jobs?after=yesterday&kind=typed", "Jobs", "typed"),
        ("/ui/jobs?cursor=nonsense&kind=typed", "Jobs", "typed"),
        ("/ui/dead-letters?kind=typed&error=%00", "Dead letters", "typed"),
        ("/ui/dead-letters?kind=typed&cursor=x", "Dead letters", "typed"),
        ("/ui/events?domain=typed&payload=x", "Events", "typed"),
        ("/ui/events?domain=typed&subject=%00", "Events", "typed"),
        ("/ui/events?domain=typed&before=x", "Events", "typed"),
        ("/ui/processes?kind=typed&ref=%00", "Processes", "typed"),
        ("/ui/processes?kind=typed&cursor=x", "Processes", "typed"),
        ("/ui/streams?prefix=typed&project=%00", "Streams", "typed"),
        ("/ui/streams?prefix=typed&project=no%2Fname", "Streams", "typed"),
        ("/ui/sessions?session=typed&project=no%2Fname", "Sessions", "typed"),
        ("/ui/audit?before=x", "Audit", ""),
    ] {
        let answer = place.get(path).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{path}");
        let page = answer.text().await.unwrap();
        assert!(
            page.contains(&format!("<title>{title} · Towpath</title>")),
            "{path} is another page: {page}"
        );
        assert!(page.contains(r#"class="notice bad""#), "{path} does not say what is wrong");
        assert!(
            kept.is_empty() || page.contains(&format!(r#"value="{kept}"#)),
            "{path} forgot what was typed"
        );
    }
    assert_eq!(place.get("/ui/routes/%00").send().await.unwrap().status(), 404);
    let nul = [("do", "pause"), ("target", "a\0b")];
    assert_eq!(place.post("/ui/executors", &nul).await.status(), 400);
}

/// An action does what the command line does, and leaves a row in the audit, also when refused.
#[tokio::test]
async fn an_action_is_done_and_written_down() {
    let place = TestDashboard::open().await;
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
    assert_eq!(place.post("/ui/gates", &silent).await.status(), 400);
}

/// A bulk action counts first, refuses to mean everything, and then does all that matches.
#[tokio::test]
async fn a_bulk_action_is_previewed_and_then_done() {
    let place = TestDashboard::open().await;
    for order in 0..450 {
        place.enqueue(if order % 3 == 0 { "keep" } else { "drop" }, json!({ "order": order })).await;
    }
    assert_eq!(place.post("/ui/jobs/bulk", &[("do", "cancel")]).await.status(), 400);
    let preview = place.post("/ui/jobs/bulk", &[("do", "cancel"), ("kind", "drop")]).await;
    assert!(preview.text().await.unwrap().contains("cancel 300 jobs?"));
    let left = JobFilter { state: Some(JobState::Queued), ..JobFilter::default() };
    assert_eq!(place.database.job_list(&left, 1000, None).await.unwrap().jobs.len(), 450);
    let begun = place.post("/ui/jobs/bulk", &[("do", "cancel"), ("kind", "drop"), ("sure", "yes")]).await;
    let page = begun.headers()[LOCATION].to_str().unwrap().to_owned();
    let ended = wait::until(
        "the end of the bulk action",
        async || place.text(&page).await,
        |text| text.contains("finished"),
    );
    assert!(ended.await.contains("300 done"));
    assert_eq!(place.database.job_list(&left, 1000, None).await.unwrap().jobs.len(), 150);
}

/// An event's page says who receives it and what routes decided; a route is switched from its page.
#[tokio::test]
async fn an_event_is_explained_and_a_route_is_switched() {
    let place = TestDashboard::open().await;
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
    assert!(
        place
            .text(&format!("/ui/events/{event}"))
            .await
            .contains(r#"by route <a href="/ui/routes/ship">ship</a>"#)
    );
}

/// A process shows its facts, what its supervisor does next, and can be cancelled.
#[tokio::test]
async fn a_process_shows_its_facts() {
    let place = TestDashboard::open().await;
    place.db.execute("select comms.send_email('{\"to\": \"ann@example.com\", \"subject\": \"Hello\", \"text\": \"Hi\"}')").await;
    let list = place.text("/ui/processes").await;
    let id = list.split("/ui/processes/").nth(1).expect("a process").split('"').next().unwrap();
    let page = place.text(&format!("/ui/processes/{id}")).await;
    assert!(page.contains("Next check by its supervisor"), "{page}");
    let path = format!("/ui/processes/{id}");
    assert_eq!(place.post(&path, &[("do", "cancel"), ("reason", "not needed")]).await.status(), 303);
    assert!(place.text(&path).await.contains("cancelled"));
}

/// An open page gets changes through our own stream.
#[tokio::test]
async fn an_open_page_gets_changes() {
    let place = TestDashboard::open().await;
    let mut live = place.get("/ui/live").send().await.unwrap();
    assert_eq!(live.status(), 200);
    let mut received = String::new();
    let read = async |live: &mut Response, received: &mut String, topic: &str| {
        while !received.contains(topic) {
            received.push_str(&String::from_utf8_lossy(&live.chunk().await.unwrap().expect("it goes on")));
        }
    };
    within("news of gates", read(&mut live, &mut received, "gates")).await;
    received.clear();
    place.enqueue("mail", json!({})).await;
    within("news of jobs", read(&mut live, &mut received, "jobs")).await;
    assert!(!received.contains("gates"), "{received}");
}
