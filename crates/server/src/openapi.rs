//! `GET /api/openapi.json`: the OpenAPI 3.1 document of this server.
//!
//! The document is `openapi.json`, written by hand, because it says more than types do. Tests compare
//! it with the routes, and `tests/openapi` sends the requests it allows to a running server.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

const DOCUMENT: &str = include_str!("openapi.json");

/// The document.
pub(crate) async fn answer() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use reqwest::Method;
    use serde_json::Value;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use towpath_model::session::Route;
    use towpath_model::stream::name::Resource;
    use towpath_streams::embedded::{self, Embedded};
    use towpath_testkit::TestDb;

    use super::DOCUMENT;
    use crate::project::Projects;
    use crate::stream::woken_route;
    use crate::{Config, router, run, stream};

    const ADMIN: &str = "admin";

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// The methods of every path in the document.
    fn documented() -> BTreeMap<String, BTreeSet<String>> {
        let document = document();
        let paths = document["paths"].as_object().unwrap().iter().map(|(path, item)| {
            let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
            (path.clone(), methods.map(|method| method.to_uppercase()).collect())
        });
        paths.collect()
    }

    /// A server with all its parts, on its own database and store.
    async fn whole(directory: &tempfile::TempDir, db: &TestDb) -> Config {
        let path = directory.path().join("streams");
        let open = tokio::task::spawn_blocking(|| Embedded::open(embedded::Config::new(path)));
        let store = open.await.unwrap().unwrap();
        Config {
            database: Some(db.database().await),
            streams: Some((Arc::new(store), stream::Settings::default())),
            admin_token: Some(ADMIN.to_owned()),
            ..Config::default()
        }
    }

    /// Every path of the router, from its debug output: it has no other list.
    fn routed(config: &Config) -> BTreeSet<String> {
        let (store, _) = config.streams.clone().unwrap();
        let projects = Projects::open(store).unwrap();
        let told = format!("{:?}", router(config.clone(), Some(projects), CancellationToken::new()));
        let quoted = told.split("RouteId(").filter_map(|part| part.split_once("): \"")?.1.split('"').next());
        // The fallback shows up as these two.
        let fallback = ["/", "/{*__private__axum_fallback}"];
        quoted.filter(|path| !fallback.contains(path)).map(str::to_owned).collect()
    }

    /// The path in the document where a resource below `/v1` is described. A new kind of resource does not
    /// compile until it has one.
    fn template(resource: &Resource) -> String {
        let rest = match resource {
            Resource::Stream(_) => "stream/{stream}",
            Resource::List { .. } => "streams",
            Resource::Session { route, .. } => match route {
                Route::Subscribe => "subscribe",
                Route::Unsubscribe => "unsubscribe",
                Route::Publish(_) => "publish/{streamId}",
                Route::Session(_) => "session/{sessionId}",
                Route::Touch(_) => "session/{sessionId}/touch",
                Route::Sessions => "sessions",
                Route::Sources => "sources",
            },
            Resource::Reserved { rest, .. } => &format!("stream/__ds/{}", woken_route(rest).unwrap_or("?")),
        };
        format!("/v1/{{project}}/{rest}")
    }

    fn filled(path: &str) -> String {
        let id = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
        let path = path.replace("{project}", "p").replace("{sessionId}", id);
        let path = path.replace("{stream}", "s").replace("{streamId}", "s").replace("{subscriptionId}", "w");
        path.replace("{job_id}", id)
    }

    /// O05: every route of the server is in the document, with its methods, and nothing else is.
    #[tokio::test]
    async fn it_describes_what_there_is() {
        let (directory, db) = (tempfile::tempdir().unwrap(), TestDb::new().await);
        let config = whole(&directory, &db).await;
        let documented = documented();
        let (streams, others): (Vec<_>, Vec<_>) =
            documented.keys().cloned().partition(|path| path.starts_with("/v1/"));
        assert_eq!(routed(&config), others.into_iter().collect(), "the router and openapi.json differ");
        for path in streams {
            let resource = Resource::parse(&filled(&path)).unwrap_or_else(|| panic!("{path} leads nowhere"));
            assert_eq!(template(&resource), path);
        }

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(run(listener, config, shutdown.clone()));
        let http = reqwest::Client::new();
        for (path, methods) in documented {
            // TRACE is not supported: the response lists the allowed methods.
            let url = format!("http://{address}{}", filled(&path));
            let asked = http.request(Method::TRACE, url).bearer_auth(ADMIN).send().await.unwrap();
            assert_eq!(asked.status(), 405, "{path}");
            let allowed =
                asked.headers()["allow"].to_str().unwrap().split(',').map(|word| word.trim().to_owned());
            // OPTIONS and HEAD are part of GET.
            let plain = |method: &String| !["HEAD", "OPTIONS"].contains(&method.as_str());
            assert_eq!(
                methods.into_iter().filter(plain).collect::<BTreeSet<_>>(),
                allowed.filter(plain).collect(),
                "methods of {path}"
            );
        }
        shutdown.cancel();
        running.await.unwrap();
    }

    /// Every resource there is has a path in the document.
    #[test]
    fn no_place_is_missing() {
        let documented = documented();
        for rest in [
            "stream/a/b",
            "streams",
            "subscribe",
            "unsubscribe",
            "publish/a",
            "session/a",
            "session/a/touch",
            "sessions",
            "sources",
            "stream/__ds/jwks.json",
            "stream/__ds/subscriptions/a",
            "stream/__ds/subscriptions/a/streams",
            "stream/__ds/subscriptions/a/streams/b",
            "stream/__ds/subscriptions/a/callback",
            "stream/__ds/subscriptions/a/claim",
            "stream/__ds/subscriptions/a/ack",
            "stream/__ds/subscriptions/a/release",
        ] {
            let template = template(&Resource::parse(&format!("/v1/p/{rest}")).unwrap());
            assert!(documented.contains_key(&template), "{template} is not in openapi.json");
        }
    }

    #[test]
    fn it_is_of_this_version() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    /// Every reference has a definition, and every definition is referred to.
    #[test]
    fn its_references_lead_somewhere() {
        let document = document();
        let mut used: BTreeSet<String> = BTreeSet::new();
        for part in DOCUMENT.split("\"$ref\": \"#").skip(1) {
            let pointer = part.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer} is not there");
            used.insert(pointer.to_owned());
        }
        for kind in ["parameters", "headers", "responses", "schemas"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                assert!(used.contains(&format!("/components/{kind}/{name}")), "nobody uses {kind}/{name}");
            }
        }
    }
}
