//! Who may look and who may act.

use std::time::Duration;

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_dashboard::{Access, Cookies, Secret};
use towpath_model::job_state::JobState;
use uuid::Uuid;

use crate::kit::{PAGES, TestDashboard, csrf};

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

/// Who sends a form, and with what around it.
struct Sender<'a> {
    what: &'static str,
    fields: Vec<(&'static str, &'a str)>,
    token: Option<&'a str>,
    /// What it must be told wherever there is something to be done.
    status: u16,
}

impl TestDashboard {
    /// A form that would do something wherever it is taken.
    fn form(&self, method: &Method, path: &str, sender: &Sender<'_>) -> RequestBuilder {
        let mut fields = vec![
            ("do", "cancel"),
            ("target", "queue.worker.enabled"),
            ("kind", "mail"),
            ("reason", "x"),
            ("sure", "yes"),
        ];
        fields.extend(sender.token.map(|token| ("csrf", token)));
        let request = self.client.request(method.clone(), self.server.url(path)).form(&fields);
        sender.fields.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }

    /// Nothing was done, and nothing was written down as done.
    async fn is_untouched(&self) {
        let done = "select count(*)::text::jsonb from towpath.audit where outcome = 'ok'";
        assert_eq!(self.db.json(done).await, 0);
    }

    /// The token of the forms that somebody gets.
    async fn token(&self, cookie: &str) -> String {
        csrf(&self.get("/ui/executors").header(COOKIE, cookie).send().await.unwrap().text().await.unwrap())
    }
}

/// O03: whatever changes something is tried as everybody who may not: the viewer, nobody, an administrator's browser
/// that another page made send it, one that does not say who made it, one without the token of its page. Every
/// path and method of the router is tried, so that a new one cannot be forgotten.
#[tokio::test]
async fn nobody_else_changes_anything_anywhere() {
    let place = TestDashboard::guarded().await;
    let origin = place.origin();
    let (viewer, ann) = (place.sign_in("look").await, place.sign_in("act").await);
    let bob = place.sign_in_as("bob", "act").await;
    let (token, of_bob) = (place.token(&ann).await, place.token(&bob).await);
    let own = ("origin", origin.as_str());
    let (token, of_bob) = (Some(token.as_str()), Some(of_bob.as_str()));
    let sender = |what, fields, token, status| Sender { what, fields, token, status };
    let senders = [
        sender("the viewer", vec![("cookie", &*viewer), own], token, 403),
        sender("the viewer by bearer", vec![("authorization", "Bearer look")], None, 403),
        sender("nobody", vec![own], token, 303),
        sender("nobody at all", vec![], None, 303),
        sender("a wrong cookie", vec![("cookie", "towpath_ui=admin.9999999999.YQ.AA"), own], token, 303),
        sender("another page", vec![("cookie", &*ann), ("origin", "https://evil.example")], token, 403),
        sender("a sandboxed page", vec![("cookie", &*ann), ("origin", "null")], token, 403),
        sender("another site", vec![("cookie", &*ann), own, ("sec-fetch-site", "cross-site")], token, 403),
        sender("who does not say", vec![("cookie", &*ann)], token, 403),
        sender("no token", vec![("cookie", &*ann), own], None, 403),
        sender("a wrong token", vec![("cookie", &*ann), own], Some("wrong"), 403),
        sender("a token of somebody else", vec![("cookie", &*ann), own], of_bob, 403),
        sender(
            "no token, but a name",
            vec![("cookie", &*ann), own, ("authorization", "Basic eDp5")],
            None,
            403,
        ),
    ];
    let mut refused = 0;
    for (method, path) in mutations() {
        for sender in &senders {
            let status = place.form(&method, &path, sender).send().await.unwrap().status().as_u16();
            assert!(
                [405, sender.status].contains(&status),
                "{}: {method} {path} answered {status}",
                sender.what
            );
            refused += usize::from(status == sender.status);
        }
    }
    // Ten paths take forms; a router that lost them would make this test say nothing.
    assert!(refused >= 10 * senders.len(), "only {refused} requests were refused");
    place.is_untouched().await;
    // The same forms are taken from who may send them: what they say is another matter.
    let admins = [
        sender("ann", vec![("cookie", &*ann), own], token, 0),
        sender("a script", vec![("authorization", "Bearer act")], None, 0),
    ];
    let mut taken = 0;
    for (method, path) in mutations() {
        for admin in &admins {
            let status = place.form(&method, &path, admin).send().await.unwrap().status().as_u16();
            assert!(
                [303, 400, 404, 405].contains(&status),
                "{}: {method} {path} answered {status}",
                admin.what
            );
            taken += usize::from(status != 405);
        }
    }
    assert!(taken >= 2 * 10, "only {taken} requests were taken");
}

