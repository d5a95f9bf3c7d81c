//! Emitting events over HTTP: within what the token was given, and nothing else.

use serde_json::{Value, json};

use super::{Api, Said};

impl Api {
    pub(crate) async fn emit_by(&self, token: &str, body: Value) -> Said {
        self.post_to("/api/v1/events", Some(format!("Bearer {token}")), body.to_string()).await
    }
}

/// E01: one event, or many of which all are stored or none; an event_id emits once.
#[tokio::test]
async fn events_are_emitted_once() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.database.event_grant_put("executor:py", Some("shop"), None, "tester").await.unwrap();
    let event_id = uuid::Uuid::now_v7().to_string();
    let event = json!({"domain": "shop", "type": "order.paid", "payload": {"order": 7}, "subject_table": "order",
                       "subject_ref": "7", "ordering_key": "order:7", "stream": "audit", "event_id": event_id});
    let said = api.emit_by(&token, event.clone()).await;
    assert_eq!((said.status, &said.body["event_id"]), (201, &json!(event_id)), "{said:?}");
    assert_eq!(said.body["duplicate"], json!(false));
    let again = api.emit_by(&token, event).await;
    assert_eq!((again.status, &again.body["duplicate"]), (200, &json!(true)));
    let many = json!({"events": [{"domain": "shop", "type": "a"}, {"domain": "bank", "type": "b"},
                                 {"domain": "shop", "type": ""}, {"domain": "shop", "type": "c"}]});
    let said = api.emit_by(&token, many).await;
    assert_eq!(said.word(), (403, "not_authorised"), "{said:?}");
    let named: Vec<_> =
        said.body["refused"].as_array().unwrap().iter().map(|row| (&row["index"], &row["error"])).collect();
    assert_eq!(named, [(&json!(1), &json!("not_authorised")), (&json!(2), &json!("invalid"))], "{said:?}");
    let stored =
        "select string_agg(event_type || ' ' || actor, ', ' order by event_id) from towpath.event_outbox";
    assert_eq!(api.db.text(stored).await, "order.paid executor:py", "nothing of it is stored");
    let many = json!({"events": [{"domain": "shop", "type": "a"}, {"domain": "shop", "type": "c"}]});
    let said = api.emit_by(&token, many).await;
    assert!(said.status == 200 && said.body["events"][1]["event_id"].is_string(), "{said:?}");
    assert_eq!(api.db.text(stored).await, "order.paid executor:py, a executor:py, c executor:py");
}

/// R09: without a grant a token emits nothing, and Towpath's own domain belongs to nobody.
#[tokio::test]
async fn a_token_emits_only_where_it_may() {
    let api = Api::start().await;
    let (py, ts) = (api.token("py", &[]).await, api.token("ts", &[]).await);
    api.database.event_grant_put("executor:py", None, None, "tester").await.unwrap();
    let event = json!({"domain": "shop", "type": "a"});
    assert_eq!(api.emit_by(&ts, event.clone()).await.word(), (403, "not_authorised"));
    let own = json!({"domain": "towpath", "type": "route.disabled"});
    assert_eq!(api.emit_by(&py, own).await.word(), (403, "not_authorised"));
    assert_eq!(api.emit_by("tpx_guess", event.clone()).await.word(), (401, "unauthenticated"));
    for (body, status) in [
        (json!({"domain": "shop"}), 400),
        (json!({"domain": "shop", "type": "a", "actor": "root"}), 400),
        (json!({"events": []}), 422),
        (json!({"events": vec![event; 1001]}), 422),
        (json!({"domain": "shop", "type": "a", "payload": {"password": "x"}}), 422),
    ] {
        assert_eq!(api.emit_by(&py, body.clone()).await.status, status, "{body}");
    }
    assert_eq!(api.db.text("select count(*) from towpath.event_outbox").await, "0");
}
