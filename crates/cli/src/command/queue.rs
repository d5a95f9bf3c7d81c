//! `towpath queue health | backlog | pause | resume | pauses | forget`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use towpath_db::queue::{Backlog, Pause, PauseMove, QueueHealth};
use towpath_db::{Database, Error};
use towpath_model::health::Unhandled;
use towpath_model::nearest::nearest;

use super::config::By;
use crate::command::Actor;
use crate::output::{EXIT_TO_DO, Exit, Output, done, table, table_or};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Queue {
    /// Show counts, gates and heartbeats
    Health {
        /// Exit with code 3 if no live worker handles a due job, an executor is late, a lease has expired, or a gate is
        /// closed
        #[arg(long)]
        check: bool,
    },
    /// Show unfinished jobs by kind and state
    Backlog,
    /// Pause a job kind; running jobs continue, and new jobs can be enqueued
    Pause {
        /// The kind
        kind: String,
        /// Allow a kind that does not exist yet
        #[arg(long)]
        unseen: bool,
        #[command(flatten)]
        by: By,
    },
    /// Resume a paused job kind
    Resume {
        /// The kind
        kind: String,
        #[command(flatten)]
        by: Actor,
    },
    /// Show the history of pauses, newest first
    Pauses {
        /// Only this kind
        kind: Option<String>,
    },
    /// Remove the heartbeat of an executor that is gone
    Forget {
        /// Its name, as `queue health` shows it
        executor: String,
    },
}

pub(crate) async fn run(queue: Queue, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match queue {
            Queue::Health { check } => return health(check, &database, output).await,
            Queue::Backlog => {
                let (backlog, paused) = (database.queue_backlog().await?, database.queue_paused().await?);
                let data = json!({ "backlog": backlog, "paused": paused });
                output.show(&data, |_| backlog_in_words(&backlog, &paused));
            }
            Queue::Pause { kind, unseen, by } => {
                if !unseen {
                    refuse_unseen(&kind, &database).await?;
                }
                let set = database.queue_pause(&kind, by.attribution(&by.actor())).await?;
                output.show(&set, |set| match set.changed {
                    true => format!("{} is paused; resume with: towpath queue resume {0}", set.job_kind),
                    false => format!("{} is already paused", set.job_kind),
                });
            }
            Queue::Pauses { kind } => {
                let history = database.queue_pause_history(kind.as_deref()).await?;
                output.show(&history, |history| pauses_in_words(history));
            }
            Queue::Forget { executor } => forget(&executor, &database, output).await?,
            Queue::Resume { kind, by } => {
                let set = database.queue_resume(&kind, &by.name()).await?;
                let paused = database.queue_paused().await?;
                output.show(&set, |set| match set.changed {
                    true => format!("{} is resumed", set.job_kind),
                    false => match nearest(&kind, paused.iter().map(|pause| pause.job_kind.as_str())) {
                        Some(near) => format!("{kind} was not paused; did you mean {near}?"),
                        None => format!("{kind} was not paused"),
                    },
                });
            }
        }
        done()
    })
    .await
}

fn pauses_in_words(history: &[PauseMove]) -> String {
    let row = |moved: &PauseMove| {
        let reason = moved.reason.clone().unwrap_or_default();
        [
            format!("{:.0}", moved.at),
            moved.action.clone(),
            moved.job_kind.clone(),
            moved.actor.clone(),
            reason,
        ]
    };
    table_or("no job kind has been paused", ["AT", "WHAT", "KIND", "BY", "WHY"], history.iter().map(row))
}

async fn forget(executor: &str, database: &Database, output: &Output) -> anyhow::Result<()> {
    match database.queue_heartbeat_forget(executor).await {
        Err(Error::NotFound(_)) => {
            let known = database.queue_heartbeats().await?;
            match nearest(executor, known.iter().map(|row| row.executor_name.as_str())) {
                Some(near) => bail!("no heartbeat of {executor}; did you mean {near}?"),
                None => bail!("no heartbeat of {executor}; list them with: towpath queue health"),
            }
        }
        other => other?,
    }
    output.show(&json!({ "forgotten": executor }), |_| format!("removed the heartbeat of {executor}"));
    Ok(())
}

/// Pausing a mistyped kind would look like success and pause nothing.
async fn refuse_unseen(kind: &str, database: &Database) -> anyhow::Result<()> {
    let mut known: BTreeSet<String> =
        database.queue_backlog().await?.into_iter().map(|b| b.job_kind).collect();
    known.extend(database.subscription_list(None).await?.into_iter().filter_map(|s| s.job_kind));
    known.extend(database.schedule_list().await?.into_iter().map(|s| s.job_kind));
    if known.contains(kind) {
        return Ok(());
    }
    match nearest(kind, known.iter().map(String::as_str)) {
        Some(near) => {
            bail!("unknown kind {kind}; did you mean {near}? To pause it anyway, add --unseen")
        }
        None => bail!("unknown kind {kind}; to pause it anyway, add --unseen"),
    }
}

