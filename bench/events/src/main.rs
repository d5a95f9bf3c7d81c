//! Events under load: how fast they become jobs, and whether any is lost on the way.

mod idle_writer;
mod place;
mod race;
mod route;

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use serde_json::Value;

#[derive(Parser)]
struct Cli {
    /// File that gets one JSON object per result
    #[arg(long)]
    into: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Writers that commit late and roll back, against several roles and a naive cursor
    Race(race::Race),
    /// A transaction that stays open while others commit: the delay it adds, and what is lost over it
    IdleWriter(idle_writer::IdleWriter),
    /// Events/s from commit to job, and the delay, with so many events stored
    Route(route::Route),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let mut log = Log { into: cli.into };
    match cli.what {
        What::Race(race) => race.run(&mut log).await,
        What::IdleWriter(idle) => idle.run(&mut log).await,
        What::Route(route) => route.run(&mut log).await,
    }
}

/// Where results go.
pub(crate) struct Log {
    into: Option<PathBuf>,
}

impl Log {
    /// Shows a result, and keeps it.
    pub(crate) fn tell(&mut self, result: &Value) -> anyhow::Result<()> {
        println!("{result}");
        if let Some(path) = &self.into {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{result}")?;
        }
        Ok(())
    }
}
