//! `towpath events emit | tail | show | explain | replay | verify | health | grant`.

mod emit;
mod explain;
mod grant;
mod replay;
mod show;
mod tail;
mod verify;

pub(crate) use explain::{Thought, recipients_in_words};

use clap::Subcommand;
use towpath_model::id::EventId;

use crate::output::{Exit, Output};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Events {
    /// Emit an event in its own transaction; applications emit inside theirs
    Emit(emit::Emit),
    /// Print the newest events, oldest first
    Tail(tail::Tail),
    /// Show one event: recipients, routing decisions, deliveries
    Show {
        /// Its id
        event: EventId,
    },
    /// Explain who would receive an event and what every route would do with it; changes nothing
    Explain(explain::Explain),
    /// Replay stored events through a route
    Replay(replay::Replay),
    /// Check that no event is lost, duplicated or stuck; exits with code 4 otherwise
    Verify {
        /// Check every stored event, not only the newest 100,000
        #[arg(long)]
        full: bool,
    },
    /// Show the progress of sequencing, routing and delivery
    Health,
    /// Manage what producers may emit
    #[command(subcommand)]
    Grant(grant::Grant),
}

pub(crate) async fn run(events: Events, settings: &Settings, output: &Output) -> Exit {
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
