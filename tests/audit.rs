//! `towpath audit list`: the actions of the dashboard, on the command line.

use serde_json::Value;
use towpath_testkit::victim::Victim;

use crate::jobs_cli::says;
use crate::towpath::Place;

const PASSWORD: &str = "a password for the test";
const GATE: &str = "queue.worker.enabled";

/// A signed-in user who sends forms.
struct Browser {
    http: reqwest::Client,
    url: String,
    origin: String,
    cookie: String,
}

impl Browser {
    async fn sign_in(place: &Place, name: &str, password: &str) -> Browser {
        let none = reqwest::redirect::Policy::none();
        let http = reqwest::Client::builder().redirect(none).build().unwrap();
        let url = format!("http://127.0.0.1:{}/ui", place.port);
        let form = [("name", name), ("password", password), ("to", "/ui")];
        let origin = format!("http://127.0.0.1:{}", place.port);
        let signed =
            http.post(format!("{url}/login")).header("origin", &origin).form(&form).send().await.unwrap();
        let cookie = signed.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        Browser { http, url, origin, cookie }
    }

    /// Sends a form of the gates page; returns the status.
    async fn gates(&self, action: &str, gate: &str, reason: &str) -> u16 {
        let (url, cookie) = (format!("{}/gates", self.url), &self.cookie);
        let page = self.http.get(&url).header("cookie", cookie).send().await.unwrap().text().await.unwrap();
        let (_, rest) = page.split_once(r#"name="csrf" value=""#).expect("a page with a form");
        let csrf = rest.split('"').next().unwrap();
        let form = [("csrf", csrf), ("do", action), ("target", gate), ("reason", reason)];
        let request =
            self.http.post(&url).header("cookie", cookie).header("origin", &self.origin).form(&form);
        request.send().await.unwrap().status().as_u16()
    }
}

/// O03: every action of the dashboard is listed on the command line: who, what, on what, why and
/// how it ended; newest first, page by page, and as JSON.
#[tokio::test]
async fn what_was_done_on_the_dashboard_is_listed() {
    let place = Place::new();
    let mut command = place.command(&["up", "--dev"]);
    command.env("TOWPATH_ADMIN_PASSWORD", PASSWORD);
    let mut up = Victim::spawn(command);
    up.wait_for_line("towpath is ready").await;
    assert_eq!(place.ok(&["audit", "list"]), "no dashboard actions yet\n");
    assert_eq!(place.ok(&["audit", "list", "--json"]).trim(), "[]");

    let ann = Browser::sign_in(&place, "ann", PASSWORD).await;
    assert_eq!(ann.gates("close", GATE, "disk full").await, 303);
    assert_eq!(ann.gates("open", GATE, "disk empty").await, 303);
    ann.gates("close", "no.such.gate", "a slip").await;

    let listed = || -> Vec<Value> { serde_json::from_str(&place.ok(&["audit", "list", "--json"])).unwrap() };
    let rows = listed();
    let told: Vec<_> = rows
        .iter()
        .filter(|row| row["target"] == GATE)
        .map(|row| ["actor", "action", "detail", "outcome"].map(|field| row[field].as_str().unwrap()))
        .collect();
    let by_ann = |action, why| ["ann", action, why, "ok"];
    assert_eq!(told, [by_ann("gate open", "disk empty"), by_ann("gate close", "disk full")], "{rows:?}");
    assert!(rows.is_sorted_by_key(|row| -row["audit_id"].as_i64().unwrap()), "newest first");
    let slip = rows.iter().find(|row| row["target"] == "no.such.gate").expect("what failed is there too");
    assert_ne!(slip["outcome"], "ok");

    let words = place.ok(&["audit", "list"]);
    says(&words, &["WHO", "ann", "gate close", GATE, "ok", "disk full", "older: --before"]);
    let newest = place.ok(&["audit", "list", "--limit", "1", "--json"]);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&newest).unwrap(), rows[..1]);
    let before = rows[0]["audit_id"].to_string();
    let rest = place.ok(&["audit", "list", "--before", &before, "--json"]);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&rest).unwrap(), rows[1..]);
    assert_eq!(place.run(&["audit", "list", "--limit", "0"]).status.code(), Some(2));
    up.terminate();
    up.wait_exit().await;
}
