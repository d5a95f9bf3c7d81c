//! `towpath fault list | retry | drop`.

use clap::Subcommand;
use serde_json::json;
use towpath_db::loop_fault::LoopFault;

use super::config::By;
use super::job::first_line;
use crate::command::Actor;
use crate::output::{Exit, Output, done, table_or};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Fault {
    /// List items that loops set aside, latest failure first
    List {
        /// Only of this loop
        #[arg(long = "loop", value_name = "LOOP")]
        name: Option<String>,
        /// Maximum number to show
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
    },
    /// Retry an item in the loop's next pass, even if it was dropped
    Retry {
        /// The loop, as `fault list` shows it
        #[arg(value_name = "LOOP")]
        name: String,
        /// The item, as `fault list` shows it
        item: String,
        #[command(flatten)]
        by: Actor,
    },
    /// Never retry an item
    Drop {
        /// The loop, as `fault list` shows it
        #[arg(value_name = "LOOP")]
        name: String,
        /// The item, as `fault list` shows it
        item: String,
        #[command(flatten)]
        by: By,
    },
}

pub(crate) async fn run(fault: Fault, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match fault {
            Fault::List { name, limit } => {
                output.show(&database.loop_fault_list(name.as_deref(), limit).await?, |faults| list(faults));
            }
            Fault::Retry { name, item, by } => {
                database.loop_fault_retry(&name, &item, &by.name()).await?;
                let answer = json!({ "loop": name, "item": item, "state": "waiting" });
                output.show(&answer, |_| format!("{name} will retry {item} in its next pass"));
            }
            Fault::Drop { name, item, by } => {
                database.loop_fault_drop(&name, &item, by.attribution(&by.actor())).await?;
                let answer = json!({ "loop": name, "item": item, "state": "dropped" });
                output.show(&answer, |_| format!("{name} will not retry {item}"));
            }
        }
        done()
    })
    .await
}

fn list(faults: &[LoopFault]) -> String {
    let row = |fault: &LoopFault| {
        let next = match (fault.state.as_str(), &fault.changed_by, &fault.reason) {
            ("dropped", Some(by), Some(why)) => format!("never: {by}: {}", first_line(why)),
            _ => format!("{:.0}", fault.next_try_at),
        };
        [
            fault.name.clone(),
            fault.item.clone(),
            fault.times.to_string(),
            format!("{:.0}", fault.last_at),
            next,
            if fault.behind.is_empty() { String::new() } else { fault.behind.len().to_string() },
            first_line(&fault.error),
        ]
    };
    let rows = faults.iter().map(row);
    let head = ["LOOP", "ITEM", "TRIES", "LAST", "NEXT RETRY", "WAIT BEHIND IT", "ERROR"];
    table_or("no faults: no loop has set anything aside", head, rows)
}
