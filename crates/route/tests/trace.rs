//! The trace of an event that is delivered (O05).

use axum::http::StatusCode;
use axum::response::IntoResponse;
use towpath_testkit::TestDb;
use towpath_testkit::receiver::{Arrived, Receiver};

use crate::routing::{hook, start_role};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// O05: a webhook carries the parent that the transaction of its event named, at every try, and none
/// where that named none.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_belongs_to_the_trace_of_its_event() {
    let db = TestDb::open().await;
    let answer = |number: usize, _: &Arrived| match number {
        0 => StatusCode::BAD_GATEWAY.into_response(),
        _ => StatusCode::OK.into_response(),
    };
    let receiver = Receiver::new(answer).await;
    hook(&db, &receiver.url(), ", p_retry_seconds => '{0,0}'").await;
    let role = start_role(&db).await;
    let emit = async |setting: &str, subject: &str| {
        db.execute(&format!(
            "begin; {setting}; select towpath.fn_event_emit('d', 't', p_subject_ref => '{subject}'); commit"
        ))
        .await;
    };
    emit(&format!("set local towpath.traceparent = '{PARENT}'"), "traced").await;
    receiver.until_arrived(2).await;
    emit("select 1", "untraced").await;
    emit("set local towpath.traceparent = 'nonsense'", "malformed").await;
    let arrived = receiver.until_arrived(4).await;
    role.stop().await;

    let of = |subject: &str| -> Vec<_> {
        let about = |one: &&Arrived| String::from_utf8_lossy(&one.body).contains(&format!(r#""{subject}""#));
        arrived.iter().filter(about).collect()
    };
    let traced = of("traced");
    assert_eq!(traced.len(), 2, "it was tried twice");
    for one in traced {
        assert_eq!(one.header("traceparent"), PARENT);
        let body: serde_json::Value = serde_json::from_slice(&one.body).unwrap();
        assert_eq!(body["data"]["traceparent"].as_str().unwrap().split('-').nth(1), Some(TRACE));
    }
    for subject in ["untraced", "malformed"] {
        let sent = of(subject);
        assert_eq!(sent.len(), 1, "{subject}");
        assert!(!sent[0].headers.contains_key("traceparent"), "{subject}: {:?}", sent[0].headers);
    }
}
