//! Signatures, verified by a library that is not ours.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use standardwebhooks::Webhook;
use towpath_testkit::TestDb;
use towpath_testkit::receiver::Receiver;

use crate::routing::{emit, hook, start_role};

/// E08: the independent library accepts what the role sends, with the current key, during a
/// rotation with both, and after the overlap no longer with the old one.
#[tokio::test(flavor = "multi_thread")]
async fn the_independent_library_verifies_through_a_rotation() {
    let db = TestDb::open().await;
    let receiver = Receiver::content().await;
    let old = hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    let first = receiver.until_arrived(1).await.remove(0);
    Webhook::new(&old).unwrap().verify(&first.body, &first.headers).unwrap();

    let answer = db.call("fn_route_secret_rotate('hook', p_overlap_seconds => 3600)").await;
    let new = answer["signing_key"].as_str().unwrap().to_owned();
    emit(&db, 1).await;
    let second = receiver.until_arrived(2).await.remove(1);
    assert_eq!(second.header("webhook-signature").split(' ').count(), 2, "both keys sign");
    for key in [&old, &new] {
        Webhook::new(key).unwrap().verify(&second.body, &second.headers).unwrap();
    }

    db.advance(std::time::Duration::from_secs(3_601)).await;
    emit(&db, 1).await;
    let third = receiver.until_arrived(3).await.remove(2);
    Webhook::new(&new).unwrap().verify(&third.body, &third.headers).unwrap();
    assert!(Webhook::new(&old).unwrap().verify(&third.body, &third.headers).is_err(), "the overlap is over");
    role.stop().await;
}

/// E08: every attempt carries the same id and the same bytes, and a new signature.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_webhook_is_the_same_webhook() {
    let db = TestDb::open().await;
    let answer = |number: usize, _: &_| match number {
        0 | 1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        _ => StatusCode::OK.into_response(),
    };
    let receiver = Receiver::new(answer).await;
    let key = hook(&db, &receiver.url(), ", p_retry_seconds => '{0,0,0}'").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    let arrived = receiver.until_arrived(3).await;
    for one in &arrived {
        assert_eq!(one.header("webhook-id"), arrived[0].header("webhook-id"));
        assert_eq!(one.body, arrived[0].body);
        Webhook::new(&key).unwrap().verify(&one.body, &one.headers).unwrap();
    }
    assert!(arrived[0].header("webhook-id").starts_with("wh_"));
    assert_eq!(arrived[0].header("content-type"), "application/json");
    role.stop().await;
}
