//! `towpath routes …`.

use serde_json::{Value, json};

use crate::jobs_cli::{Shell, says};

/// E10: a route is added disabled, dry-run, enabled, disabled and removed, each with the next step.
#[tokio::test]
async fn a_route_goes_through_its_modes() {
    let shell = Shell::open().await;
    says(&shell.ok(&["routes", "list"]), &["no routes", "routes add"]);
    let add = ["routes", "add", "to-jobs", "--to-job", "k", "--domain", "orders", "--priority", "7"];
    says(&shell.ok(&add), &["created route to-jobs (off)", "dry-run"]);
    says(&shell.fails(&add), &["--replace"]);
    says(&shell.ok(&[&add[..], &["--replace", "--type", "created"]].concat()), &["changed route", "(off)"]);
    says(&shell.ok(&["routes", "show", "to-jobs"]), &["orders/created", "job k", "routes dry-run to-jobs"]);
    says(&shell.ok(&["routes", "dry-run", "to-jobs", "--why", "a look"]), &["is in dry run"]);
    shell.emit("orders", json!({})).await;
    shell.route().await;
    assert_eq!(
        shell.db.text("select count(*) from towpath.job_queue").await,
        "0",
        "a dry run delivers nothing"
    );
    says(&shell.ok(&["routes", "enable", "to-jobs", "--why", "it is right"]), &["is live", "events replay"]);
    says(&shell.ok(&["routes", "enable", "to-jobs", "--why", "again"]), &["is already live"]);
    let listed = shell.json(&["routes", "list"]);
    assert_eq!((&listed[0]["mode"], &listed[0]["mode_reason"]), (&json!("live"), &json!("again")));
    says(&shell.ok(&["routes", "disable", "to-jobs", "--why", "done"]), &["is off"]);
    says(&shell.ok(&["routes", "retire", "to-jobs", "--why", "done"]), &["retired route"]);
    assert_eq!(shell.json(&["routes", "list"]), json!([]));
    says(&shell.fails(&["routes", "enable", "to-jobs", "--why", "no"]), &["retired"]);
    says(&shell.fails(&["routes", "show", "nothing"]), &["routes list"]);
}

/// E08: a webhook route gets a signing key that is shown once; rotating shows the new one.
#[tokio::test]
async fn a_webhook_key_is_shown_once() {
    let shell = Shell::open().await;
    let add = ["routes", "add", "hook", "--to-webhook", "https://example.com/in", "--header", "X-Shop=7"];
    let made = shell.json(&[&add[..], &["--retry", "1,2,3", "--rate", "2.5", "--timeout", "5"]].concat());
    let key = made["signing_key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("whsec_"));
    let listed = shell.ok(&["--json", "routes", "show", "hook"]);
    assert!(!listed.contains(&key[6..]), "a key is shown once");
    let route: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&route["retry_seconds"], &route["target"]["headers"]["X-Shop"]),
        (&json!([1, 2, 3]), &json!("7"))
    );
    let rotated = shell.ok(&["routes", "rotate", "hook", "--overlap", "3600"]);
    says(&rotated, &["whsec_", "previous key"]);
    assert!(!rotated.contains(&key[6..]));
    says(&shell.ok(&["routes", "enable", "hook", "--why", "go"]), &["is live"]);
    says(&shell.fails(&["routes", "rotate", "hok"]), &["did you mean hook"]);
    let bad = ["routes", "add", "bad", "--to-webhook", "ftp://example.com"];
    says(&shell.fails(&bad), &["http or https"]);
}

/// E08: a test webhook is sent signed, whatever the mode, and an independent library accepts it; a
/// receiver that refuses and a forbidden address have different errors.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_tried_out() {
    let shell = Shell::open().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let made = shell.json(&["routes", "add", "hook", "--to-webhook", &url, "--domain", "orders"]);
    let key = made["signing_key"].as_str().unwrap();
    let forbidden = shell.code(4, &["--json", "routes", "test", "hook"]);
    assert_eq!(serde_json::from_str::<Value>(&forbidden).unwrap()["class"], "forbidden");
    let receiver =
        std::thread::spawn(move || ["204 No Content", "500 Oh"].map(|answer| receive(&listener, answer)));
    let local = ["--webhook-local", "routes", "test", "hook"];
    says(&shell.ok(&local), &["accepted it with 204"]);
    says(&shell.code(4, &local), &["did not accept it", "500"]);
    let [(headers, body), _] = receiver.join().unwrap();
    let webhook = standardwebhooks::Webhook::new(key).unwrap();
    webhook.verify(body.as_bytes(), &headers).unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["type"], &body["test"]), (&json!("orders.route.test"), &json!(true)));
    shell.ok(&["routes", "add", "jobs", "--to-job", "k"]);
    says(&shell.fails(&["routes", "test", "jobs"]), &["events explain"]);
    says(&shell.fails(&["routes", "test", "hok"]), &["did you mean hook"]);
}

