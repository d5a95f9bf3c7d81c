//! `/ui/executors`: heartbeats, subscriptions, paused job kinds.

use askama::Template;
use axum::extract::State;
use towpath_db::Database;
use towpath_db::queue::{ExecutorHeartbeat, Pause, PauseSet};
use towpath_db::subscription::Subscription;

use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "executors.html")]
struct Page {
    shell: Shell,
    heartbeats: Vec<ExecutorHeartbeat>,
    subscriptions: Vec<Subscription>,
    paused: Vec<Pause>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>) -> Answer {
    let (heartbeats, subscriptions, paused) = tokio::try_join!(
        app.database.queue_heartbeats(),
        app.database.subscription_list(None),
        app.database.queue_paused(),
    )?;
    let shell = shell.at("/ui/executors", "Executors").live("executors jobs");
    shell::render(&Page { shell, heartbeats, subscriptions, paused })
}

pub(crate) async fn act(State(app): State<App>, action: Action) -> Answer {
    let target = action.text("target").to_owned();
    match action.text("do") {
        "pause" => {
            let work =
                async |db: Database, who: String, why: String| db.queue_pause(&target, by(&who, &why)).await;
            action.perform(&app, ("queue pause", &target), work, |set| notice(&set, "paused")).await
        }
        "resume" => {
            let work = async |db: Database, who: String, _| db.queue_resume(&target, &who).await;
            action.perform(&app, ("queue resume", &target), work, |set| notice(&set, "resumed")).await
        }
        "forget" => {
            let work = async |db: Database, _, _| db.queue_heartbeat_forget(&target).await;
            action
                .perform(&app, ("queue forget", &target), work, |()| {
                    format!("removed the heartbeat of {target}")
                })
                .await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for an executor"))),
    }
}

fn notice(set: &PauseSet, state: &str) -> String {
    if set.changed {
        format!("{} is {state}", set.job_kind)
    } else {
        format!("{} is already {state}", set.job_kind)
    }
}
