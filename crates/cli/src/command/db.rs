//! `towpath db url | psql | stop`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
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
    /// Stop the private PostgreSQL, and the process that owns it
    Stop,
}

pub(crate) async fn run(db: Db, settings: &Settings, output: &Output) -> Exit {
    match db {
        Db::Url => url(settings, output),
        Db::Psql { arguments } => psql(settings, arguments).await,
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
    let beside =
        Binaries::find(settings.postgres_bin.as_deref(), None).map(|binaries| binaries.dir.join("psql"));
    let program = beside.ok().filter(|psql| psql.exists()).unwrap_or_else(|| "psql".into());
    let mut command = std::process::Command::new(program);
    command.arg(&session.url).args(arguments);
    let status = tokio::task::spawn_blocking(move || command.status()).await?;
    session.close().await;
    let status =
        status.context("cannot start psql; install it (Debian: apt-get install postgresql-client)")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
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
