//! `towpath executor list`.

use serde::Serialize;
use towpath_db::Database;
use towpath_db::queue::ExecutorHeartbeat;
use towpath_db::subscription::{Consumer, Subscription};

use crate::output::{Output, table_or};

/// Everything known about executors.
#[derive(Serialize)]
struct Executors {
    consumers: Vec<Consumer>,
    subscriptions: Vec<Subscription>,
    heartbeats: Vec<ExecutorHeartbeat>,
}

pub(crate) async fn run(name: Option<&str>, database: &Database, output: &Output) -> anyhow::Result<()> {
    let mut executors = Executors {
        consumers: database.consumer_list().await?,
        subscriptions: database.subscription_list(name).await?,
        heartbeats: database.queue_heartbeats().await?,
    };
    if let Some(name) = name {
        executors.consumers.retain(|row| row.executor_id == name);
        executors.heartbeats.retain(|row| row.executor_name == name);
        if executors.consumers.is_empty() && executors.subscriptions.is_empty() {
            return Err(super::unknown(name, database).await?);
        }
    }
    output.show(&executors, in_words);
    Ok(())
}

fn in_words(executors: &Executors) -> String {
    let Executors { consumers, subscriptions, heartbeats } = executors;
    let mut rows: Vec<[String; 8]> = subscriptions.iter().map(|row| subscribed(row, heartbeats)).collect();
    let idle = consumers.iter().filter(|c| !subscriptions.iter().any(|s| s.executor_id == c.executor_id));
    rows.extend(idle.map(|row| {
        let none = || "-".to_owned();
        let seen = seen(&row.executor_id, heartbeats);
        [
            row.executor_id.clone(),
            row.executor.clone(),
            "nothing".into(),
            none(),
            none(),
            none(),
            none(),
            seen,
        ]
    }));
    rows.sort();
    let head = ["EXECUTOR", "KIND", "CLAIMS", "DOMAIN", "PRIORITY", "PARALLEL", "STATE", "LAST SEEN"];
    table_or("no executors; register one with: towpath executor add", head, rows)
}

fn subscribed(row: &Subscription, heartbeats: &[ExecutorHeartbeat]) -> [String; 8] {
    let parallel = match (row.max_parallel, row.held) {
        (Some(max), Some(held)) => format!("{held} of {max}"),
        _ => "unlimited".into(),
    };
    [
        row.executor_id.clone(),
        row.executor_kind.clone(),
        row.job_kind.clone().unwrap_or_else(|| "any kind".into()),
        row.event_domain.clone().unwrap_or_else(|| "any".into()),
        format!("{} and up", row.priority_floor),
        parallel,
        if row.enabled { "enabled" } else { "disabled" }.into(),
        seen(&row.executor_id, heartbeats),
    ]
}

/// A heartbeat names the executor, or one of its processes.
fn seen(executor_id: &str, heartbeats: &[ExecutorHeartbeat]) -> String {
    let of_it = heartbeats.iter().filter(|row| {
        let rest = row.executor_name.strip_prefix(executor_id);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@', ':']))
    });
    let newest = of_it.max_by_key(|row| row.last_tick_at);
    newest.map_or_else(
        || "never".into(),
        |row| format!("{:.0} s ago, {}", row.seconds_since_tick, row.freshness),
    )
}
