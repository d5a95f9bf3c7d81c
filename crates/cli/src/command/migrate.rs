//! `towpath migrate`.

use std::process::ExitCode;

use clap::Args;
use towpath_db::migrate::{self, Mode, Report, Status};

use crate::output::{EXIT_TO_DO, Exit, Output, done};
use crate::progress;
use crate::session::Session;
use crate::settings::Settings;

#[derive(Args)]
#[command(group = clap::ArgGroup::new("how").multiple(false))]
pub(crate) struct Migrate {
    /// Only report whether a migration is needed: exit code 3 if so
    #[arg(long, group = "how")]
    check: bool,
    /// Run everything in a transaction, then roll it back
    #[arg(long, group = "how")]
    dry_run: bool,
    /// Print the SQL instead of running it
    #[arg(long, group = "how")]
    dump_sql: bool,
    /// Reinstall roles, grants, functions and views even if they look complete
    #[arg(long, group = "how")]
    reinstall: bool,
    /// With --dump-sql: the newest migration the database already has
    #[arg(long, value_name = "VERSION", default_value_t = 0, requires = "dump_sql",
          value_parser = clap::value_parser!(i32).range(0..))]
    from: i32,
}

pub(crate) async fn run(migrate: Migrate, settings: &Settings, output: &Output) -> Exit {
    if migrate.dump_sql {
        output.line(migrate::script(migrate.from).trim_end());
        return done();
    }
    let session = Session::open(settings).await?;
    let result = run_on(&session, &migrate, output).await;
    session.close().await;
    result
}

async fn run_on(session: &Session, migrate: &Migrate, output: &Output) -> Exit {
    if migrate.check {
        let status = session.database().await?.schema_status().await?;
        output.show(&status, status_in_words);
        let current = status.is_current() || status.applied > status.known;
        return Ok(if current { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) });
    }
    let mode = match migrate {
        Migrate { dry_run: true, .. } => Mode::DryRun,
        Migrate { reinstall: true, .. } => Mode::Reinstall,
        _ => Mode::Apply,
    };
    let report = progress::patience("migrating", migrate::run(&session.url, mode)).await?;
    output.show(&report, |report| report_in_words(report, mode));
    done()
}

fn status_in_words(status: &Status) -> String {
    match status {
        status if status.is_current() => format!("the schema is up to date at version {}", status.applied),
        status if status.applied > status.known => {
            format!(
                "the schema is newer than this binary: version {}, this binary knows {}",
                status.applied, status.known
            )
        }
        status if status.pending.is_empty() => {
            format!(
                "the schema is at version {}; functions and views need to be reinstalled; run: towpath migrate",
                status.applied
            )
        }
        status => format!(
            "the schema is at version {}; pending migrations: {}; run: towpath migrate",
            status.applied,
            status.pending.join(", ")
        ),
    }
}

/// What a run did, one line each.
pub(crate) fn report_in_words(report: &Report, mode: Mode) -> String {
    if !report.changed() {
        let kept = report.kept_newer_release.as_ref();
        let kept =
            kept.map(|release| format!("; its functions belong to the newer release {release} and are kept"));
        return format!("the schema is up to date at version {}{}", report.to, kept.unwrap_or_default());
    }
    let done = if mode == Mode::DryRun { "succeeded, rolled back" } else { "done" };
    let mut lines: Vec<String> = report.migrations.iter().map(|name| format!("{name}: {done}")).collect();
    if report.reinstalled {
        lines.push(format!("functions and views: {done}"));
    }
    lines.extend(report.retired.iter().map(|function| format!("dropped {function}")));
    lines.push(format!("schema version {} -> {}", report.from, report.to));
    lines.join("\n")
}
