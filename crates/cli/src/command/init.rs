//! `towpath init`: everything between an empty database and the first job.
//!
//! Each step leaves what is already there, so that a second run changes nothing and says so.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use towpath_db::migrate::{self, Mode};
use towpath_db::{Attribution, Database, GateMove};

use super::work::EXECUTOR;
use crate::output::{Exit, Output, done};
use crate::session::Session;
use crate::settings::{Origin, Origins, Settings};
use crate::{progress, streams};

#[derive(Args)]
pub(crate) struct Init {
    /// Settings file to write; an existing one is left as it is
    #[arg(long, value_name = "FILE", default_value = "towpath.toml")]
    file: PathBuf,
    /// Project to register with a first key
    #[arg(long, value_name = "NAME", default_value = "default")]
    project: String,
    /// Leave the gates as they are
    #[arg(long)]
    keep_gates: bool,
    /// Ask nothing; without a terminal nothing is asked anyway
    #[arg(long, short)]
    yes: bool,
    /// Try the migration and roll it back, and say what else would be done
    #[arg(long)]
    dry_run: bool,
}

/// What was done, or what is already there.
#[derive(Serialize)]
struct Done {
    schema_version: i32,
    migrated: bool,
    gates_opened: Vec<String>,
    gates_closed: Vec<String>,
    executor: &'static str,
    kinds_registered: Vec<String>,
    project: String,
    key: String,
    key_created: bool,
    file: PathBuf,
    file_written: bool,
    /// Only if it was made now.
    admin_password: Option<String>,
}

pub(crate) async fn run(init: Init, settings: &Settings, origins: &Origins, output: &Output) -> Exit {
    let mut settings = settings.clone();
    let mut init = init;
    let is_new = !init.file.exists();
    if !init.yes && !output.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        ask(&mut init, &mut settings)?;
    }
    let session = Session::open(&settings).await?;
    let result = match init.dry_run {
        true => rehearse(&init, &session, output).await,
        false => apply(&init, is_new, &settings, origins, &session, output).await,
    };
    session.close().await;
    result
}

/// Asks for what no flag, variable or file has said.
fn ask(init: &mut Init, settings: &mut Settings) -> anyhow::Result<()> {
    if settings.database_url.is_none() {
        let question = format!("PostgreSQL URL (empty: a private one in {})", settings.data.display());
        settings.database_url = Some(answer(&question)?).filter(|url| !url.is_empty());
    }
    if !init.keep_gates {
        init.keep_gates =
            answer("Open every gate, so that jobs, events and processes run? [Y/n]")?.starts_with(['n', 'N']);
    }
    Ok(())
}

fn answer(question: &str) -> anyhow::Result<String> {
    write!(std::io::stderr(), "{question} ")?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        bail!("no answer; give flags instead, see: towpath init --help");
    }
    Ok(line.trim().to_owned())
}

async fn rehearse(init: &Init, session: &Session, output: &Output) -> Exit {
    let report = progress::patience("migrating", migrate::run(&session.url, Mode::DryRun)).await?;
    output.show(&report, |report| {
        let mut lines = vec![super::migrate::report_in_words(report, Mode::DryRun)];
        if !init.keep_gates {
            lines.push("would open every gate that is closed".to_owned());
        }
        lines.push(format!(
            "would register executor {EXECUTOR} and project {}, if they are not",
            init.project
        ));
        lines.push(match init.file.exists() {
            true => format!("{} is there and stays as it is", init.file.display()),
            false => format!("would write {} with a new admin password", init.file.display()),
        });
        lines.join("\n")
    });
    done()
}

