//! `towpath doctor`: problems, and the command that fixes each.

use std::process::ExitCode;

use towpath_db::Error;
use towpath_model::doctor::{DiskFact, Finding, Level, diagnose};

use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output};
use crate::session::Session;
use crate::settings::Settings;
use crate::{program, progress};

pub(crate) async fn run(settings: &Settings, output: &Output) -> Exit {
    let findings = progress::patience("checking", examine(settings)).await;
    output.show(&findings, |findings| in_words(findings));
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Fail) => ExitCode::from(EXIT_FAILURES),
        Some(Level::Warn) => ExitCode::from(EXIT_TO_DO),
        _ => ExitCode::SUCCESS,
    })
}

/// A failure to connect is a finding too.
async fn examine(settings: &Settings) -> Vec<Finding> {
    let private = settings.database_url.is_none();
    // Starting a private PostgreSQL only to inspect it would leave an empty one behind.
    if private && !settings.data.join("postgres").exists() {
        return vec![fresh(settings)];
    }
    let session = match Session::open(settings).await {
        Ok(session) => session,
        Err(error) => return vec![unreachable(&error)],
    };
    let findings = match session.database().await {
        Ok(database) => database.inspect(private.then(|| disk(settings)).flatten()).await,
        Err(error) => Err(error),
    };
    session.close().await;
    match findings {
        Ok(mut facts) => {
            if let Some((_, unset)) = &mut facts.superuser {
                *unset = program::roles_unset(settings);
            }
            diagnose(&facts)
        }
        Err(error) => vec![unreachable(&error)],
    }
}

fn fresh(settings: &Settings) -> Finding {
    use towpath_db::cluster::Binaries;
    match Binaries::find(settings.postgres_bin.as_deref(), None) {
        Ok(found) => Finding {
            check: "database",
            level: Level::Note,
            message: format!(
                "nothing is installed in {} yet; PostgreSQL {} in {} will be used",
                settings.data.display(),
                found.major,
                found.dir.display()
            ),
            fix: Some("towpath up".to_owned()),
        },
        Err(error) => unreachable(&error),
    }
}

fn unreachable(error: &Error) -> Finding {
    Finding {
        check: "database",
        level: Level::Fail,
        message: error.to_string(),
        fix: Some("fix what the message names; show the settings in use with: towpath settings".to_owned()),
    }
}

fn disk(settings: &Settings) -> Option<DiskFact> {
    // statvfs follows a link to the real location.
    let path = settings.data.join("postgres");
    let stat = nix::sys::statvfs::statvfs(&path).ok()?;
    let unit = stat.fragment_size();
    Some(DiskFact {
        path: path.display().to_string(),
        free_bytes: stat.blocks_available() * unit,
        total_bytes: stat.blocks() * unit,
    })
}

fn in_words(findings: &[Finding]) -> String {
    let mut lines = vec![];
    for Finding { check, level, message, fix } in findings {
        let mark = match level {
            Level::Ok => "ok  ",
            Level::Note => "note",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        };
        lines.push(format!("{mark}  {check:11}  {message}"));
        if let Some(fix) = fix {
            lines.push(format!("{:19}-> {fix}", ""));
        }
    }
    lines.join("\n")
}
