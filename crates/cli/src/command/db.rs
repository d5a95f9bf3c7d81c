//! `towpath db url | psql | dump | stop`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::json;
use towpath_db::cluster::{self, Binaries};

use crate::output::{Exit, Output, done};
use crate::progress;
use crate::session::{Session, cluster_config};
use crate::settings::Settings;
use crate::shutdown;

#[derive(Subcommand)]
pub(crate) enum Db {
    /// Print the database URL
    Url,
    /// Open psql on the database
    Psql {
        /// Arguments for psql, such as -c 'select 1'
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Back up the database with pg_dump, while everything runs
    Dump {
        /// File to write, for pg_restore
        file: PathBuf,
        /// More arguments for pg_dump, such as --compress 9
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Stop the private PostgreSQL, and the process that owns it
    Stop,
}

pub(crate) async fn run(db: Db, settings: &Settings, output: &Output) -> Exit {
    match db {
        Db::Url => url(settings, output),
        Db::Psql { arguments } => psql(settings, arguments).await,
        Db::Dump { file, arguments } => dump(settings, file, arguments, output).await,
        Db::Stop => stop(settings, output).await,
    }
}

fn url(settings: &Settings, output: &Output) -> Exit {
    let url = match &settings.database_url {
        Some(url) => url.clone(),
        None => cluster::owner(&settings.data).and_then(|(_, url)| url).with_context(|| {
            format!(
                "no private PostgreSQL is running in {}; start it with: towpath up",
                settings.data.display()
            )
        })?,
    };
    output.show(&json!({ "url": url }), |_| url.clone());
    done()
}

async fn psql(settings: &Settings, arguments: Vec<OsString>) -> Exit {
    let session = Session::open(settings).await?;
    // Ctrl-C in psql cancels a query. It must not end this process, which may own the server.
    let _ignored = shutdown::signals()?;
    let mut command = client_program(settings, "psql");
    command.arg(&session.url).args(arguments);
    let status = tokio::task::spawn_blocking(move || command.status()).await?;
    session.close().await;
    let status = status.context(NO_CLIENT)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

const NO_CLIENT: &str =
    "cannot start it; install PostgreSQL's programs (Debian: apt-get install postgresql-client)";

/// One of PostgreSQL's programs: that of the server we would start, or the first on the path.
fn client_program(settings: &Settings, name: &str) -> Command {
    let beside =
        Binaries::find(settings.postgres_bin.as_deref(), None).map(|binaries| binaries.dir.join(name));
    Command::new(beside.ok().filter(|program| program.exists()).unwrap_or_else(|| name.into()))
}

async fn dump(settings: &Settings, file: PathBuf, arguments: Vec<OsString>, output: &Output) -> Exit {
    let session = Session::open(settings).await?;
    let held =
        progress::patience("waiting for maintenance", towpath_db::dump::hold_tables(&session.url)).await?;
    let mut command = client_program(settings, "pg_dump");
    command.args(["--format", "custom", "--file"]).arg(&file).args(arguments).arg(&session.url);
    let running = tokio::task::spawn_blocking(move || command.status());
    let status = progress::patience("dumping", running).await?;
    drop(held);
    session.close().await;
    if !status.context(NO_CLIENT)?.success() {
        bail!("pg_dump failed; {} is no backup", file.display());
    }
    let bytes = std::fs::metadata(&file).map_or(0, |found| found.len());
    output.show(&json!({ "file": file, "bytes": bytes }), |_| format!("{bytes} bytes in {}", file.display()));
    done()
}

async fn stop(settings: &Settings, output: &Output) -> Exit {
    let stopped = match settings.data.exists() {
        true => progress::patience("stopping", cluster::stop(&cluster_config(settings))).await?,
        false => None,
    };
    output.show(&json!({ "stopped": stopped }), |_| match &stopped {
        Some(what) => format!("stopped {what}"),
        None => format!("nothing is running in {}", settings.data.display()),
    });
    done()
}
