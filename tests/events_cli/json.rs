//! Every command for events with `--json`: nothing else is printed, and none is forgotten here.

use serde_json::{Value, json};

use crate::jobs_cli::Shell;

/// One line for every command, in an order that works. Words in capitals stand for ids.
const LINES: [&str; 38] = [
    "events emit orders paid --subject-ref 7",
    "events tail --after 0",
    "events show EVENT",
    "events explain --domain orders --type paid",
    "events health",
    "events verify",
    "events replay letters EVENT",
    "events grant add my_app --domain orders",
    "events grant list",
    "events grant revoke GRANT",
    "subscriptions add role:billing orders",
    "subscriptions list",
    "subscriptions explain --domain orders --type paid",
    "subscriptions mute SUBSCRIPTION",
    "subscriptions unmute SUBSCRIPTION",
    "subscriptions remove SUBSCRIPTION",
    "subscriptions broadcasts",
    "subscriptions reader add agent:eu --executor w",
    "subscriptions reader list",
    "subscriptions reader remove agent:eu",
    "routes add shop --to-webhook https://shop.example.com/events --domain orders",
    "routes add live --to-stream orders --domain orders",
    "routes list",
    "routes show shop",
    "routes dry-run shop --why test",
    "routes enable shop --why test",
    "routes disable shop --why test",
    "routes rotate shop --overlap 60",
    "routes close-circuit shop --why test",
    "routes attempts letters",
    "routes worker default --slices 2",
    "routes worker",
    "routes dlq list",
    "routes dlq show LETTER",
    "routes dlq replay LETTER",
    "routes dlq resolve OTHER --why test",
    "routes retire shop --why test",
    "routes retire live --why test",
];

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

/// An event, two dead letters whose cause is gone, a subscription and a grant: what the lines name.
async fn named(shell: &Shell) -> Vec<(&'static str, String)> {
    let add = ["routes", "add", "letters", "--to-job", "invoice", "--domain", "orders"];
    shell.ok(&[&add[..], &["--from-payload", "priority=urgency"]].concat());
    shell.ok(&["routes", "enable", "letters", "--why", "a test"]);
    for _ in 0..2 {
        shell.emit("orders", json!({"urgency": "abc"})).await;
    }
    shell.route().await;
    shell.ok(&[&add[..], &["--replace"]].concat());
    let letters = shell.json(&["routes", "dlq", "list"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let letter = |n: usize| text(&letters["dead_letters"][n]["dead_letter_id"]);
    let event = shell.emit("orders", json!({"order_id": 7})).await;
    shell.route().await;
    let subscription = shell.json(&["subscriptions", "add", "user:me", "mail"]);
    let grant = shell.json(&["events", "grant", "add", "another_app", "--domain", "mail"]);
    vec![
        ("EVENT", event),
        ("LETTER", letter(0)),
        ("OTHER", letter(1)),
        ("SUBSCRIPTION", text(&subscription["subscription_id"])),
        ("GRANT", text(&grant["grant_id"])),
    ]
}

/// E10, O04: with `--json` every command for events, routes and subscriptions prints JSON and nothing else.
#[tokio::test]
async fn every_command_answers_json() {
    let shell = Shell::open().await;
    let names = named(&shell).await;
    for line in LINES {
        let words = line.split(' ').map(|word| {
            let known = names.iter().find(|(name, _)| *name == word);
            known.map_or(word, |(_, id)| id.as_str())
        });
        let words: Vec<&str> = ["--json"].into_iter().chain(words).collect();
        let printed = shell.ok(&words);
        let values: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(&printed).into_iter().collect();
        assert!(values.as_ref().is_ok_and(|values| !values.is_empty()), "{line}: {printed}");
    }
    let all: Vec<String> =
        ["events", "routes", "subscriptions"].iter().flat_map(|word| leaves(&shell, &[word])).collect();
    assert!(all.len() > 20, "the help was read: {all:?}");
    let untried: Vec<&String> =
        all.iter().filter(|leaf| !LINES.iter().any(|line| line.starts_with(leaf.as_str()))).collect();
    // This one needs a receiver, and has a test of its own.
    assert_eq!(untried, ["routes test"]);
}
