//! F09: the registry of projects, and tokens made with its keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};
use towpath_model::token::{Claims, PrivateKey, Secret};

use crate::server::{ADMIN, Server};

/// What a project signs with.
pub(crate) struct Keys {
    project: String,
    kid: String,
    secret: Secret,
}

/// What a token is bound to.
#[derive(Default, Clone)]
pub(crate) struct Bound {
    pub(crate) session: Option<String>,
    pub(crate) stream: Option<String>,
    /// Seconds; an hour if it is left out.
    pub(crate) seconds: Option<u64>,
}

/// Registers a project with one key.
pub(crate) async fn register(server: &Server, project: &str) -> Keys {
    let keys = Keys::new(project, "k1");
    let (status, answer) = change(server, project, keys.change("add")).await;
    assert_eq!(status, 200, "{answer}");
    keys
}

/// One change of the registry.
pub(crate) async fn change(server: &Server, project: &str, change: Value) -> (u16, Value) {
    let request = server.request(Method::POST, &format!("/admin/v1/projects/{project}")).bearer_auth(ADMIN);
    let answer = request.json(&change).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

impl Keys {
    pub(crate) fn new(project: &str, kid: &str) -> Keys {
        let secret = Secret::new(uuid_bytes());
        Keys { project: project.into(), kid: kid.into(), secret }
    }

    pub(crate) fn change(&self, word: &str) -> Value {
        let key = json!({ "kid": self.kid, "alg": "HS256", "secret": self.secret.reveal() });
        json!({ "change": word, "key": key, "origins": [] })
    }

    pub(crate) fn token(&self, scope: &str, bound: &Bound) -> String {
        let mut claims =
            json!({ "sub": self.project, "scope": scope, "exp": now() + bound.seconds.unwrap_or(3600) });
        if let Some(session) = &bound.session {
            claims["session_id"] = json!(session);
        }
        if let Some(stream) = &bound.stream {
            claims["stream_id"] = json!(stream);
        }
        let claims: Claims = serde_json::from_value(claims).unwrap();
        PrivateKey::Hs256(&self.secret).sign(&self.kid, &claims).unwrap()
    }

    pub(crate) fn unbound(&self, scope: &str) -> String {
        self.token(scope, &Bound::default())
    }
}

pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

fn uuid_bytes() -> Vec<u8> {
    let two = [uuid::Uuid::now_v7().into_bytes(), uuid::Uuid::now_v7().into_bytes()];
    two.concat()
}

/// Only the token of the data directory opens the registry, and secrets do not come out.
#[tokio::test]
async fn the_registry_is_closed_to_others() {
    let server = Server::start().await;
    let keys = register(&server, "app").await;
    let list = |token: Option<String>| {
        let request = server.request(Method::GET, "/admin/v1/projects");
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    };
    for token in [None, Some(String::new()), Some("admi".into()), Some(keys.unbound("manage"))] {
        assert_eq!(list(token).send().await.unwrap().status(), 401);
    }
    let shown = list(Some(ADMIN.into())).send().await.unwrap().text().await.unwrap();
    assert!(shown.contains(r#""kid":"k1""#), "{shown}");
    assert!(!shown.contains(&keys.secret.reveal()) && !shown.contains("reader"), "{shown}");
    let request = server.get_with("/v1/app/streams", ADMIN).await;
    assert_eq!(request.status(), 401, "the registry's token gives no other access");
    server.stop().await;
}

/// Keys are rotated and revoked while the server runs, and stay so after a restart.
#[tokio::test]
async fn keys_change_without_a_restart() {
    let server = Server::start().await;
    let old = register(&server, "app").await;
    server.put_with("/v1/app/stream/room", &old.unbound("write")).await;
    let read = async |server: &Server, keys: &Keys| {
        server.get_with("/v1/app/stream/room", &keys.unbound("read")).await.status().as_u16()
    };
    let new = Keys::new("app", "k2");
    assert_eq!(read(&server, &new).await, 401);
    assert_eq!(change(&server, "app", new.change("add_key")).await.0, 200);
    assert_eq!(
        (read(&server, &old).await, read(&server, &new).await),
        (200, 200),
        "both, while one is rotated"
    );
    let (status, _) = change(&server, "app", json!({ "change": "revoke", "kid": "k1" })).await;
    assert_eq!((status, read(&server, &old).await, read(&server, &new).await), (200, 401, 200));
    let server = server.restart().await;
    assert_eq!((read(&server, &old).await, read(&server, &new).await), (401, 200));
    change(&server, "app", json!({ "change": "revoke", "kid": "k2" })).await;
    assert_eq!(read(&server, &new).await, 401);
    assert_eq!(server.get("/v1/app/stream/room").await.status(), 401, "without keys it is closed, not open");
    server.stop().await;
}

/// EdDSA: the server holds the public half, and the registry mints with secrets only.
#[tokio::test]
async fn a_pair_signs_with_its_private_half() {
    let server = Server::start().await;
    register(&server, "app").await;
    let (private, material) = towpath_server::project::new_pair();
    let public = serde_json::to_value(&material).unwrap()["public"].clone();
    let key = json!({ "kid": "e1", "alg": "EdDSA", "public": public });
    assert_eq!(change(&server, "app", json!({ "change": "add_key", "key": key })).await.0, 200);
    let claims: Claims =
        serde_json::from_value(json!({ "sub": "app", "scope": "read", "exp": now() + 60 })).unwrap();
    let token = PrivateKey::EdDsa(private.bytes()).sign("e1", &claims).unwrap();
    assert_eq!(server.get_with("/v1/app/streams", &token).await.status(), 200);
    // The same claims, signed with the public key as if it were a secret.
    let public = URL_SAFE_NO_PAD.decode(public.as_str().unwrap()).unwrap();
    let forged = PrivateKey::Hs256(&Secret::new(public)).sign("e1", &claims).unwrap();
    assert_eq!(server.get_with("/v1/app/streams", &forged).await.status(), 401);
    let mint = json!({ "scope": "read", "seconds": 60 });
    let minted = server.request(Method::POST, "/admin/v1/projects/app/token").bearer_auth(ADMIN);
    let minted: Value = minted.json(&mint).send().await.unwrap().json().await.unwrap();
    let token = minted["token"].as_str().unwrap();
    assert_eq!(server.get_with("/v1/app/streams", token).await.status(), 200);
    server.stop().await;
}
