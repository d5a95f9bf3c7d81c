//! The one binary: `towpath up`, and everything else an operator types.

mod bearer;
mod command;
mod dashboard;
mod fanout;
mod input;
mod logging;
mod master_key;
mod messages;
mod metrics;
mod moment;
#[cfg(test)]
mod named_commands;
mod output;
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

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};

use command::Command;
use output::Output;
use settings::Settings;

/// Returns memory after a burst; the system allocator keeps it per thread.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One PostgreSQL as the backbone of an application: events, jobs, processes, streams.
#[derive(Parser)]
#[command(name = "towpath", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 error, 2 invalid usage or settings, \
    3 action needed (migrate --check, a bulk action without --yes, job watch --timeout) or warnings \
    (doctor, queue health --check), 4 failures found (doctor, events verify) or the watched job, process \
    or message did not succeed (job watch, process watch, message send --wait); \
    see docs/reference/exit-codes.md";

fn main() -> ExitCode {
    let (matches, cli, origins) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return Output::refuse(&error),
    };
    logging::start(&cli.settings);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Output::fail(&error.into()),
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
        Err(error) => Output::fail(&error),
    }
}

/// Flags override the environment, which overrides the file, which overrides defaults. On a usage
/// error clap prints its message and exits with code 2.
fn parse() -> anyhow::Result<(ArgMatches, Cli, settings::Origins)> {
    settings::refuse_unknown_environment()?;
    let file = settings::File::read(std::env::args_os())?;
    let matches = file.as_defaults(command_line()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let origins = settings::Origins::new(&matches, &file);
    Ok((matches, cli, origins))
}

/// The whole command line. `-h` hides the sixty settings; `--help` lists them.
fn command_line() -> clap::Command {
    watch::add(settings::with_variables(Cli::command())).mut_args(|argument| {
        let is_setting = argument.get_env().is_some();
        argument.hide_short_help(is_setting)
    })
}
