//! Load for servers with the Durable Streams protocol: one thread, raw HTTP/1.1 on
//! kept-alive connections, the same for every server. Each command prints one JSON object.

mod append;
mod catch_up;
mod http;
mod process;
mod report;
mod sse;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Durable appends on many connections, one at a time on each
    Append(append::Append),
    /// Reads of a whole stream from its beginning
    CatchUp(catch_up::CatchUp),
    /// One stream followed by many clients
    Sse(sse::Sse),
    /// Prints the tables of results, one JSON object per line
    Report {
        /// Files with results
        files: Vec<PathBuf>,
    },
}

/// What is measured.
#[derive(Args)]
struct Server {
    /// Where it listens
    #[arg(long)]
    address: SocketAddr,
    /// Its process, whose CPU time and memory are read
    #[arg(long)]
    pid: u32,
}

fn main() -> anyhow::Result<()> {
    let answer = match Cli::parse().command {
        Command::Append(append) => append.run()?,
        Command::CatchUp(catch_up) => catch_up.run()?,
        Command::Sse(sse) => sse.run()?,
        Command::Report { files } => {
            print!("{}", report::tables(&files)?);
            return Ok(());
        }
    };
    println!("{answer}");
    Ok(())
}
