//! Sessions: what they follow, how far behind, and what an administrator may do about it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::LOCATION;
use towpath_model::circuit::{Deliveries, Limits};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::Shape;
use towpath_streams::{Append, Beyond, Create, FanOut, Messages, Retention, Subscribe};

use crate::kit::TestDashboard;

const SESSION: &str = "0190f5a4-5c2e-7bb0-9f33-ba9876543210";

impl TestDashboard {
    pub(crate) async fn stream(&self, id: &str) -> StreamName {
        let name = StreamName::new("default", id).unwrap();
        let content_type = ContentType::parse("text/plain");
        let shape = Shape { content_type, expiry: None, closed: false, fork: None };
        let create = Create { shape, messages: Messages::default(), retention: Retention::default() };
        self.store.create(name.clone(), create).await.unwrap();
        name
    }

    async fn subscribe(&self, session: &str, source: &StreamName) -> StreamName {
        let session = StreamName::session("default", session).unwrap();
        let source = source.clone();
        let subscribe = Subscribe { session: session.clone(), source, ttl_seconds: 600, envelope: false };
        self.store.subscribe(subscribe).await.unwrap();
        session
    }

    async fn publish(&self, source: &StreamName, text: &str, inline_max: usize) {
        let append = Append { messages: Messages::one(text.to_owned()), ..Append::default() };
        let fan_out = FanOut { inline_max, beyond: Beyond::Queue };
        self.store.publish(source.clone(), append, fan_out).await.unwrap();
    }
}

/// O03: the list says what each session follows and when it ends, and how far sources are behind.
#[tokio::test]
async fn sessions_and_their_sources_are_listed() {
    let place = TestDashboard::open().await;
    assert!(place.text("/ui/sessions").await.contains("towpath subscribe"));
    let source = place.stream("orders").await;
    place.subscribe(SESSION, &source).await;
    place.publish(&source, "late", 0).await;
    let limits = Limits { failures_max: 1, recovery: Duration::from_secs(60) };
    place.circuits.record(&source, Deliveries { successes: 0, failures: 1 }, limits);
    let page = place.text("/ui/sessions").await;
    assert!(page.contains(SESSION) && page.contains("orders"), "{page}");
    assert!(page.contains(r#"<b class="warn">4</b>"#), "the four bytes that wait are shown: {page}");
    assert!(page.contains(r#"<span class="state stale">open</span>"#), "{page}");
    assert!(place.text("/ui/sessions?session=0190").await.contains(SESSION));
    assert!(!place.text("/ui/sessions?session=ffff").await.contains(SESSION));
    assert!(!place.text("/ui/sessions?project=other").await.contains(SESSION));
    assert_eq!(place.get("/ui/sessions?project=no%2Fname").send().await.unwrap().status(), 400);
}

/// O03: a session's page shows its stream to who asks, and an administrator touches and deletes it.
#[tokio::test]
async fn a_session_is_shown_touched_and_deleted() {
    let place = TestDashboard::open().await;
    let source = place.stream("orders").await;
    let session = place.subscribe(SESSION, &source).await;
    place.publish(&source, "hello there", 10).await;
    let path = format!("/ui/sessions/{SESSION}");
    let before = place.store.head(&session).unwrap().ends_at;
    let page = place.text(&path).await;
    assert!(page.contains("orders") && page.contains("towpath sessions delete"), "{page}");
    assert!(!page.contains("hello there"), "looking is not reading");
    assert_eq!(place.store.head(&session).unwrap().ends_at, before, "and renews nothing");
    assert!(place.text(&format!("{path}?tail=1")).await.contains("hello there"));
    assert_eq!(place.post(&path, &[("do", "touch")]).await.status(), 303);
    let gone = place.post(&path, &[("do", "delete"), ("reason", "left")]).await;
    assert_eq!(gone.headers()[LOCATION], "/ui/sessions?project=default");
    assert!(place.store.session(&session).is_err());
    assert_eq!(place.get(&path).send().await.unwrap().status(), 404);
    assert_eq!(place.post(&path, &[("do", "delete")]).await.status(), 303);
    let audit = place.database.audit_list(10, None).await.unwrap();
    let told: Vec<_> = audit.iter().map(|row| (row.action.as_str(), row.outcome == "ok")).collect();
    assert_eq!(told, [("sessions delete", false), ("sessions delete", true), ("sessions touch", true)]);
    assert!(place.text("/ui/sessions").await.contains("<dt>deleted</dt><dd>1</dd>"));
}

/// O03: a stream's page names its producers, with epoch and number.
#[tokio::test]
async fn a_stream_names_its_producers() {
    let place = TestDashboard::open().await;
    let name = place.stream("orders").await;
    for seq in 0..3 {
        let producer = Some(Producer { id: Arc::from("till-7"), epoch: 4, seq });
        let append = Append { messages: Messages::one("x"), producer, ..Append::default() };
        place.store.append(name.clone(), append).await.unwrap();
    }
    place.stream("shop/1/cart").await;
    place.stream("shop/2/cart").await;
    let list = place.text("/ui/streams").await;
    assert!(list.contains("prefix=shop%2F\"") && !list.contains("prefix=shop%2F1"), "{list}");
    assert!(place.text("/ui/streams?prefix=shop%2F").await.contains("prefix=shop%2F2%2F"));
    let page = place.text("/ui/stream?id=orders").await;
    assert!(page.contains(r#"<td>till-7</td><td class="n">4</td><td class="n">2</td>"#), "{page}");
}
