//! `towpath config list | set | history`.

use clap::Subcommand;
use towpath_db::{Attribution, ConfigChange, ConfigEntry};

use crate::command::Actor;
use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Config {
    /// List every key with its value and default
    List,
    /// Change one key; actor and reason are recorded
    Set {
        /// The key, as `config list` shows it
        key: String,
        /// Its new value
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        by: By,
    },
    /// Show changes with time, actor and reason
    History {
        /// Only this key
        key: Option<String>,
        /// Maximum number of changes to show
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
    },
}

/// Actor and reason of a change.
#[derive(clap::Args)]
pub(crate) struct By {
    /// Reason to record
    #[arg(long, value_name = "REASON", value_parser = crate::input::reason)]
    why: String,
    #[command(flatten)]
    by: Actor,
}

impl By {
    /// The actor to record.
    pub(crate) fn actor(&self) -> String {
        self.by.name()
    }

    pub(crate) fn attribution<'a>(&'a self, actor: &'a str) -> Attribution<'a> {
        Attribution { actor, reason: &self.why }
    }
}

pub(crate) async fn run(config: Config, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match config {
            Config::List => output.show(&database.config_list().await?, |entries| list(entries)),
            Config::History { key, limit } => {
                output
                    .show(&database.config_history(key.as_deref(), limit).await?, |changes| history(changes));
            }
            Config::Set { key, value, by } => {
                let set = database.config_set(&key, &value, by.attribution(&by.actor())).await?;
                output.show(&set, |set| match set.changed {
                    true => format!("{} is now {}", set.key, set.value),
                    false => format!("{} is already {}", set.key, set.value),
                });
            }
        }
        done()
    })
    .await
}

fn list(entries: &[ConfigEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let value = match &entry.value_error {
            Some(problem) => {
                format!("{} (invalid: {problem}; treated as {})", entry.value, entry.effective_value)
            }
            None => entry.value.clone(),
        };
        [entry.key.clone(), value, entry.default_value.clone(), entry.description.clone()]
    });
    table(["KEY", "VALUE", "DEFAULT", "DESCRIPTION"], rows)
}

fn history(changes: &[ConfigChange]) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let rows = changes.iter().map(|change| {
        let moved = format!("{} -> {}", shown(&change.old_value), shown(&change.new_value));
        let at = format!("{:.0}", change.changed_at);
        [at, change.key.clone(), moved, change.changed_by.clone(), change.reason.clone()]
    });
    table(["WHEN", "KEY", "CHANGE", "WHO", "WHY"], rows)
}