/// Reads one request and responds; returns its headers and body.
fn receive(listener: &std::net::TcpListener, answer: &str) -> (axum::http::HeaderMap, String) {
    use std::io::{BufRead, BufReader, Read, Write};
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut headers = axum::http::HeaderMap::new();
    for line in reader.by_ref().lines().map(Result::unwrap).skip(1).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        let name: axum::http::HeaderName = name.parse().unwrap();
        headers.insert(name, value.parse().unwrap());
    }
    let mut body = vec![0; headers["content-length"].to_str().unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let mut stream = reader.into_inner();
    write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    (headers, String::from_utf8(body).unwrap())
}

/// E06: a dead letter is listed, shown whole, replayed after the fix, or closed by hand.
#[tokio::test]
async fn dead_letters_are_dealt_with() {
    let shell = Shell::open().await;
    let add = ["routes", "add", "r", "--to-job", "k"];
    shell.ok(&[&add[..], &["--from-payload", "priority=prio"]].concat());
    shell.ok(&["routes", "enable", "r", "--why", "a test"]);
    says(&shell.ok(&["routes", "dlq", "list"]), &["no route dead letters"]);
    for _ in 0..3 {
        shell.emit("d", json!({"prio": "abc"})).await;
    }
    shell.route().await;
    let page = shell.json(&["routes", "dlq", "list", "--route", "r", "--limit", "2"]);
    let letter = |n: usize| page["dead_letters"][n]["dead_letter_id"].as_str().unwrap();
    says(&shell.ok(&["routes", "dlq", "list", "--limit", "2"]), &["d/created", "--after"]);
    says(&shell.ok(&["routes", "dlq", "show", letter(0)]), &[r#"{"prio":"abc"}"#, "integer"]);
    says(&shell.code(4, &["routes", "dlq", "replay", letter(0)]), &["failed again"]);
    shell.ok(&["routes", "dlq", "resolve", letter(1), "--why", "not needed"]);
    says(&shell.fails(&["routes", "dlq", "resolve", letter(1), "--why", "twice"]), &["already resolved"]);
    shell.ok(&[&add[..], &["--replace"]].concat());
    says(&shell.code(3, &["routes", "dlq", "replay", "--all"]), &["2 dead letters", "--yes"]);
    says(&shell.ok(&["routes", "dlq", "replay", "--route", "r", "--yes"]), &["2 dead letters replayed"]);
    assert_eq!(
        shell.json(&["routes", "dlq", "list", "--resolved"])["dead_letters"].as_array().unwrap().len(),
        3
    );
    says(&shell.fails(&["routes", "dlq", "show", &uuid::Uuid::now_v7().to_string()]), &["routes dlq list"]);
}

/// E09: a route worker is split into slices, and its cursor set back without delivering anything twice.
#[tokio::test]
async fn a_worker_is_cut_and_set_back() {
    let shell = Shell::open().await;
    shell.ok(&["routes", "add", "r", "--to-job", "k"]);
    shell.ok(&["routes", "enable", "r", "--why", "a test"]);
    for n in 0..5 {
        shell.emit("d", json!({"n": n})).await;
    }
    shell.route().await;
    says(
        &shell.ok(&["routes", "worker", "default", "--slices", "4", "--from", "0"]),
        &["4 slices", "position 0"],
    );
    shell.route().await;
    assert_eq!(shell.db.text("select count(*) from towpath.job_queue where job_kind = 'k'").await, "5");
    let workers = shell.json(&["routes", "worker"]);
    assert_eq!(workers["workers"][0]["cursors"].as_array().unwrap().len(), 4);
    says(&shell.ok(&["routes", "worker"]), &["4 of 4", "WORKER"]);
}
