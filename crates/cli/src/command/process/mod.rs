//! `towpath process new | kind | start | signal | list | show | watch | cancel | resolve | errors`.

mod errors;
mod kind;
mod list;
mod new;
mod show;
mod watch;

pub(crate) use show::detail;
pub(crate) use watch::follow;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use towpath_db::process::ProcessMoved;
use towpath_db::{Database, Error};
use towpath_model::id::ProcessId;

use super::config::By;
use crate::output::{Exit, Output, done};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Process {
    New(new::New),
    /// Register a process kind, or change it; what is not given stays
    Kind(kind::Kind),
    /// Start a process
    Start(kind::Start),
    /// Signal a process
    Signal(kind::SendSignal),
    /// List processes, newest first
    List(list::List),
    /// Show one process with its facts as a timeline
    Show {
        /// Its id
        process: ProcessId,
    },
    /// Watch a process until it has finished
    Watch(watch::Watch),
    /// Cancel an unfinished process; what it has already sent stays sent
    Cancel {
        /// Its id
        process: ProcessId,
        #[command(flatten)]
        by: By,
    },
    /// Decide about a held process: retry, succeeded, gave-up or cancelled
    Resolve {
        /// Its id
        process: ProcessId,
        /// The outcome, or what to do next
        #[arg(value_enum)]
        resolution: Resolution,
        #[command(flatten)]
        by: By,
    },
    /// List errors of tasks, handlers and supervisors, newest first
    Errors(errors::Errors),
}

/// An operator's decision about a held process.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Resolution {
    /// The last attempt took effect
    Succeeded,
    /// The last attempt did not take effect: retry
    Retry,
    /// Give up
    GaveUp,
    /// It is not wanted any more
    Cancelled,
}

impl Resolution {
    fn name(self) -> &'static str {
        match self {
            Resolution::Succeeded => "succeeded",
            Resolution::Retry => "retry",
            Resolution::GaveUp => "gave_up",
            Resolution::Cancelled => "cancelled",
        }
    }
}

pub(crate) async fn run(process: Process, settings: &Settings, output: &Output) -> Exit {
    if let Process::New(new) = process {
        return new::run(&new, output);
    }
    super::with_database(settings, async |database| match process {
        Process::New(_) => unreachable!("it needs no database"),
        Process::Kind(kind) => kind::put(kind, &database, output).await,
        Process::Start(start) => kind::start(start, &database, output).await,
        Process::Signal(signal) => kind::signal(signal, &database, output).await,
        Process::List(list) => list::run(list, &database, output).await,
        Process::Show { process } => show::run(process, &database, output).await,
        Process::Watch(watch) => watch::run(watch, &database, output).await,
        Process::Errors(errors) => errors::run(errors, &database, output).await,
        Process::Cancel { process, by } => {
            let moved = database.process_cancel(process, by.attribution(&by.actor())).await;
            moved_to(process, moved, &database, output).await
        }
        Process::Resolve { process, resolution, by } => {
            let actor = by.actor();
            let moved = database.process_resolve(process, resolution.name(), by.attribution(&actor)).await;
            moved_to(process, moved, &database, output).await
        }
    })
    .await
}

async fn moved_to(
    process_id: ProcessId,
    moved: Result<ProcessMoved, Error>,
    database: &Database,
    output: &Output,
) -> Exit {
    let moved = match moved {
        Err(Error::Conflict(_)) => {
            let process = database.process_show(process_id).await?.process;
            return Err(anyhow!(
                "process {process_id} is {}, which does not allow this; see: towpath process show {process_id}",
                process.state
            ));
        }
        moved => moved?,
    };
    output.show(&moved, |moved| format!("process {} is {}", moved.process_id, moved.state));
    done()
}
