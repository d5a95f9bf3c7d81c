//! `towpath metrics`: every metric there is and what it says.

use std::process::ExitCode;

use clap::Args;

use crate::metrics::{self, Described};
use crate::output::{Output, table};

#[derive(Args)]
pub(crate) struct Metrics {
    /// As the page docs/reference/metrics.md
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(wish: &Metrics, output: &Output) -> ExitCode {
    let all = metrics::all();
    output.show(&all, |all| match wish.markdown {
        true => page(all),
        false => {
            let rows: Vec<_> =
                all.iter().map(|it| [it.name.clone(), it.kind.to_owned(), it.help.to_owned()]).collect();
            table(["METRIC", "TYPE", "MEANING"], &rows)
        }
    });
    ExitCode::SUCCESS
}

const INTRO: &str = "# Metrics

Served at `/metrics` in the text form of OpenMetrics; [the guide](../guides/observability.md) says how to collect
them. A histogram `x` is exported as `x_bucket`, `x_sum` and `x_count`. Labels are words from closed lists, or kinds
of jobs and processes: the first hundred have a series each, the rest share the label `other`. Numbers of the whole
system are looked at every five seconds at most, while somebody collects them; without the database they are absent.

This page is written by `towpath metrics --markdown`, and a test compares.
";

fn page(all: &[Described]) -> String {
    let mut page = INTRO.to_owned();
    let mut of = "";
    for it in all {
        if it.of != of {
            of = it.of;
            let mut title: String = of.to_owned();
            title[..1].make_ascii_uppercase();
            page += &format!("\n## {title}\n\n| metric | type | meaning |\n|---|---|---|\n");
        }
        page += &format!("| `{}` | {} | {} |\n", it.name, it.kind, it.help);
    }
    page.trim_end().to_owned()
}
