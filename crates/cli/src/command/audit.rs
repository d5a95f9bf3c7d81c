//! `towpath audit`: what people did on the dashboard, newest first.

use std::process::ExitCode;

use clap::Subcommand;
use towpath_db::audit::Audited;

use crate::output::{Output, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Audit {
    /// What people did on the dashboard, newest first
    List {
        /// At most this many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
        /// Go on where the page before ended
        #[arg(long, value_name = "NUMBER")]
        before: Option<i64>,
    },
}

pub(crate) async fn run(audit: Audit, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    let Audit::List { limit, before } = audit;
    super::with_database(settings, async |database| {
        output.show(&database.audit_list(limit, before).await?, |rows| in_words(rows));
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn in_words(rows: &[Audited]) -> String {
    let Some(last) = rows.last() else { return "nothing was done on the dashboard yet".into() };
    let line = |row: &Audited| {
        [
            format!("{:.0}", row.at),
            row.actor.clone(),
            row.action.clone(),
            row.target.clone(),
            row.outcome.clone(),
            row.detail.clone().unwrap_or_default(),
        ]
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let actions = table(["WHEN", "WHO", "WHAT", "ON", "OUTCOME", "WHY"], &lines);
    format!("{actions}\nolder ones: --before {}", last.audit_id)
}
