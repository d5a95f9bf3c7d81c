//! Reading events over HTTP: what the token's consumer subscribed, and nothing else (R05).

use serde_json::{Value, json};
use towpath_db::event::{EventActorSpec, NewEvent};
use towpath_db::{Attribution, GateMove};
use towpath_model::id::SubscriptionId;
use towpath_testkit::event::subscription;

use super::{Api, Said};

impl Api {
    /// A read of events with a query.
    async fn events(&self, token: &str, query: &str) -> Said {
        self.get(token, &format!("/api/v1/events?{query}")).await
    }

    /// Lets the tokens of an executor read as a recipient that is subscribed to a domain.
    async fn reader(&self, executor: &str, recipient_ref: &str, event_domain: &str) -> SubscriptionId {
        let spec = EventActorSpec {
            recipient_ref,
            executor_id: Some(executor),
            actor: "tester",
            ..Default::default()
        };
        self.database.event_actor_put(&spec).await.unwrap();
        self.database
            .event_subscription_put(&subscription(recipient_ref, event_domain))
            .await
            .unwrap()
            .subscription_id
    }

    async fn emit(&self, domain: &str) {
        self.database.event_emit(&NewEvent::new(domain, "created")).await.unwrap();
        self.database.event_sequence(1000).await.unwrap();
    }
}

fn domains(said: &Said) -> Vec<&str> {
    assert_eq!(said.status, 200, "{said:?}");
    said.body["events"].as_array().unwrap().iter().map(|e| e["event_domain"].as_str().unwrap()).collect()
}

/// R05: page by page, a recipient reads all of its own events and no others, whatever is broadcast.
#[tokio::test]
async fn a_token_reads_its_own_events_only() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.reader("py", "agent:py", "mine").await;
    api.reader("ts", "agent:ts", "theirs").await;
    for domain in ["mine", "theirs", "nobodys", "mine", "mine"] {
        api.emit(domain).await;
    }
    let by = Attribution { actor: "tester", reason: "a test" };
    for resolution in [GateMove::Open, GateMove::Close] {
        api.database.gate_set("queue.subscription_resolution.enabled", resolution, by).await.unwrap();
        let first = api.events(&token, "after=0&limit=2").await;
        assert_eq!((domains(&first), &first.body["position"]), (vec!["mine", "mine"], &json!(4)));
        assert_eq!((&first.body["consumer"], &first.body["more"]), (&json!("agent:py"), &json!(true)));
        let rest = api.events(&token, "after=4").await;
        assert_eq!((domains(&rest), &rest.body["more"]), (vec!["mine"], &json!(false)));
    }
    let end = api.events(&token, "").await;
    assert_eq!((domains(&end).len(), &end.body["position"]), (0, &json!(5)), "no position is the end");
}

/// R05: whose token, as whom: everything else is refused, and a read that waits is checked again.
#[tokio::test]
async fn a_token_reads_as_its_own_consumers_only() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    assert_eq!(api.events(&token, "after=0").await.word(), (403, "not_authorised"), "not registered");
    api.reader("ts", "agent:ts", "theirs").await;
    api.emit("theirs").await;
    assert_eq!(api.events(&token, "after=0&as=agent:ts").await.word(), (403, "not_authorised"));
    let own = api.reader("py", "agent:py", "mine").await;
    api.reader("py", "role:images", "images").await;
    assert_eq!(api.events(&token, "after=0").await.word(), (422, "invalid"), "which of the two");
    assert!(domains(&api.events(&token, "after=0&as=agent:py").await).is_empty());
    api.database.event_subscription_mute(own, "tester").await.unwrap();
    assert_eq!(api.events(&token, "after=0&as=agent:py").await.word(), (404, "not_found"), "muted");
    api.database.event_actor_delete("role:images").await.unwrap();
    assert_eq!(api.events(&token, "as=role:images").await.word(), (403, "not_authorised"));
    assert_eq!(api.events("twx_nonsense", "after=0").await.word(), (401, "unauthenticated"));
    api.database.consumer_delete("py").await.unwrap();
    assert_eq!(api.events(&token, "after=0&as=agent:py").await.word(), (401, "unauthenticated"));
}

/// A read that waits answers when an event comes, skips foreign ones, and ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_events() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.reader("py", "agent:py", "mine").await;
    api.emit("mine").await;
    let waiting = api.events(&token, "wait=30");
    let emitting = async {
        // Until the server listens; the answer must not come before the event does.
        let listens = "select count(*) from pg_stat_activity
                        where datname = current_database() and query like 'listen towpath_event%'";
        api.db.until(listens, "1").await;
        api.emit("theirs").await;
        api.emit("mine").await;
    };
    let (said, ()) = tokio::join!(waiting, emitting);
    assert_eq!((domains(&said), &said.body["events"][0]["position"]), (vec!["mine"], &json!(3)));
    let nothing = api.events(&token, "after=3&wait=1").await;
    assert_eq!((domains(&nothing).len(), &nothing.body["position"]), (0, &json!(3)));
}

/// One token's reads do not take every place: the 33rd that waits is refused, the others get theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_so_many_places() {
    let api = std::sync::Arc::new(Api::start().await);
    let token = api.token("py", &[]).await;
    api.reader("py", "agent:py", "mine").await;
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (api, token) = (api.clone(), token.clone());
        reads.spawn(async move { api.events(&token, "after=0&wait=30").await });
    }
    for _ in 0..8 {
        let said = reads.join_next().await.unwrap().unwrap();
        assert_eq!((said.word(), said.retry_after.as_deref()), ((503, "busy"), Some("1")));
    }
    api.emit("mine").await;
    while let Some(said) = reads.join_next().await {
        assert_eq!(domains(&said.unwrap()), ["mine"]);
    }
}

/// R05: a token that is revoked while it waits sees nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_stops_seeing() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.reader("py", "agent:py", "mine").await;
    let waiting = api.events(&token, "wait=30");
    let revoking = async {
        let token_id = api.database.executor_token_list(Some("py")).await.unwrap()[0].token_id;
        api.database.executor_token_revoke(token_id, "tester").await.unwrap();
        api.emit("mine").await;
    };
    let (said, ()) = tokio::join!(waiting, revoking);
    assert!(matches!(said.status, 401 | 403), "{said:?}");
    assert!(said.body.get("events").is_none());
}

/// Bad questions are refused with the reason.
#[tokio::test]
async fn bad_reads_are_refused() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.reader("py", "agent:py", "mine").await;
    for query in ["after=x", "after=-1", "limit=0", "limit=1001", "wait=31", "position=3", "as=nobody"] {
        let said = api.events(&token, query).await;
        let expected = if query == "as=nobody" { 403 } else { 422 };
        assert_eq!(said.status, expected, "{query}: {said:?}");
        assert!(said.body["detail"].is_string());
    }
    let url = api.server.url("/api/v1/events");
    let said = api.http.put(url).send().await.unwrap();
    assert_eq!((said.status().as_u16(), said.headers()["allow"].to_str().unwrap()), (405, "GET,HEAD,POST"));
    let body: Value = said.json().await.unwrap();
    assert_eq!(body["error"], "method_not_allowed");
    api.db.execute("update towpath.event_retention set kept_from = 7").await;
    let gone = api.events(&token, "after=2").await;
    assert_eq!(gone.word(), (404, "not_found"));
    assert!(gone.body["detail"].as_str().unwrap().contains("continue after 6"), "{gone:?}");
}
