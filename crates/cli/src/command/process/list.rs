//! `towpath process list`.

use clap::Args;
use towpath_db::Database;
use towpath_db::process::{Process, ProcessFilter, ProcessPage};
use towpath_model::id::ProcessId;

use crate::output::{Exit, Output, done, paged, table_or};

#[derive(Args)]
pub(crate) struct List {
    /// Only in this state: open, held, succeeded, gave_up, cancelled, invalid
    #[arg(long)]
    state: Option<String>,
    /// Only of this kind, as in comms.send_email
    #[arg(long)]
    kind: Option<String>,
    /// Only with this reference
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Maximum number to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
    limit: i32,
    /// Continue after this one, the last of the previous page
    #[arg(long, value_name = "PROCESS")]
    after: Option<ProcessId>,
}

pub(crate) async fn run(list: List, database: &Database, output: &Output) -> Exit {
    let filter = ProcessFilter { process_kind: list.kind, state: list.state, reference: list.reference };
    let page = database.process_list(&filter, list.limit, list.after).await?;
    output.show(&page, in_words);
    done()
}

fn in_words(page: &ProcessPage) -> String {
    let head = ["PROCESS", "KIND", "REF", "STATE", "STARTED", "NEXT CHECK OR END"];
    paged(table_or("no processes", head, page.processes.iter().map(row)), page.cursor)
}

fn row(process: &Process) -> [String; 6] {
    let next = process.finished_at.or(process.next_check_at);
    [
        process.process_id.to_string(),
        process.process_kind.clone(),
        process.reference.clone(),
        process.state.clone(),
        format!("{:.0}", process.started_at),
        next.map_or_else(String::new, |at| format!("{at:.0}")),
    ]
}
