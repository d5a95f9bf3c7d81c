//! Who may look and who may act.

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use towpath_model::job_state::JobState;
use uuid::Uuid;

use crate::place::{PAGES, Place, csrf};

/// Signing in and out changes nothing but a cookie.
const OPEN: [&str; 2] = ["/ui/login", "/ui/logout"];

/// Every path of the router with something for its blanks, and every method that may change something.
fn mutations() -> Vec<(Method, String)> {
    let fill = |path: &str| {
        path.replace("{id}", &Uuid::nil().to_string())
            .replace("{name}", "x.css")
            .replace("{*rest}", "nothing")
    };
    let methods = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let paths = towpath_dashboard::paths().into_iter().filter(|path| !OPEN.contains(path));
    paths.flat_map(|path| methods.clone().map(|method| (method, fill(path)))).collect()
}

impl Place {
    /// A form that would do something wherever it is taken.
    fn form(&self, method: &Method, path: &str) -> RequestBuilder {
        let fields = [
            ("do", "cancel"),
            ("target", "queue.worker.enabled"),
            ("kind", "mail"),
            ("reason", "x"),
            ("sure", "yes"),
        ];
        self.client.request(method.clone(), self.server.url(path)).form(&fields)
    }

    /// Nothing was done, and nothing was written down as done.
    async fn is_untouched(&self) {
        assert_eq!(self.db.json("select count(*)::text::jsonb from towpath.audit").await, 0);
    }
}

/// O03: whatever changes something refuses the viewer, on the server, by cookie and by bearer; tried
/// on every path and method that the router has.
#[tokio::test]
async fn a_viewer_changes_nothing_anywhere() {
    let place = Place::guarded().await;
    let viewer = place.sign_in("look").await;
    let mut refused = 0;
    for (method, path) in mutations() {
        let asked = [
            place.form(&method, &path).header(COOKIE, &viewer),
            place.form(&method, &path).bearer_auth("look"),
        ];
        for request in asked {
            let status = request.send().await.unwrap().status();
            let absent = status == StatusCode::METHOD_NOT_ALLOWED;
            assert!(absent || status == StatusCode::FORBIDDEN, "{method} {path} answered {status}");
            refused += usize::from(!absent);
        }
    }
    // Ten pages have actions; a router that lost them would make this test say nothing.
    assert!(refused >= 20, "only {refused} requests were refused");
    place.is_untouched().await;
}

/// O03: without signing in every one of them leads to the sign-in, and does nothing.
#[tokio::test]
async fn nobody_changes_anything_without_signing_in() {
    let place = Place::guarded().await;
    for (method, path) in mutations() {
        let response = place.form(&method, &path).send().await.unwrap();
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => {}
            status => {
                assert_eq!(status, StatusCode::SEE_OTHER, "{method} {path}");
                assert_eq!(response.headers()[LOCATION], "/ui/login", "{method} {path}");
            }
        }
        let wrong = place.form(&method, &path).bearer_auth("guess").send().await.unwrap().status();
        assert!(
            [StatusCode::METHOD_NOT_ALLOWED, StatusCode::SEE_OTHER].contains(&wrong),
            "{method} {path} answered {wrong} to a wrong password"
        );
    }
    place.is_untouched().await;
}

/// O03: an administrator's browser does nothing for a form without the word of its page, with a wrong
/// one, or with that of somebody else.
#[tokio::test]
async fn no_form_counts_without_the_word_of_its_page() {
    let place = Place::guarded().await;
    let (ann, bob) = (place.sign_in("act").await, place.sign_in_as("bob", "act").await);
    let page = place.get("/ui/executors").header(COOKIE, &bob).send().await.unwrap().text().await.unwrap();
    let of_bob = csrf(&page);
    let mut refused = 0;
    for (method, path) in mutations() {
        let words: [&[(&str, &str)]; 3] = [&[], &[("csrf", "wrong")], &[("csrf", &of_bob)]];
        for word in words {
            let fields = [&[("do", "cancel"), ("target", "x"), ("sure", "yes")], word].concat();
            let request = place.client.request(method.clone(), place.server.url(&path));
            let status = request.header(COOKIE, &ann).form(&fields).send().await.unwrap().status();
            let absent = status == StatusCode::METHOD_NOT_ALLOWED;
            assert!(absent || status == StatusCode::FORBIDDEN, "{method} {path} answered {status}");
            refused += usize::from(!absent);
        }
    }
    assert!(refused >= 30, "only {refused} requests were refused");
    place.is_untouched().await;
}

/// Somebody with the viewer's password sees every page, and none of them offers a form.
#[tokio::test]
async fn a_viewer_sees_everything() {
    let place = Place::guarded().await;
    let job = place.enqueue("mail", json!({})).await.job_id;
    let viewer = place.sign_in("look").await;
    let job_page = format!("/ui/jobs/{job}");
    for path in PAGES.into_iter().chain([job_page.as_str()]) {
        let response = place.get(path).header(COOKIE, &viewer).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert!(!response.text().await.unwrap().contains(r#"name="csrf""#), "{path} offers a form");
    }
    assert_eq!(place.database.job_show(job).await.unwrap().job.unwrap().state, JobState::Queued);
}

/// Without a password nobody sees anything; guessing ends; a cookie cannot be changed.
#[tokio::test]
async fn nobody_gets_in_without_a_password() {
    let place = Place::guarded().await;
    for path in PAGES.into_iter().chain(["/ui/live", "/ui/stream?id=x"]) {
        let response = place.get(path).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/ui/login".parse().unwrap())
        );
    }
    let viewer = place.sign_in("look").await;
    let forged = viewer.replacen("viewer", "admin", 1);
    assert_eq!(place.get("/ui").header(COOKIE, forged).send().await.unwrap().status(), 303);
    let mut statuses = vec![];
    for guess in 0..40 {
        let form = [("password", format!("guess {guess}"))];
        let response = place.client.post(place.server.url("/ui/login")).form(&form).send().await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
}

/// A form from another site, without the word of the page, or by a strange name is refused.
#[tokio::test]
async fn a_page_elsewhere_cannot_act() {
    let place = Place::open().await;
    let form = [("do", "pause"), ("target", "mail")];
    let post = || place.client.post(place.server.url("/ui/executors"));
    assert_eq!(post().form(&form).send().await.unwrap().status(), 403);
    let csrf = csrf(&place.text("/ui/executors").await);
    let form = [("do", "pause"), ("target", "mail"), ("csrf", &csrf)];
    let foreign = post().header(ORIGIN, "https://evil.example").form(&form);
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    let cross = post().header("sec-fetch-site", "cross-site").form(&form);
    assert_eq!(cross.send().await.unwrap().status(), 403);
    let rebound = place.get("/ui").header(HOST, "evil.example:4437").send().await.unwrap();
    assert_eq!(rebound.status(), 403);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 0);
    assert_eq!(post().form(&form).send().await.unwrap().status(), 303);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 1);
}
