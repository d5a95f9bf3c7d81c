//! Stored payloads over HTTP: stored by an executor that may enqueue, read by the one that holds the job; and
//! large results, read by who may read the job (Q25).

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

    async fn result(&self, token: &str, job_id: &str) -> Answered {
        answered(self.http.get(self.server.url(&format!("/api/v1/jobs/{job_id}/result"))).bearer_auth(token))
            .await
    }
}

async fn answered(request: reqwest::RequestBuilder) -> Answered {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap().to_vec())
}

fn field(answered: &Answered, name: &str) -> String {
    field_of(&serde_json::from_slice(&answered.2).unwrap(), name)
}

fn field_of(body: &Value, name: &str) -> String {
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

/// Q24, Q25: who may read a job reads its result, however large it is: its producer, its executor, and a page with the token of
/// the job. Nobody else does, and a reference that is no result of the job gives no access.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_a_job_reads_its_large_result() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let (token, stranger) = (api.token("py", &[]).await, api.token("ts", &[]).await);
    let web = api.producer(&["resize"], &[]).await;
    let other = api.producer(&["crop"], &["images"]).await;
    let ended = async |result: Value| {
        let job_id = field_of(&api.post(&web, "enqueue", json!({"job_kind": "resize"})).await.body, "job_id");
        let held = api.claim(&token).await;
        assert_eq!(api.post(&token, "ack", super::with(&held, &json!({"result": result}))).await.status, 200);
        job_id
    };
    let large = json!({"text": "é".repeat(200_000)});
    let job_id = ended(large.clone()).await;
    let told = api.job(&web, &job_id, "").await.body["result"].clone();
    let payload_ref = field_of(&told, "payload_ref");
    assert!(payload_ref.starts_with("payload:"), "{told}");
    let page = api.job_token(&web, &job_id).await;
    for reader in [&web, &token, &page] {
        let (status, headers, data) = api.result(reader, &job_id).await;
        assert_eq!((status, serde_json::from_slice::<Value>(&data).unwrap()), (200, large.clone()));
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["cache-control"], "no-store");
    }
    let small = ended(json!([1, 2])).await;
    assert_eq!(api.result(&web, &small).await.2, b"[1,2]");
    for (reader, status) in [(&stranger, 403), (&other, 403), (&"tpp_nobody".to_owned(), 401)] {
        assert_eq!(api.result(reader, &job_id).await.0, status);
        assert_eq!(api.result(reader, &small).await.0, status);
    }
    assert_eq!(api.result(&page, &small).await.0, 403, "the token is for another job");
    // The reference alone gives no access, and neither does a job that returns the reference of another one.
    let lease = json!({"job_id": job_id, "attempt": 1});
    assert_eq!(api.fetch(&web, &payload_ref, &lease).await.0, 403, "a producer holds no lease");
    let thief = ended(json!({"payload_ref": payload_ref})).await;
    assert_eq!(api.result(&web, &thief).await.0, 403);
    let waiting = api.enqueue("resize").await;
    let none = api.result(&web, &waiting).await;
    assert!(none.0 == 404 && field(&none, "detail").contains("has no result"), "{none:?}");
}
