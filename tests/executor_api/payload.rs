//! Stored payloads over HTTP: stored by an executor that may enqueue, read by the one that holds the job (Q25).

use serde_json::{Value, json};
use towpath_db::executor_token::TokenSpec;

use super::Api;

/// A response: status, headers, bytes.
type Answered = (u16, reqwest::header::HeaderMap, Vec<u8>);

impl Api {
    async fn store(&self, token: &str, query: &str, data: Vec<u8>) -> Answered {
        let url = self.server.url(&format!("/api/v1/payloads{query}"));
        let request = self.http.post(url).bearer_auth(token).header("content-type", "text/html").body(data);
        answered(request).await
    }

    async fn fetch(&self, token: &str, payload_ref: &str, held: &Value) -> Answered {
        let (job_id, attempt) = (held["job_id"].as_str().unwrap(), &held["attempt"]);
        let url = format!("/api/v1/payloads/{payload_ref}?job_id={job_id}&attempt={attempt}");
        answered(self.http.get(self.server.url(&url)).bearer_auth(token)).await
    }
}

async fn answered(request: reqwest::RequestBuilder) -> Answered {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap().to_vec())
}

fn field(answered: &Answered, name: &str) -> String {
    let body: Value = serde_json::from_slice(&answered.2).unwrap();
    body[name].as_str().unwrap_or_default().to_owned()
}

/// Q25: a job carries a reference, its holder gets the bytes as they were stored, and nobody else does.
#[tokio::test]
async fn the_holder_of_a_job_gets_what_it_names() {
    let api = Api::start().await;
    let (token, other) = (api.token("py", &[]).await, api.token("ts", &[]).await);
    let stored = api.store(&token, "", b"<script>hello</script>".to_vec()).await;
    assert_eq!(stored.0, 201, "{stored:?}");
    let payload_ref = field(&stored, "payload_ref");
    let foreign = field(&api.store(&other, "", b"foreign".to_vec()).await, "payload_ref");
    let job = json!({"job_kind": "resize", "payload_ref": payload_ref});
    assert_eq!(api.post(&token, "enqueue", job).await.status, 201);
    let held = api.claim(&token).await;

    let (status, headers, data) = api.fetch(&token, &payload_ref, &held).await;
    assert_eq!((status, data.as_slice()), (200, b"<script>hello</script>".as_slice()));
    let header = |name: &str| headers[name].to_str().unwrap();
    assert_eq!(header("content-type"), "text/html");
    assert_eq!((header("x-content-type-options"), header("content-security-policy")), ("nosniff", "sandbox"));
    assert_eq!(header("cache-control"), "no-store");

    assert_eq!(api.fetch(&other, &payload_ref, &held).await.0, 409, "another token does not hold it");
    assert_eq!(api.fetch(&token, &foreign, &held).await.0, 403, "the job names another payload");
    assert_eq!(api.fetch(&token, "payload:no", &held).await.0, 422);
    let unnamed =
        api.http.get(api.server.url(&format!("/api/v1/payloads/{payload_ref}"))).bearer_auth(&token);
    assert_eq!(answered(unnamed).await.0, 422, "a reference alone gives no access");
    assert_eq!(api.post(&token, "ack", held.clone()).await.status, 200);
    assert_eq!(api.fetch(&token, &payload_ref, &held).await.0, 409, "and nothing after the end");
}

/// Q25: who may not enqueue may not store; what is too large, and for a project that cannot be, is refused in words.
#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let spec = TokenSpec { executor_id: "py", may_enqueue: false, actor: "tester", ..Default::default() };
    let reader = api.database.executor_token_create(&spec).await.unwrap().token;
    let refused = api.store(&reader, "", b"x".to_vec()).await;
    assert_eq!((refused.0, field(&refused, "error").as_str()), (403, "not_authorised"));
    assert_eq!(api.store("tpx_nobody", "", b"x".to_vec()).await.0, 401);
    assert_eq!(api.store(&token, "", vec![0; (16 << 20) + 1]).await.0, 413);
    let refused = api.store(&token, "?project=a%20b", b"x".to_vec()).await;
    assert!(refused.0 == 422 && field(&refused, "detail").contains("must be 1 to 64 letters"), "{refused:?}");
    assert_eq!(api.store(&token, "?prject=a", b"x".to_vec()).await.0, 422);
    assert_eq!(api.db.text("select count(*) from towpath.payload").await, "0");
}