/// O03: what somebody was refused is in the audit, with who and why, and no flood of it fills it.
#[tokio::test]
async fn refusals_are_written_down() {
    let place = TestDashboard::guarded().await;
    let (viewer, ann) = (place.sign_in_as("eve", "look").await, place.sign_in("act").await);
    let origin = place.origin();
    let own = ("origin", origin.as_str());
    let token = place.token(&ann).await;
    let as_viewer = Sender { what: "", fields: vec![("cookie", &viewer), own], token: None, status: 403 };
    let stale = Sender { what: "", fields: vec![("cookie", &ann), own], token: Some("old"), status: 403 };
    let wrong = Sender { what: "", fields: vec![("cookie", &ann), own], token: Some(&token), status: 400 };
    for sender in [&as_viewer, &stale, &wrong] {
        let status = place.form(&Method::POST, "/ui/gates", sender).send().await.unwrap().status();
        assert_eq!(status.as_u16(), sender.status);
    }
    let rows = place.database.audit_list(10, None).await.unwrap();
    let told: Vec<_> =
        rows.iter().map(|row| (row.actor.as_str(), row.action.as_str(), row.target.as_str())).collect();
    let refused = |who| (who, "refused", "/ui/gates");
    assert_eq!(told, [refused("ann"), refused("ann"), refused("eve")]);
    assert!(rows[2].outcome.contains("read-only access"), "{}", rows[2].outcome);
    assert!(rows[0].outcome.contains("cancel"), "{}", rows[0].outcome);
    for _ in 0..150 {
        place.form(&Method::POST, "/ui/gates", &as_viewer).send().await.unwrap();
    }
    let count = place.db.json("select count(*)::text::jsonb from towpath.audit").await.as_i64().unwrap();
    assert!((60..=125).contains(&count), "{count} rows");
}

/// O03: an action that cannot be written down is not done, and one that is done is written down with it.
#[tokio::test]
async fn an_action_and_its_row_are_one() {
    let place = TestDashboard::open().await;
    let gate = "queue.worker.enabled";
    let form = [("do", "close"), ("target", gate), ("reason", "a test")];
    let is_open = async || {
        place.db.json("select to_jsonb(value) from towpath.config where key = 'queue.worker.enabled'").await
    };
    let before = is_open().await;
    place
        .db
        .execute("alter table towpath.audit add constraint nothing_check check (action <> 'gate close')")
        .await;
    let refused = place.post("/ui/gates", &form).await;
    assert_ne!(refused.status(), 200);
    assert_eq!(is_open().await, before, "nobody knows of it, so it was not done");
    place.is_untouched().await;
    place.db.execute("alter table towpath.audit drop constraint nothing_check").await;
    assert_eq!(place.post("/ui/gates", &form).await.status(), 303);
    assert_ne!(is_open().await, before);
    let together = "select count(*)::text::jsonb from towpath.audit a join towpath.config_change h \
                    on a.xmin = h.xmin where a.action = 'gate close' and h.key = 'queue.worker.enabled'";
    assert_eq!(place.db.json(together).await, 1, "one transaction wrote both");
}

/// Under TLS, here or before us, no cookie travels without it.
#[tokio::test]
async fn cookies_are_secure_under_tls() {
    let access = Access::Guarded { admin: Secret::new("act"), viewer: None };
    let place = TestDashboard::sending(access, Cookies::Secure).await;
    let form = [("name", "ann"), ("password", "act")];
    let post = |path: &str| place.client.post(place.server.url(path)).header(ORIGIN, place.origin());
    let signed = post("/ui/login").form(&form).send().await.unwrap();
    let cookie = signed.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let left = post("/ui/logout").send().await.unwrap();
    assert!(left.headers()[SET_COOKIE].to_str().unwrap().ends_with("; Secure"));
    let elsewhere = place.client.post(place.server.url("/ui/logout")).send().await.unwrap();
    assert_eq!(elsewhere.status(), 403, "no other page signs anybody out");
    let token = place.token(cookie.split(';').next().unwrap()).await;
    let form = [("do", "pause"), ("target", "mail"), ("csrf", &token)];
    let acted = post("/ui/executors").header(COOKIE, cookie.split(';').next().unwrap()).form(&form);
    let acted = acted.send().await.unwrap();
    assert!(acted.headers()[SET_COOKIE].to_str().unwrap().ends_with("; Secure"));
}

/// Somebody with the viewer's password sees every page, and none of them offers a form.
#[tokio::test]
async fn a_viewer_sees_everything() {
    let place = TestDashboard::guarded().await;
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
    let place = TestDashboard::guarded().await;
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
        let login = place.client.post(place.server.url("/ui/login")).header(ORIGIN, place.origin());
        statuses.push(login.form(&form).send().await.unwrap().status().as_u16());
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    place.sign_in("act").await;
}

/// A form from another site, without the token of the page, or by another host name is refused.
#[tokio::test]
async fn a_page_elsewhere_cannot_act() {
    let place = TestDashboard::open().await;
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
    assert_eq!(rebound.status(), 421);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 0);
    assert_eq!(post().header(ORIGIN, place.origin()).form(&form).send().await.unwrap().status(), 303);
    assert_eq!(place.database.queue_paused().await.unwrap().len(), 1);
}

/// S06: a login form whose body does not arrive is refused after a time limit, and its connection is closed.
#[tokio::test]
async fn a_login_that_does_not_arrive_is_refused() {
    let place = TestDashboard::guarded().await;
    let mut slow = TcpStream::connect(place.server.address()).await.unwrap();
    let head = "POST /ui/login HTTP/1.1\r\nhost: localhost\r\n\
        content-type: application/x-www-form-urlencoded\r\ncontent-length: 100\r\n\r\n";
    slow.write_all(format!("{head}password=").as_bytes()).await.unwrap();
    // With nothing else to do, a paused clock goes straight to the next time-out.
    tokio::time::pause();
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(600), slow.read_to_string(&mut answer)).await;
    read.expect("the time limit on bodies did not fire").unwrap();
    tokio::time::resume();
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    place.server.stop().await;
}
