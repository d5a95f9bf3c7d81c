//! `towpath gate list | open | close`.

use anyhow::bail;
use clap::{Args, Subcommand};
use towpath_db::{ConfigEntry, Database, Error, GateMove};
use towpath_model::nearest::nearest;

use super::config::By;
use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Gate {
    /// List every gate, whether it is open, and who changed it last
    List,
    /// Open gates: enable what they control
    Open {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        by: By,
    },
    /// Close gates: disable what they control
    Close {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        by: By,
    },
}

/// The gates to move.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The gates, as `gate list` shows them
    #[arg(value_name = "GATE")]
    gates: Vec<String>,
    /// Every gate
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(gate: Gate, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match gate {
            Gate::List => output.show(&gates(&database).await?, |gates| list(gates)),
            Gate::Open { which, by } => move_gates(&database, which, GateMove::Open, &by, output).await?,
            Gate::Close { which, by } => move_gates(&database, which, GateMove::Close, &by, output).await?,
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

/// Names are checked first, so that a misspelt one changes nothing.
async fn move_gates(
    database: &Database,
    which: Which,
    to: GateMove,
    by: &By,
    output: &Output,
) -> anyhow::Result<()> {
    let known: Vec<String> = gates(database).await?.into_iter().map(|gate| gate.key).collect();
    if let Some(gate) = which.gates.iter().find(|gate| !known.contains(gate)) {
        match like(gate, &known) {
            Some(near) => bail!("there is no gate {gate}; did you mean {near}?"),
            None => bail!("there is no gate {gate}; see: towpath gate list"),
        }
    }
    let named = if which.all { known } else { which.gates };
    let mut moved = vec![];
    for gate in &named {
        moved.push(database.gate_set(gate, to, by.attribution(&by.actor())).await?);
    }
    let state = if to == GateMove::Open { "open" } else { "closed" };
    output.show(&moved, |moved| {
        let lines = moved.iter().map(|set| match set.changed {
            true => format!("{} is now {state}", set.key),
            false => format!("{} is already {state}", set.key),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// The gate that was meant: the nearest in spelling, or the only one that contains the word.
fn like<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    nearest(word, known.iter().map(String::as_str)).or_else(|| {
        let mut containing = known.iter().filter(|gate| gate.split('.').any(|part| part == word));
        containing.next().filter(|_| containing.next().is_none()).map(String::as_str)
    })
}