async fn health(check: bool, database: &Database, output: &Output) -> Exit {
    let rows = database.queue_health().await?;
    let Some(queue) = rows.first() else { bail!("v_queue_health is empty; run: towpath doctor") };
    let late = |row: &QueueHealth| row.freshness.as_ref().is_some_and(|freshness| freshness != "fresh");
    let unhandled = database.queue_unhandled().await?;
    let bad = rows.iter().any(late)
        || !unhandled.is_empty()
        || queue.leases_expired > 0
        || !(queue.job_substrate_enabled && queue.worker_enabled);
    let data = json!({
        "queue": counts(queue), "executors": database.queue_heartbeats().await?, "unhandled": unhandled,
    });
    output.show(&data, |_| health_in_words(&rows, &unhandled));
    Ok(if check && bad { ExitCode::from(EXIT_TO_DO) } else { ExitCode::SUCCESS })
}

/// The columns of the whole queue, without those of one executor.
fn counts(queue: &QueueHealth) -> Value {
    let of_executor = [
        "executor_name",
        "executor_kind",
        "last_tick_at",
        "last_tick_status",
        "seconds_since_tick",
        "freshness",
        "ticks_total",
        "current_job_id",
        "lease_owner",
    ];
    let mut counts = json!(queue);
    if let Some(columns) = counts.as_object_mut() {
        columns.retain(|name, _| !of_executor.contains(&name.as_str()));
    }
    counts
}

fn health_in_words(rows: &[QueueHealth], unhandled: &[Unhandled]) -> String {
    let Some(queue) = rows.first() else { return String::new() };
    let gate = |open: bool| if open { "open" } else { "closed" };
    let oldest =
        queue.oldest_due_at.map_or_else(|| "no job is due".into(), |at| format!("oldest due since {at:.0}"));
    let mut lines = vec![
        format!(
            "unfinished    {} queued ({} blocked), {} leased, {} in progress, {} waiting to retry; {oldest}",
            queue.jobs_queued,
            queue.jobs_blocked,
            queue.jobs_leased,
            queue.jobs_in_progress,
            queue.jobs_retry_waiting
        ),
        format!(
            "finished      {} succeeded, {} failed attempts, {} dead, {} cancelled",
            queue.jobs_succeeded, queue.attempts_failed, queue.jobs_dead_letter, queue.jobs_cancelled
        ),
        format!("dead letters  {} pending", queue.dead_letters_pending),
        format!(
            "executors     {} of {} subscriptions enabled, {} kinds paused, {} expired leases",
            queue.subscriptions_enabled, queue.subscription_rules, queue.kinds_paused, queue.leases_expired
        ),
        format!(
            "events        {} to route, {} deliveries waiting, {} dead letters, {} of {} broadcast in 24 hours",
            queue.event_slowest_lag,
            queue.deliveries_waiting,
            queue.route_dead_letters_open,
            queue.broadcast_events_24h,
            queue.events_24h
        ),
        format!(
            "gates         jobs {}, workers {}, notify {}, heartbeat {}",
            gate(queue.job_substrate_enabled),
            gate(queue.worker_enabled),
            gate(queue.notify_enabled),
            gate(queue.heartbeat_enabled)
        ),
    ];
    for one in unhandled {
        lines.push(format!("unhandled     {}\n              -> {}", one.in_words(), one.command()));
    }
    let heartbeats: Vec<_> = rows.iter().filter_map(heartbeat).collect();
    if heartbeats.is_empty() {
        lines.push("heartbeats    none yet".into());
        return lines.join("\n");
    }
    format!(
        "{}\n\n{}",
        lines.join("\n"),
        table(["EXECUTOR", "KIND", "LAST SEEN", "FRESHNESS", "STATUS", "JOB"], heartbeats)
    )
}

fn heartbeat(row: &QueueHealth) -> Option<[String; 6]> {
    Some([
        row.executor_name.clone()?,
        row.executor_kind.clone().unwrap_or_default(),
        row.seconds_since_tick.map_or_else(String::new, |seconds| format!("{seconds:.0} s ago")),
        row.freshness.clone().unwrap_or_default(),
        row.last_tick_status.clone().unwrap_or_default(),
        row.current_job_id.map_or_else(String::new, |job| job.to_string()),
    ])
}

fn backlog_in_words(backlog: &[Backlog], paused: &[Pause]) -> String {
    let rows: Vec<_> = backlog
        .iter()
        .map(|row| {
            [
                row.job_kind.clone(),
                row.state.clone(),
                row.row_count.to_string(),
                row.blocked_count.to_string(),
                format!("{:.0}", row.oldest_created_at),
                row.next_scheduled_at.map_or_else(String::new, |at| format!("{at:.0}")),
                row.avg_attempts.to_string(),
            ]
        })
        .collect();
    let mut lines = match rows.is_empty() {
        true => vec!["no unfinished jobs".to_owned()],
        false => {
            vec![table(["KIND", "STATE", "JOBS", "BLOCKED", "OLDEST", "NEXT DUE", "ATTEMPTS"], rows)]
        }
    };
    for pause in paused {
        let Pause { job_kind, paused_by, paused_at, reason } = pause;
        lines.push(format!("{job_kind} was paused by {paused_by} at {paused_at:.0}: {reason}"));
    }
    lines.join("\n")
}
