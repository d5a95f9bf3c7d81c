//! `/ui/gates`: gates and config keys, and the history of changes.

use askama::Template;
use axum::extract::State;
use towpath_db::{ConfigChange, ConfigEntry, ConfigSet, Database, GateMove};

use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "gates.html")]
struct Page {
    shell: Shell,
    gates: Vec<ConfigEntry>,
    numbers: Vec<ConfigEntry>,
    changes: Vec<ConfigChange>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>) -> Answer {
    let (entries, changes) =
        tokio::try_join!(app.database.config_list(), app.database.config_history(None, 50))?;
    let (gates, numbers) = entries.into_iter().partition(ConfigEntry::is_gate);
    let shell = shell.at("/ui/gates", "Gates and config").live("gates");
    shell::render(&Page { shell, gates, numbers, changes })
}

pub(crate) async fn act(State(app): State<App>, action: Action) -> Answer {
    let key = action.text("target").to_owned();
    if action.text("reason").is_empty() {
        return Err(Fault::Invalid("a reason is required; it is recorded with the change".into()));
    }
    let said = |set: ConfigSet| {
        if set.changed { format!("{} is now {}", set.key, set.value) } else { "no change".into() }
    };
    match action.text("do") {
        word @ ("open" | "close") => {
            let to = if word == "open" { GateMove::Open } else { GateMove::Close };
            let work =
                async |db: Database, who: String, why: String| db.gate_set(&key, to, by(&who, &why)).await;
            action.perform(&app, (&format!("gate {word}"), &key), work, said).await
        }
        "set" => {
            let value = action.text("value").to_owned();
            let work = async |db: Database, who: String, why: String| {
                db.config_set(&key, &value, by(&who, &why)).await
            };
            action.perform(&app, ("config set", &key), work, said).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a config key"))),
    }
}
