//! Routes and the overview: what a receiver answered, whose circuit is open, what needs a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::json;
use towpath_db::event::NewEvent;
use towpath_testkit::wait::until_true;

use crate::kit::TestDashboard;

/// A receiver that refuses its first webhook and takes all others.
async fn receiver() -> (String, Arc<AtomicUsize>) {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = received.clone();
    let take = async move |headers: HeaderMap| {
        assert!(headers.contains_key("webhook-signature"), "it is signed as a real one");
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::SERVICE_UNAVAILABLE, "not yet"),
            _ => (StatusCode::OK, "thanks"),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(take))).await });
    (url, received)
}

impl TestDashboard {
    async fn webhook(&self, name: &str, url: &str) {
        let put = format!(
            "select towpath.fn_route_put('{name}', 'webhook', '{{\"url\": \"{url}\"}}', 'sales', p_actor => 'test')"
        );
        self.db.execute(&put).await;
        self.db.execute(&format!("select towpath.fn_route_secret_rotate('{name}', p_actor => 'test')")).await;
    }

    /// What the page says after an action, which the next page shows once.
    async fn notice_after(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let response = self.post(path, fields).await;
        assert_eq!(response.status(), 303);
        let cookie = response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let page =
            self.get("/ui/routes").header("cookie", cookie).send().await.unwrap().text().await.unwrap();
        let notice = page.split(r#"role="status">"#).nth(1).expect("a notice").split("</p>").next().unwrap();
        notice.to_owned()
    }
}

/// O03, E08: a test delivery is signed and sent as a real one, and its answer shown; an open circuit
/// is closed by hand; all of it is written down.
#[tokio::test]
async fn a_route_is_tested_and_its_circuit_closed() {
    let place = TestDashboard::open().await;
    let (url, received) = receiver().await;
    place.webhook("partner", &url).await;
    let test = [("do", "test"), ("target", "partner"), ("reason", "try it")];
    let notice = place.notice_after("/ui/routes", &test).await;
    assert!(notice.contains("did not accept it") && notice.contains("503"), "{notice}");
    let notice = place.notice_after("/ui/routes", &test).await;
    assert!(notice.contains("accepted it with 200") && notice.contains("thanks"), "{notice}");
    assert_eq!(received.load(Ordering::SeqCst), 2);

    place.db.execute("update towpath.delivery_target set circuit = 'open', failures = 7, blocked_until = now() + interval '1 hour'").await;
    let page = place.text("/ui/routes/partner").await;
    assert!(
        page.contains("Close circuit") && page.contains("towpath routes close-circuit partner"),
        "{page}"
    );
    // Counts may be a little old on a busy machine.
    let shown = async || place.text("/ui").await.contains("1 webhook target keeps failing");
    until_true("the overview names the target", shown).await;
    let close = [("do", "close-circuit"), ("target", "partner"), ("reason", "they fixed it")];
    let notice = place.notice_after("/ui/routes", &close).await;
    assert!(notice.contains("closed the circuit"), "{notice}");
    assert!(!place.text("/ui/routes/partner").await.contains("Close circuit"));
    let audit = place.database.audit_list(10, None).await.unwrap();
    let told: Vec<_> = audit.iter().map(|row| (row.action.as_str(), row.outcome == "ok")).collect();
    assert_eq!(told, [("routes close-circuit", true), ("routes test", true), ("routes test", false)]);
}

/// O03: a route's page shows what it decided; an event's page shows each step of the resolution.
#[tokio::test]
async fn decisions_and_steps_are_shown() {
    let place = TestDashboard::open().await;
    for sql in [
        "select towpath.fn_route_put('ship', 'job', '{\"job_kind\": \"order.ship\"}', 'sales', p_actor => 'test')",
        "select towpath.fn_route_mode_set('ship', 'dry_run', 'test', 'try')",
        "select towpath.fn_event_subscription_put('user:ann', 'sales', p_actor => 'test')",
        "select towpath.fn_event_subscription_put('user:bob', 'sales', 'order.placed', p_mute => true, p_actor => 'test')",
    ] {
        place.db.execute(sql).await;
    }
    let event = NewEvent::new("sales", "order.placed").payload(&json!({ "order": 7 })).unwrap();
    let event = place.database.event_emit(&event).await.unwrap().event_id;
    place.database.event_sequence(100).await.unwrap();
    place.database.route_send("ship", event, "test").await.unwrap();
    let page = place.text(&format!("/ui/events/{event}")).await;
    assert!(page.contains("domain only") && page.contains("user:ann"), "{page}");
    assert!(page.contains("user:bob") && page.contains("muted"), "{page}");
    assert!(page.contains("What routes would do now"), "{page}");
    let route = place.text("/ui/routes/ship").await;
    assert!(route.contains(&format!("/ui/events/{event}")), "{route}");
    assert_eq!(place.get("/ui/routes/nothing").send().await.unwrap().status(), 404);
}
