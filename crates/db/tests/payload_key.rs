//! Which keys a payload may have: references and figures, no data, no credentials.

use serde_json::{Value, json};
use towpath_testkit::TestDb;

/// Keys that name data or a credential, in the spellings that programs use.
const REFUSED: &str = "\
    body, content, raw, vector, embedding, secret, token, password, ssn, personal_data, Body, CONTENT, \
    Token, PASSWORD, Personal_Data, personalData, personal-data, personal data, \
    access_token, accessToken, access-token, ACCESS_TOKEN, AccessToken, access.token, access token, \
    refresh_token, refreshToken, id_token, idToken, session_token, auth_token, authtoken, x-auth-token, \
    csrf_token, github_token, bearer_token, access_tokens, refreshTokens, jwt, user_jwt, token2, _token, \
    api_key, apiKey, apikey, API_KEY, api-key, X-API-Key, stripe_api_key, api_keys, api key, api.key, \
    private_key, privateKey, private-key, ssh_key, secret_key, aws_secret_access_key, accessKey, \
    signing_key, encryption_key, \
    client_secret, clientSecret, webhook_secret, secrets, passwd, pwd, db_pwd, userPassword, user.password, \
    new_password, passwords, password_hash, passwordConfirmation, password1, passphrase, db_pass, smtpPass, \
    credential, credentials, aws-credentials, user_ssn, \
    authorization, Authorization, proxy-authorization, http_authorization, bearer, cookie, Set-Cookie, \
    session_cookie, cookies";

/// Keys that only look like them.
const ALLOWED: &str = "\
    token_count, tokens_used, max_tokens, tokens, input_tokens, prompt_tokens, token_type, token_id, \
    tokenizer, next_page_token, pageToken, NextToken, continuation_token, sync_token, cost_per_token, \
    secretary, secret_id, secret_name, secret_ref, has_secret, isSecret, has_password, requires_token, \
    password_changed_at, password_reset_id, passport, passenger, compass, bypass, pass, boarding_pass, \
    embedding_model, embeddings_ref, vector_id, content_type, content_length, contents_ref, body_id, \
    body_ref, somebody, raw_ref, draw, payload_ref, key, keys, idempotency_key, primary_key, public_key, \
    cache_key, routing_key, object_key, monkey, keyboard, api_key_id, access_key_id, authorization_id, \
    prior_authorization, author, authorized_at, cookie_consent, cookie_id, bearer_id, credential_id, data, \
    metadata, session, session_id, country_code, status_code, description, string, word, record, class, \
    address, hash, content_hash, region, action";

/// Q03, Q25: every spelling of a credential is refused at any depth, by name, with the place where the data belongs.
#[tokio::test]
async fn keys_that_name_data_or_credentials_are_refused() {
    let shapes: [fn(&str) -> Value; 3] = [
        |key| json!({key: 1}),
        |key| json!({"a": {"b": [1, {key: null}]}}),
        |key| json!({"x": "y", "l": [[{"m": 1, key: "x"}]]}),
    ];
    let tried: Vec<(&str, Value)> =
        REFUSED.split(", ").flat_map(|key| shapes.iter().map(move |shape| (key, shape(key)))).collect();
    assert!(tried.len() >= 3 * 60, "{}", tried.len());
    for ((key, payload), answer) in tried.iter().zip(answers(tried.iter().map(|(_, payload)| payload)).await)
    {
        assert_eq!(answer["error"], "invalid", "{payload} was taken");
        let detail = answer["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!("\"{key}\"")) && detail.contains("towpath.payload_put"),
            "{payload}: {detail}"
        );
    }
}

/// Q03: harmless keys pass, and so does a denied word in a value or in a string that looks like a key.
#[tokio::test]
async fn keys_that_only_look_like_credentials_pass() {
    let mut payloads: Vec<Value> = ALLOWED.split(", ").map(|key| json!({"a": [{key: "x"}]})).collect();
    assert!(payloads.len() >= 40, "{}", payloads.len());
    payloads.extend([
        json!({"n": "token"}),
        json!({"n": ["password", "api_key"]}),
        json!({"n": "{\"password\": 1}", "m": "\"token\": "}),
        json!({"n": ": token", "m": "x\\"}),
    ]);
    for (payload, answer) in payloads.iter().zip(answers(payloads.iter()).await) {
        assert_eq!(answer["ok"], true, "{payload}: {answer}");
    }
}

/// What one call of the batch door answers for each payload.
async fn answers<'a>(payloads: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let db = TestDb::open().await;
    let jobs: Vec<Value> =
        payloads.map(|payload| json!({"job_kind": "mail", "payload_json": payload})).collect();
    let jobs = Value::from(jobs).to_string().replace('\'', "''");
    let answer = db.json(&format!("towpath.fn_job_enqueue_many('{jobs}')")).await;
    serde_json::from_value(answer["jobs"].clone()).unwrap()
}