async fn apply(
    init: &Init,
    is_new: bool,
    settings: &Settings,
    origins: &Origins,
    session: &Session,
    output: &Output,
) -> Exit {
    let report = progress::patience("migrating", migrate::run(&session.url, Mode::Apply)).await?;
    let database = session.database().await?;
    let gates_opened = match init.keep_gates {
        true => vec![],
        false => open_gates(&database).await?,
    };
    let gates_closed = super::up::closed_gates(&database).await?;
    let kinds = super::work::register(&database, EXECUTOR, &settings.message.transports()?).await?;
    database.close();
    let (key, key_created) = super::project::first_key(&init.project, settings).await?;
    let admin_password = match settings.admin_password {
        None if is_new => Some(towpath_server::project::random_secret().reveal()[..24].to_owned()),
        _ => None,
    };
    if is_new {
        write(&init.file, &content(settings, origins, admin_password.as_deref()))?;
    }
    let done_now = Done {
        schema_version: report.to,
        migrated: report.changed(),
        gates_opened,
        gates_closed,
        executor: EXECUTOR,
        kinds_registered: kinds,
        project: init.project.clone(),
        key,
        key_created,
        file: init.file.clone(),
        file_written: is_new,
        admin_password,
    };
    output.show(&done_now, |done| in_words(done, settings));
    done()
}

async fn open_gates(database: &Database) -> anyhow::Result<Vec<String>> {
    let names = super::up::closed_gates(database).await?;
    for gate in &names {
        let by = Attribution { actor: &super::actor(), reason: "towpath init" };
        database.gate_set(gate, GateMove::Open, by).await?;
    }
    Ok(names)
}

/// What was given by flags and variables, the database, and the password.
fn content(settings: &Settings, origins: &Origins, admin_password: Option<&str>) -> String {
    let mut values: Vec<(&str, String)> = vec![];
    values.extend(settings.database_url.clone().map(|url| ("database_url", url)));
    values.extend(admin_password.map(|password| ("admin_password", password.to_owned())));
    let is_given =
        |origin: &&Origin| origin.is_given() && !["config", "database_url"].contains(&origin.key.as_str());
    let given = origins.0.iter().filter(is_given);
    values.extend(given.filter_map(|origin| Some((origin.key.as_str(), origin.raw.clone()?))));
    // A string of JSON is a string of TOML.
    let line = |(key, value): (&str, String)| format!("{key} = {}\n", serde_json::json!(value));
    let head =
        "# Written by towpath init. Every setting and its meaning: towpath up --help, docs/settings.md.\n";
    std::iter::once(head.to_owned()).chain(values.into_iter().map(line)).collect()
}

/// Readable only by its owner; never over a file that is there.
fn write(file: &Path, content: &str) -> anyhow::Result<()> {
    let written = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}

fn in_words(done: &Done, settings: &Settings) -> String {
    let mut lines = vec![match done.migrated {
        true => format!("schema    migrated to version {}", done.schema_version),
        false => format!("schema    already at version {}", done.schema_version),
    }];
    lines.push(match (done.gates_opened.len(), done.gates_closed.len()) {
        (0, 0) => "gates     already open".to_owned(),
        (0, closed) => format!("gates     {closed} closed; open them with: towpath gate open --all --why …"),
        (opened, _) => format!("gates     opened {opened}: {}", done.gates_opened.join(", ")),
    });
    lines.push(match done.kinds_registered.is_empty() {
        true => format!("executor  {} is already registered", done.executor),
        false => format!("executor  registered {} for {}", done.executor, done.kinds_registered.join(", ")),
    });
    lines.push(match done.key_created {
        true => format!(
            "project   registered {} with key {}; make a token with: towpath project token {0}",
            done.project, done.key
        ),
        false => format!("project   {} is already registered", done.project),
    });
    let file = done.file.display();
    lines.push(match (done.file_written, settings.admin_password.is_some()) {
        (true, _) => format!("settings  wrote {file}, readable only by its owner"),
        (false, true) => format!("settings  {file} is already there and was left as it is"),
        (false, false) => format!(
            "settings  {file} is already there and was left as it is; it has no admin_password, so add one"
        ),
    });
    lines.extend(
        done.admin_password.as_ref().map(|password| format!("password  of the dashboard: {password}")),
    );
    let public = streams::is_public(settings) && settings.tls_cert.is_none();
    lines
        .extend(public.then(|| {
            "note      the server will be public without TLS; see docs/guides/production.md".into()
        }));
    let config = if file.to_string() == "towpath.toml" { String::new() } else { format!("--config {file}") };
    lines.push(format!("next      towpath up {config}").trim_end().to_owned());
    lines.join("\n")
}
