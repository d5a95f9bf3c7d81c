//! `towpath events emit | tail | show | explain | replay | verify | health | grant`.

mod emit;
mod explain;
mod grant;
mod replay;
mod show;
mod tail;
mod verify;

pub(crate) use explain::{Thought, recipients_in_words};

use std::process::ExitCode;

use clap::Subcommand;
use towpath_model::id::EventId;

use crate::output::Output;
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Events {
    /// Record an event, in a transaction of its own; programs emit inside theirs
    Emit(emit::Emit),
    /// The newest events, oldest of them first
    Tail(tail::Tail),
    /// One event whole: who hears it, what was decided, what was delivered
    Show {
        /// Its id
        event: EventId,
    },
    /// Say who would hear an event and what every route would do with it; nothing is written
    Explain(explain::Explain),
    /// Send stored events through a route again, or for the first time
    Replay(replay::Replay),
    /// Check that nothing is lost, doubled or stuck; code 4 if anything is
    Verify {
        /// Everything that is stored, not only the newest 100,000 events
        #[arg(long)]
        full: bool,
    },
    /// How far numbering, routing and delivering are, on one page
    Health,
    /// What producers may emit
    #[command(subcommand)]
    Grant(grant::Grant),
}

pub(crate) async fn run(events: Events, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    super::with_database(settings, async |database| match events {
        Events::Emit(emit) => emit::run(emit, &database, output).await,
        Events::Tail(tail) => tail::run(tail, &database, output).await,
        Events::Show { event } => show::run(event, &database, output).await,
        Events::Explain(explain) => explain::run(explain, &database, output).await,
        Events::Replay(replay) => replay::run(replay, &database, output).await,
        Events::Verify { full } => verify::run(full, &database, output).await,
        Events::Health => verify::health(&database, output).await,
        Events::Grant(grant) => grant::run(grant, &database, output).await,
    })
    .await
}
