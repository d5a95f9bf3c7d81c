//! `towpath gate list | open | close`.

use anyhow::bail;
use clap::Subcommand;
use towpath_db::{ConfigEntry, Database, Error, GateMove};
use towpath_model::nearest::nearest;

use super::config::By;
use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Gate {
    /// List every gate, whether it is open, and who changed it last
    List,
    /// Open a gate: enable what it controls
    Open {
        /// The gate, as `gate list` shows it
        gate: String,
        #[command(flatten)]
        by: By,
    },
    /// Close a gate: disable what it controls
    Close {
        /// The gate, as `gate list` shows it
        gate: String,
        #[command(flatten)]
        by: By,
    },
}

pub(crate) async fn run(gate: Gate, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match gate {
            Gate::List => output.show(&gates(&database).await?, |gates| list(gates)),
            Gate::Open { gate, by } => move_gate(&database, &gate, GateMove::Open, &by, output).await?,
            Gate::Close { gate, by } => move_gate(&database, &gate, GateMove::Close, &by, output).await?,
        }
        done()
    })
    .await
}

/// Every gate.
pub(crate) async fn gates(database: &Database) -> Result<Vec<ConfigEntry>, Error> {
    Ok(database.config_list().await?.into_iter().filter(ConfigEntry::is_gate).collect())
}

fn list(gates: &[ConfigEntry]) -> String {
    let rows = gates.iter().map(|gate| {
        let state = if gate.is_open() { "open" } else { "closed" };
        let last = format!("{} at {:.0}: {}", gate.changed_by, gate.changed_at, gate.reason);
        [gate.key.clone(), state.to_owned(), last, gate.description.clone()]
    });
    table(["GATE", "STATE", "LAST CHANGED BY", "WHAT IT ENABLES"], rows)
}

async fn move_gate(
    database: &Database,
    gate: &str,
    to: GateMove,
    by: &By,
    output: &Output,
) -> anyhow::Result<()> {
    let set = match database.gate_set(gate, to, by.attribution(&by.actor())).await {
        Err(Error::NotFound(_)) => {
            let known = gates(database).await?;
            match nearest(gate, known.iter().map(|gate| gate.key.as_str())) {
                Some(near) => bail!("there is no gate {gate}; did you mean {near}?"),
                None => bail!("there is no gate {gate}; see: towpath gate list"),
            }
        }
        other => other?,
    };
    let state = if to == GateMove::Open { "open" } else { "closed" };
    output.show(&set, |set| match set.changed {
        true => format!("{} is now {state}", set.key),
        false => format!("{} is already {state}", set.key),
    });
    Ok(())
}
