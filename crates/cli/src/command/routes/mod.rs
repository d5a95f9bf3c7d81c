//! `towpath routes list | show | add | test | enable | dry-run | disable | retire | rotate | close-circuit | attempts | worker | dlq`.

mod add;
mod dlq;
mod list;
mod test;
mod worker;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use towpath_db::event::{ModeSet, SecretRotated};
use towpath_db::{Database, Error};
use towpath_model::event::route::Mode;
use towpath_model::nearest::nearest;

use super::config::By;
use crate::command::Actor;
use crate::output::{Exit, Output, done};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Routes {
    /// List routes: events, target, mode, waiting deliveries
    List,
    /// Show one route
    Show {
        /// Its name
        route: String,
    },
    /// Add a route, off at first; a webhook gets a signing key, shown once
    Add(Box<add::Add>),
    /// Send one signed test webhook, whatever the route's mode; exits with code 4 if it is not accepted
    Test {
        /// Its name
        route: String,
    },
    /// Enable a route
    Enable(Named),
    /// Put a route in dry run: it records decisions and delivers nothing
    DryRun(Named),
    /// Disable a route; waiting deliveries are kept
    Disable(Named),
    /// Retire a route permanently; waiting deliveries are cancelled
    Retire(Named),
    /// Rotate a webhook's signing key; the new key is shown once, and both sign during the overlap
    Rotate(Rotate),
    /// Close a webhook receiver's circuit, so that waiting deliveries are sent at once
    CloseCircuit(Named),
    /// Show a route's latest decisions and deliveries
    Attempts {
        /// Its name
        route: String,
        /// Maximum number of each to show
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=500))]
        limit: i32,
    },
    /// Show or change route workers: slices and positions
    Worker(worker::Worker),
    /// Manage dead letters of routes
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
    /// How long the old key also signs
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    overlap: i32,
    /// Your own key: whsec_ and 24 to 64 bytes in base64 (default: a random one)
    #[arg(long, value_name = "KEY")]
    signing_key: Option<String>,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(routes: Routes, settings: &Settings, output: &Output) -> Exit {
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
                        "retired route {}; cancelled {} deliveries",
                        retired.route_name, retired.cancelled
                    )
                });
            }
            Routes::Rotate(rotate) => {
                let actor = rotate.by.name();
                let key = rotate.signing_key.as_deref();
                let rotated = database.route_secret_rotate(&rotate.route, key, rotate.overlap, &actor).await;
                let rotated = known(rotated, &rotate.route, &database).await?;
                output.show(&rotated, key_in_words);
            }
            Routes::CloseCircuit(named) => {
                let actor = named.by.actor();
                let closed = database.route_circuit_close(&named.route, named.by.attribution(&actor)).await;
                output.show(&known(closed, &named.route, &database).await?, |closed| match closed.changed {
                    true => {
                        format!("closed the circuit of {}, it was {}", closed.target_key, closed.old_circuit)
                    }
                    false => format!("the circuit of {} is already closed", closed.target_key),
                });
            }
            Routes::Attempts { route, limit } => {
                let attempts = known(database.route_attempts(&route, limit).await, &route, &database).await?;
                output.show(&attempts, list::attempts_in_words);
            }
            Routes::Worker(worker) => worker::run(worker, &database, output).await?,
            Routes::Dlq(dlq) => return dlq::run(dlq, &database, output).await,
        }
        done()
    })
    .await
}

async fn set(named: &Named, mode: Mode, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = named.by.actor();
    let set = match database.route_mode_set(&named.route, mode, named.by.attribution(&actor)).await {
        // The one conflict an operator can fix at once.
        Err(Error::Conflict(detail)) if detail.contains("signing key") => {
            return Err(anyhow!(
                "{} has no signing key; create one with: towpath routes rotate {0}",
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
        (mode, true) => format!("{name} is already {mode}"),
        (Mode::Off, _) => format!("{name} is off; waiting deliveries are kept"),
        (Mode::DryRun, _) => {
            format!(
                "{name} is in dry run: it records decisions and delivers nothing; see: towpath events show EVENT"
            )
        }
        (Mode::Live, _) => format!(
            "{name} is live; to deliver earlier events: towpath events replay {name} --after POSITION"
        ),
    }
}

fn key_in_words(rotated: &SecretRotated) -> String {
    let mut words = format!(
        "{}\nsigning key of {}; save it now, it will not be shown again; the receiver verifies signatures with it",
        rotated.signing_key, rotated.route_name
    );
    if let Some(until) = rotated.previous_until {
        words += &format!("\nthe previous key also signs until {until:.0}");
    }
    words
}

/// Adds a similar name to a "not found" error.
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
