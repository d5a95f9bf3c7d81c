//! `towpath subscriptions …`.

use serde_json::json;

use crate::jobs_cli::{Shell, says};

/// R01, R02: subscriptions are added, muted, explained and removed.
#[tokio::test]
async fn subscriptions_are_kept() {
    let shell = Shell::open().await;
    says(&shell.ok(&["subscriptions", "list"]), &["every event is a broadcast"]);
    let add = ["subscriptions", "add", "role:a", "orders", "--filter", r#"{"paid": true}"#];
    let made = shell.json(&add);
    let id = made["subscription_id"].as_str().unwrap();
    says(&shell.ok(&add), &["role:a is subscribed to orders", "unchanged"]);
    says(&shell.ok(&["subscriptions", "list", "role:a"]), &[r#"{"paid":true}"#]);
    let explain = |payload| {
        let asked =
            ["subscriptions", "explain", "--domain", "orders", "--type", "created", "--payload", payload];
        shell.json(&asked)
    };
    assert_eq!(explain(r#"{"paid": true, "n": 1}"#)["recipients"][0]["recipient_ref"], "role:a");
    assert_eq!(explain(r#"{"paid": false}"#)["broadcast"], true);
    says(&shell.ok(&["subscriptions", "mute", id]), &["unmute"]);
    assert_eq!(explain(r#"{"paid": true}"#)["suppressed"][0]["recipient_ref"], "role:a");
    says(&shell.ok(&["subscriptions", "unmute", id]), &["unmuted subscription"]);
    shell.ok(&["subscriptions", "remove", id]);
    says(&shell.fails(&["subscriptions", "remove", id]), &["subscriptions list"]);
    says(&shell.fails(&["subscriptions", "add", "somebody", "orders"]), &["role:, agency:, user: or agent:"]);
    says(&shell.fails(&["subscriptions", "add", "role:a", "orders", "--filter", "7"]), &["JSON object"]);
}

/// R03: events without a subscription are counted by domain and type.
#[tokio::test]
async fn broadcasts_are_shown() {
    let shell = Shell::open().await;
    says(&shell.ok(&["subscriptions", "broadcasts"]), &["had a subscriber"]);
    shell.emit("orders", json!({})).await;
    shell.database.event_counter_fold(100).await.unwrap();
    assert_eq!(shell.json(&["subscriptions", "broadcasts"])[0]["broadcast_events_24h"], 1);
    says(&shell.ok(&["subscriptions", "broadcasts"]), &["orders", "100"]);
}

/// R05: readers are registered, listed and removed.
#[tokio::test]
async fn readers_are_registered() {
    let shell = Shell::open().await;
    says(&shell.ok(&["subscriptions", "reader", "list"]), &["no readers"]);
    says(
        &shell.ok(&["subscriptions", "reader", "add", "agent:a", "--executor", "w", "--login", "reports"]),
        &["login reports and tokens of w"],
    );
    says(&shell.ok(&["subscriptions", "reader", "list"]), &["agent:a", "reports"]);
    says(
        &shell.fails(&["subscriptions", "reader", "add", "agent:b", "--executor", "nobody"]),
        &["executor list"],
    );
    shell.ok(&["subscriptions", "reader", "remove", "agent:a"]);
    says(&shell.fails(&["subscriptions", "reader", "remove", "agent:a"]), &["reader list"]);
}
