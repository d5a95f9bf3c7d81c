//! The master gate of routing, closed and opened by an operator.

use serde_json::json;

use crate::jobs_cli::Shell;

/// E10: with the master gate closed no cursor moves and replays are refused, and nothing is lost.
#[tokio::test]
async fn the_master_gate_holds_everything() {
    let shell = Shell::open().await;
    shell.ok(&["routes", "add", "invoices", "--to-job", "invoice", "--domain", "orders"]);
    shell.ok(&["routes", "enable", "invoices", "--why", "a test"]);
    shell.ok(&["gate", "close", "event.routing.enabled", "--why", "a test"]);
    let event = shell.emit("orders", json!({})).await;
    assert!(shell.database.route_worker_run("default", 100, None).await.is_err());
    assert!(shell.fails(&["events", "replay", "invoices", &event]).contains("event.routing.enabled"));
    let health = shell.json(&["events", "health"]);
    assert_eq!((&health["routing_enabled"], &health["slowest_lag"]), (&json!(false), &json!(1)));
    shell.ok(&["events", "verify"]);
    shell.ok(&["gate", "open", "event.routing.enabled", "--why", "a test"]);
    shell.route().await;
    assert_eq!(shell.db.text("select count(*) from towpath.job_queue").await, "1");
}
