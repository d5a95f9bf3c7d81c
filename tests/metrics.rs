//! `/metrics` of running processes, and what uses it: the reference page, the board, the alerts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

/// The text of `/metrics` at an address.
async fn scrape(address: &str, token: Option<&str>) -> Option<String> {
    let mut request = reqwest::Client::new().get(format!("http://{address}/metrics"));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.ok()?;
    (answer.status() == 200).then_some(answer.text().await.ok()?)
}

/// The sum of all series of this name whose labels contain all of these texts.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (found, number) = rest.rsplit_once(' ')?;
        let whole = found.is_empty() || found.starts_with('{');
        (whole && labels.iter().all(|label| found.contains(label))).then(|| number.parse::<f64>().unwrap())
    });
    of_name.sum()
}

/// Waits until the numbers at an address are right, and returns them.
async fn until(address: &str, token: Option<&str>, right: impl Fn(&str) -> bool) -> String {
    let look = async || scrape(address, token).await.unwrap_or_default();
    wait::until("right numbers", look, |text| right(text)).await
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn described() -> Vec<Value> {
    let shown = Place::new().ok(&["metrics", "--json"]);
    serde_json::from_str(&shown).unwrap()
}

/// O05: running jobs change the numbers of every process; and every exported metric is described.
#[tokio::test]
async fn numbers_move_when_jobs_run() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let address = format!("127.0.0.1:{}", place.port);
    let before = until(&address, None, |text| value(text, "towpath_database_up", &[]) == 1.0).await;
    assert_eq!(value(&before, "towpath_jobs_finished_total", &["towpath.noop"]), 0.0);
    for _ in 0..3 {
        place.ok(&["job", "enqueue", "towpath.noop"]);
    }
    place.ok(&["job", "enqueue", "towpath.fail", "--max-attempts", "1"]);
    place.ok(&["job", "enqueue", "no.handler"]);
    place.ok(&["events", "emit", "shop", "order_paid"]);
    place.ok(&["stream", "create", "news"]);
    place.ok(&["stream", "append", "news", r#""hello""#]);
    let after = until(&address, None, |text| {
        value(text, "towpath_jobs_finished_total", &["kind=\"towpath.noop\"", "outcome=\"succeeded\""]) == 3.0
            && value(text, "towpath_dead_letters_open", &["pending"]) == 1.0
            && value(text, "towpath_events_numbered_total", &[]) >= 1.0
            && value(text, "towpath_jobs_unhandled", &["kind=\"no.handler\"", "cause=\"no_subscription\""])
                == 1.0
    })
    .await;
    let noop: &[&str] = &["kind=\"towpath.noop\""];
    for (name, labels, least) in [
        ("towpath_jobs_enqueued_total", [].as_slice(), 4.0),
        ("towpath_jobs_claimed_total", noop, 3.0),
        ("towpath_job_wait_seconds_count", noop, 3.0),
        ("towpath_job_run_seconds_count", noop, 3.0),
        ("towpath_job_run_seconds_count", &["kind=\"towpath.fail\""], 1.0),
        ("towpath_executors", &["fresh"], 1.0),
        ("towpath_gate_open", &["queue.worker.enabled"], 1.0),
        ("towpath_maintenance_passes_total", &["task=\"reap\"", "done"], 1.0),
        ("towpath_postgres_connections", &[], 1.0),
        ("towpath_postgres_transactions_total", &["commit"], 1.0),
        ("towpath_database_pool", &["free"], 1.0),
        ("towpath_stream_append_ack_seconds_count", &[], 1.0),
        ("towpath_http_requests_total", &["endpoint=\"metrics\"", "200"], 1.0),
        ("towpath_http_connections", &[], 1.0),
    ] {
        assert!(value(&after, name, labels) >= least, "{name} {labels:?} is not {least}:\n{after}");
    }
    let known = described();
    let known: BTreeSet<&str> = known.iter().filter_map(|it| it["name"].as_str()).collect();
    for line in after.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(known.contains(name.as_str()), "{name} is exported and towpath metrics does not know it");
    }
    up.terminate();
    up.wait_exit().await;
}

/// O05: a role without the HTTP server has its own address for metrics, behind a token; a public address without a
/// token is refused.
#[tokio::test]
async fn a_role_alone_has_numbers_too() {
    let db = TestDb::open().await;
    let place = Place::new();
    let address = format!("127.0.0.1:{}", place.port);
    for role in ["work", "route", "maintain"] {
        let mut command = place.command(&[role, "--metrics-listen", &address]);
        command.env("DATABASE_URL", db.url()).env("TOWPATH_METRICS_TOKEN", "open sesame");
        let mut running = Victim::spawn(command);
        let name = match role {
            "work" => "towpath_stale_finish_rejected",
            "route" => "towpath_events_routed",
            _ => "towpath_leases_expired",
        };
        let text = until(&address, Some("open sesame"), |text| text.contains("# EOF")).await;
        assert!(text.contains(&format!("# TYPE {name} ")), "{role}:\n{text}");
        assert_eq!(place.get("/metrics").await, 401, "{role} without the token");
        running.terminate();
        running.wait_exit().await;
    }
    let mut public = place.command(&["work", "--metrics-listen", "0.0.0.0:0"]);
    let refused = public.env("DATABASE_URL", db.url()).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("TOWPATH_METRICS_TOKEN"), "{why}");
}

