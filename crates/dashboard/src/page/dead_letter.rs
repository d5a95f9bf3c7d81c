//! `/ui/dead-letters/{id}`: one dead letter; triage, replay.

use askama::Template;
use axum::extract::State;
use towpath_db::Database;
use towpath_db::dead_letter::{DeadLetter, Replayed};
use towpath_model::id::DeadLetterId;

use super::Id;
use super::dead_letters::STATUSES;
use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "dead_letter.html")]
struct Page {
    shell: Shell,
    letter: DeadLetter,
    statuses: [&'static str; 5],
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Id(id): Id<DeadLetterId>) -> Answer {
    let letter = app.database.dead_letter_show(id).await?;
    let title = format!("Dead letter: {}", letter.job_kind);
    let shell = shell.at("/ui/dead-letters", title).live("dead-letters");
    shell::render(&Page { shell, letter, statuses: STATUSES })
}

pub(crate) async fn act(State(app): State<App>, Id(id): Id<DeadLetterId>, action: Action) -> Answer {
    let target = id.to_string();
    match action.text("do") {
        "replay" => {
            let work = async |db: Database, who: String, _| db.dead_letter_replay(id, &who).await;
            let said = |replayed: Replayed| format!("replayed as job {}", replayed.job_id);
            action.perform(&app, ("dlq replay", &target), work, said).await
        }
        "triage" => {
            let status = action.text("status").to_owned();
            let work = async |db: Database, who: String, why: String| {
                db.dead_letter_triage(id, &status, by(&who, &why)).await
            };
            action.perform(&app, ("dlq triage", &target), work, |()| format!("status is now {status}")).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a dead letter"))),
    }
}
