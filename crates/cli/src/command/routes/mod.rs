//! `towpath routes list | show | add | test | enable | dry-run | disable | retire | rotate | close-circuit | attempts | worker | dlq`.

mod add;
mod dlq;
mod list;
mod test;
mod worker;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use towpath_db::event::{ModeSet, SecretRotated};
use towpath_db::{Database, Error};
use towpath_model::event::route::Mode;
use towpath_model::nearest::nearest;

use super::config::By;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Routes {
    /// Every route: what it takes, where to, how far it goes, what waits
    List,
    /// One route whole
    Show {
        /// Its name
        route: String,
    },
    /// Make a route, switched off; a webhook gets a signing key, shown once
    Add(Box<add::Add>),
    /// Send one signed test webhook to a route's receiver, whatever its mode; code 4 if it is not taken
    Test {
        /// Its name
        route: String,
    },
    /// Let a route deliver
    Enable(Named),
    /// Let a route note what it would do, and deliver nothing
    DryRun(Named),
    /// Switch a route off; what waits to be sent is kept
    Disable(Named),
    /// End a route for good; what waits to be sent is cancelled
    Retire(Named),
    /// Give a webhook route a new signing key, shown once; the old one signs beside it for a while
    Rotate(Rotate),
    /// Forget the failures of a webhook's receiver, so that what waits is sent at once
    CloseCircuit(Named),
    /// What a route decided and sent last
    Attempts {
        /// Its name
        route: String,
        /// At most this many of each
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=500))]
        limit: i32,
    },
    /// Into how many slices the work of a route worker is cut, and how far each is
    Worker(worker::Worker),
    /// What could not be routed or delivered
    #[command(subcommand)]
    Dlq(dlq::Dlq),
}

#[derive(Args)]
pub(crate) struct Named {
    /// Its name
    route: String,
    #[command(flatten)]
    by: By,
}

#[derive(Args)]
pub(crate) struct Rotate {
    /// Its name
    route: String,
    /// How long the old key signs too, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    overlap: i32,
    /// A key of one's own: whsec_ and 24 to 64 bytes in base64 [default: a random one]
    #[arg(long, value_name = "KEY")]
    signing_key: Option<String>,
    /// Who, for the record; user@host if not given
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
}

pub(crate) async fn run(routes: Routes, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    super::with_database(settings, async |database| {
        match routes {
            Routes::List => output.show(&database.route_list().await?, |rows| list::table_of(rows)),
            Routes::Show { route } => {
                let route = known(database.route_show(&route).await, &route, &database).await?;
                output.show(&route, list::in_words);
            }
            Routes::Add(add) => add::run(*add, &database, output).await?,
            Routes::Test { route } => return test::run(&route, settings, &database, output).await,
            Routes::Enable(named) => set(&named, Mode::Live, &database, output).await?,
            Routes::DryRun(named) => set(&named, Mode::DryRun, &database, output).await?,
            Routes::Disable(named) => set(&named, Mode::Off, &database, output).await?,
            Routes::Retire(named) => {
                let actor = named.by.actor();
                let retired = database.route_retire(&named.route, named.by.attribution(&actor)).await;
                output.show(&known(retired, &named.route, &database).await?, |retired| {
                    format!(
                        "{} is retired; {} deliveries were cancelled",
                        retired.route_name, retired.cancelled
                    )
                });
            }
            Routes::Rotate(rotate) => {
                let actor = rotate.by.unwrap_or_else(super::actor);
                let key = rotate.signing_key.as_deref();
                let rotated = database.route_secret_rotate(&rotate.route, key, rotate.overlap, &actor).await;
                let rotated = known(rotated, &rotate.route, &database).await?;
                output.show(&rotated, key_in_words);
            }
            Routes::CloseCircuit(named) => {
                let actor = named.by.actor();
                let closed = database.route_circuit_close(&named.route, named.by.attribution(&actor)).await;
                output.show(&known(closed, &named.route, &database).await?, |closed| match closed.changed {
                    true => format!(
                        "the circuit of {} is closed, it was {}",
                        closed.target_key, closed.old_circuit
                    ),
                    false => format!("the circuit of {} was closed already", closed.target_key),
                });
            }
            Routes::Attempts { route, limit } => {
                let attempts = known(database.route_attempts(&route, limit).await, &route, &database).await?;
                output.show(&attempts, list::attempts_in_words);
            }
            Routes::Worker(worker) => worker::run(worker, &database, output).await?,
            Routes::Dlq(dlq) => return dlq::run(dlq, &database, output).await,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn set(named: &Named, mode: Mode, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = named.by.actor();
    let set = match database.route_mode_set(&named.route, mode, named.by.attribution(&actor)).await {
        // The one conflict an operator can mend at once.
        Err(Error::Conflict(detail)) if detail.contains("signing key") => {
            return Err(anyhow!(
                "{} has no signing key; give it one with: towpath routes rotate {0}",
                named.route
            ));
        }
        other => known(other, &named.route, database).await?,
    };
    output.show(&set, mode_in_words);
    Ok(())
}

fn mode_in_words(set: &ModeSet) -> String {
    let name = &set.route_name;
    match (set.mode, set.mode == set.old_mode) {
        (mode, true) => format!("{name} was {mode} already"),
        (Mode::Off, _) => format!("{name} is off; what waits to be sent is kept"),
        (Mode::DryRun, _) => {
            format!("{name} notes what it would do; see: towpath events tail, towpath events show EVENT")
        }
        (Mode::Live, _) => format!(
            "{name} delivers from now on; what passed before: towpath events replay {name} --after POSITION"
        ),
    }
}

fn key_in_words(rotated: &SecretRotated) -> String {
    let mut words = format!(
        "{}\nsigning key of {}, shown this once; the receiver checks signatures with it",
        rotated.signing_key, rotated.route_name
    );
    if let Some(until) = rotated.previous_until {
        words += &format!("\nthe previous key signs too until {until:.0}");
    }
    words
}

/// The answer, with a near name where there is no route of this one.
async fn known<T>(answer: Result<T, Error>, route: &str, database: &Database) -> anyhow::Result<T> {
    match answer {
        Err(Error::NotFound(words)) => {
            let routes = database.route_list().await?;
            Err(match nearest(route, routes.iter().map(|row| row.route_name.as_str())) {
                Some(near) if near != route => anyhow!("there is no route {route}; did you mean {near}?"),
                _ => anyhow!(words),
            })
        }
        other => Ok(other?),
    }
}
