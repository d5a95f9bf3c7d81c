//! The commands of `docs/guides/events.md` and of the runbooks, every one of them, in order.

use serde_json::{Value, json};

use crate::jobs_cli::Shell;
use crate::jobs_cli::guide::{commands, split};

/// A shell where everything a page names exists: an event, two dead letters, a subscription, a grant.
struct Page {
    shell: Shell,
    names: Vec<(&'static str, String)>,
}

impl Page {
    async fn open(route: &str) -> Page {
        let shell = Shell::open().await;
        let add = ["routes", "add", route, "--to-job", "invoice", "--domain", "orders"];
        shell.ok(&[&add[..], &["--from-payload", "priority=urgency"]].concat());
        shell.ok(&["routes", "enable", route, "--why", "a test"]);
        for _ in 0..2 {
            shell.emit("orders", json!({"urgency": "abc"})).await;
        }
        shell.route().await;
        // The fix that lets replays of them succeed.
        shell.ok(&[&add[..], &["--replace"]].concat());
        let letters = shell.json(&["routes", "dlq", "list"]);
        let letter = |n: usize| letters["dead_letters"][n]["dead_letter_id"].as_str().unwrap().to_owned();
        let event = shell.emit("orders", json!({"order_id": 7})).await;
        shell.route().await;
        let made: Value = shell.json(&["subscriptions", "add", "user:me", "mail"]);
        let subscription = made["subscription_id"].as_str().unwrap().to_owned();
        let granted = shell.json(&["events", "grant", "add", "another_app", "--domain", "mail"]);
        let names = vec![
            ("EVENT", event),
            ("GRANT", granted["grant_id"].as_str().unwrap().to_owned()),
            ("LETTER", letter(0)),
            ("OTHER_LETTER", letter(1)),
            ("SUBSCRIPTION", subscription),
        ];
        Page { shell, names }
    }

    /// Runs every command of a page; answers how many there were.
    async fn run(&self, page: &str) -> usize {
        self.answers(page, &[]).await.len()
    }

    /// Runs every command of a page with more flags; answers each with what it printed. Counting ends with
    /// code 3. `doctor` has something to say about a throwaway server and is tested elsewhere.
    async fn answers(&self, page: &str, flags: &[&str]) -> Vec<(String, String)> {
        let mut answers = vec![];
        for line in commands(page).iter().filter(|line| !line.starts_with("up") && *line != "doctor") {
            self.shell.database.event_sequence(1000).await.unwrap();
            let words = split(line);
            let named = |word: &String| {
                let known = self.names.iter().find(|(name, _)| name == word);
                known.map_or_else(|| word.clone(), |(_, id)| id.clone())
            };
            let words: Vec<String> = words.iter().map(named).collect();
            let words: Vec<&str> = flags.iter().copied().chain(words.iter().map(String::as_str)).collect();
            let counts = words[flags.len()..].starts_with(&["events", "replay"])
                && words.contains(&"--after")
                && !words.contains(&"--yes");
            answers.push((line.clone(), self.shell.code(if counts { 3 } else { 0 }, &words)));
        }
        answers
    }
}

/// STYLE: guides show commands that CI runs. Names in capitals stand for ids.
#[tokio::test]
async fn every_command_of_the_guide_works() {
    let page = Page::open("letters").await;
    assert!(page.run("guides/events.md").await > 40);
    // The route of the page took the old events, each once by the replay and one of them again.
    let jobs = page.shell.db.text("select count(*) from towpath.job_queue where job_kind = 'invoice'").await;
    assert!(jobs.parse::<u32>().unwrap() >= 3, "{jobs}");
}

/// E10: the disable runbook stops what it says and starts it again.
#[tokio::test]
async fn the_disable_runbook_works() {
    let page = Page::open("invoices").await;
    assert!(page.run("runbooks/disable-routing.md").await > 8);
    assert_eq!(page.shell.json(&["events", "health"])["routing_enabled"], true, "it ends open");
    page.shell.emit("orders", json!({})).await;
    page.shell.route().await;
    assert_eq!(page.shell.json(&["routes", "show", "invoices"])["mode"], "live");
}

/// E10: with the master gate closed no cursor moves and no replay is taken, and nothing is lost.
#[tokio::test]
async fn the_master_gate_holds_everything() {
    let page = Page::open("invoices").await;
    let before = page.shell.db.text("select count(*) from towpath.job_queue").await;
    page.shell.ok(&["gate", "close", "event.routing.enabled", "--why", "a test"]);
    let event = page.shell.emit("orders", json!({})).await;
    assert!(page.shell.database.route_worker_run("default", 100, None).await.is_err());
    assert!(page.shell.fails(&["events", "replay", "invoices", &event]).contains("event.routing.enabled"));
    let health = page.shell.json(&["events", "health"]);
    assert_eq!((&health["routing_enabled"], &health["slowest_lag"]), (&json!(false), &json!(1)));
    page.shell.ok(&["events", "verify"]);
    page.shell.ok(&["gate", "open", "event.routing.enabled", "--why", "a test"]);
    page.shell.route().await;
    let after = page.shell.db.text("select count(*) from towpath.job_queue").await;
    assert_eq!(after.parse::<u32>().unwrap(), before.parse::<u32>().unwrap() + 1);
}

/// E06, E10: the replay runbook.
#[tokio::test]
async fn the_replay_runbook_works() {
    let page = Page::open("invoices").await;
    assert!(page.run("runbooks/replay-events.md").await > 10);
    let open = page.shell.json(&["routes", "dlq", "list"]);
    assert_eq!(open["dead_letters"], json!([]), "both letters are dealt with");
}

/// E03: the restore runbook; that a restore into a younger cluster loses nothing is shown beside the role.
#[tokio::test]
async fn the_restore_runbook_works() {
    let page = Page::open("invoices").await;
    assert!(page.run("runbooks/restore-events.md").await > 6);
}

/// The commands below these words that have none below them, as the program's own help lists them.
fn leaves(shell: &Shell, words: &[&str]) -> Vec<String> {
    let help = shell.ok(&[words, &["--help"]].concat());
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = list
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    match names.is_empty() {
        true => vec![words.join(" ")],
        false => names.iter().flat_map(|name| leaves(shell, &[words, &[name]].concat())).collect(),
    }
}

/// E10: with `--json` every command of the guide and the runbooks prints JSON and nothing else, and there
/// is no command for events, routes or subscriptions that these pages leave out.
#[tokio::test]
async fn every_command_answers_json() {
    let mut seen = vec![];
    for (page, route) in [
        ("guides/events.md", "letters"),
        ("runbooks/disable-routing.md", "invoices"),
        ("runbooks/replay-events.md", "invoices"),
        ("runbooks/restore-events.md", "invoices"),
    ] {
        let answers = Page::open(route).await.answers(page, &["--json"]).await;
        for (line, printed) in answers.into_iter().filter(|(line, _)| !line.starts_with("db psql")) {
            let values: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_str(&printed).into_iter().collect();
            assert!(values.as_ref().is_ok_and(|values| !values.is_empty()), "{line}: {printed}");
            seen.push(line);
        }
    }
    let shell = Shell::open().await;
    let all: Vec<String> =
        ["events", "routes", "subscriptions"].iter().flat_map(|word| leaves(&shell, &[word])).collect();
    assert!(all.len() > 20, "the help was read: {all:?}");
    let untried: Vec<&String> =
        all.iter().filter(|leaf| !seen.iter().any(|line| line.starts_with(leaf.as_str()))).collect();
    // This one needs a receiver, and has a test of its own.
    assert_eq!(untried, ["routes test"]);
}