/// The reference page is generated; this fails when it is out of date.
#[test]
fn the_page_of_metrics_is_current() {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let now = Place::new().ok(&["metrics", "--markdown"]);
    assert!(page == now, "write it again: towpath metrics --markdown > docs/reference/metrics.md");
}

/// Every metric that the board and the alerts use exists.
#[test]
fn the_board_and_the_alerts_use_metrics_that_exist() {
    let described = described();
    let known: BTreeSet<&str> = described.iter().filter_map(|it| it["name"].as_str()).collect();
    for file in ["deploy/grafana/towpath.json", "deploy/prometheus/alerts.yml"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let mut used = BTreeSet::new();
        for (at, _) in text.match_indices("towpath_") {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            used.insert(text[at..].split(|c| !word(c)).next().unwrap());
        }
        assert!(used.len() > 20, "{file} was read: {used:?}");
        for name in used {
            let plain = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(known.contains(plain.unwrap_or(name)), "{file} uses {name}, which there is not");
        }
    }
    let board = std::fs::read_to_string(root().join("deploy/grafana/towpath.json")).unwrap();
    serde_json::from_str::<Value>(&board).unwrap();
}

/// Every alert says what to do, in commands that exist; and promtool, where there is one, reads them.
#[test]
fn every_alert_says_what_to_do() {
    let path = root().join("deploy/prometheus/alerts.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    let alerts: Vec<&str> = text.split("- alert: ").skip(1).collect();
    let page = std::fs::read_to_string(root().join("docs/guides/production.md")).unwrap();
    assert!(
        page.contains(&format!("{} alerts", alerts.len())),
        "docs/guides/production.md has another number"
    );
    let place = Place::new();
    let mut seen = BTreeSet::new();
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        let runbook = alert.split("runbook: \"").nth(1).unwrap_or_else(|| panic!("{name} has no runbook"));
        let runbook = runbook.split('"').next().unwrap();
        for (at, _) in runbook.match_indices("towpath ") {
            let words = runbook[at..].split(' ').skip(1);
            let plain = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
            let verbs: Vec<&str> = words
                .map(|word| word.trim_end_matches([',', ';', ':', '.', ')']))
                .take_while(plain)
                .collect();
            // A sentence may go on after the command: as many words as are commands.
            let known = (1..=verbs.len().min(3)).rev().find(|n| {
                let mut asked = verbs[..*n].to_vec();
                asked.push("--help");
                let output = place.run(&asked);
                output.status.success()
                    && String::from_utf8_lossy(&output.stdout)
                        .contains(&format!("Usage: towpath {}", verbs[..*n].join(" ")))
            });
            assert!(known.is_some(), "{name}: there is no towpath {}", verbs.join(" "));
            seen.insert(verbs[..known.unwrap()].join(" "));
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    for arguments in [["check", "rules"], ["check", "config"]] {
        let file = if arguments[1] == "rules" { path.clone() } else { path.with_file_name("prometheus.yml") };
        match Command::new("promtool").args(arguments).arg(file).output() {
            Ok(output) => assert!(output.status.success(), "{}", crate::towpath::words(&output)),
            // Debian has it in the package prometheus; without it the rules were read by this test alone.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
}
