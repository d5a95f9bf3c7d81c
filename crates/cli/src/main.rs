//! The one binary: `towpath up`, and everything else an operator types.

mod backup;
mod bearer;
mod command;
mod complete;
mod dashboard;
mod fanout;
mod help;
mod input;
mod logging;
mod master_key;
mod messages;
mod metrics;
mod moment;
#[cfg(test)]
mod named_commands;
mod output;
mod paint;
mod program;
mod progress;
mod route;
mod server_file;
mod session;
mod settings;
mod shutdown;
mod streams;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches, Parser};

use command::Command;
use output::Output;
use settings::Settings;

/// Returns memory after a burst; the system allocator keeps it per thread.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One PostgreSQL as the backbone of an application: events, jobs, processes, streams.
#[derive(Parser)]
#[command(name = "towpath", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Settings: flags, TOWPATH_* variables or towpath.toml, for every command; towpath up --help lists them.
Exit codes: 0 success, 1 error, 2 invalid usage or settings, 3 action needed or warnings,
4 failures found or not succeeded; see docs/reference/exit-codes.md";

fn main() -> ExitCode {
    let (matches, cli, origins) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return Output::refuse(&error, wants_json()),
    };
    logging::start(&cli.settings);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Output::fail(&error.into(), cli.json),
    };
    let output = Output::new(cli.json);
    if cli.json {
        progress::silence();
    }
    let result = runtime.block_on(async {
        match watch::asked(&matches) {
            Some(every) => watch::run(every, &matches, &cli.settings, &origins, cli.json).await,
            None => command::run(cli.command, &cli.settings, &origins, &output).await,
        }
    });
    match result {
        Ok(code) => code,
        Err(error) => Output::fail(&error, cli.json),
    }
}

/// Whether the command line asks for JSON, for errors in the command line itself.
fn wants_json() -> bool {
    std::env::args().any(|argument| argument == "--json")
}

/// Flags override the environment, which overrides the file, which overrides defaults. On a usage
/// error clap prints its message and exits with code 2.
fn parse() -> anyhow::Result<(ArgMatches, Cli, settings::Origins)> {
    settings::refuse_unknown_environment()?;
    if std::env::args_os().len() == 1 {
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}", command_line().render_help()),
        );
        std::process::exit(2);
    }
    let file = settings::File::read(std::env::args_os())?;
    let matches = help::arranged(&file).try_get_matches_from(help::routes_for_route(std::env::args_os()));
    let matches = match matches {
        Err(error) if error.use_stderr() && wants_json() => anyhow::bail!("{}", help::in_one_line(&error)),
        other => other.unwrap_or_else(|error| error.exit()),
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let origins = settings::Origins::new(&matches, &file);
    Ok((matches, cli, origins))
}

/// The whole command line.
fn command_line() -> clap::Command {
    help::arranged(&settings::File::default())
}
