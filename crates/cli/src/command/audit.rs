//! `towpath audit`: actions taken on the dashboard, newest first.

use clap::Subcommand;
use towpath_db::audit::Audited;

use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Audit {
    /// List dashboard actions, newest first
    List {
        /// Maximum number to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
        /// Continue after this one, the last of the previous page
        #[arg(long, value_name = "NUMBER")]
        before: Option<i64>,
    },
}

pub(crate) async fn run(audit: Audit, settings: &Settings, output: &Output) -> Exit {
    let Audit::List { limit, before } = audit;
    super::with_database(settings, async |database| {
        output.show(&database.audit_list(limit, before).await?, |rows| in_words(rows));
        done()
    })
    .await
}

fn in_words(rows: &[Audited]) -> String {
    let Some(last) = rows.last() else { return "no dashboard actions yet".into() };
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
    let lines = rows.iter().map(line);
    let actions = table(["WHEN", "WHO", "WHAT", "ON", "OUTCOME", "WHY"], lines);
    format!("{actions}\nolder: --before {}", last.audit_id)
}
