//! `--watch`: repeats any read-only command.
//!
//! The flag is added here, in one place, and each refresh runs the whole command again, so the commands
//! themselves do not know about it.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use jiff::Timestamp;

use crate::output::{Exit, Output, done, plain};
use crate::session::Session;
use crate::settings::{Origins, Settings};
use crate::{Cli, command, shutdown};

/// The last words of read-only commands.
const LOOKS: [&str; 14] = [
    "backlog",
    "broadcasts",
    "doctor",
    "errors",
    "explain",
    "health",
    "history",
    "keys",
    "list",
    "pauses",
    "show",
    "sources",
    "verify",
    "why",
];
/// These read from a running server, not from the database.
const WITHOUT_DATABASE: [&str; 3] = ["stream", "sessions", "project"];
const ID: &str = "watch";
/// Moves the cursor to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Adds `--watch` to every read-only command.
pub(crate) fn add(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
    if names.is_empty() {
        return match LOOKS.contains(&command.get_name()) {
            true => command.arg(flag()),
            false => command,
        };
    }
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, add))
}

fn flag() -> Arg {
    Arg::new(ID)
        .long(ID)
        .value_name("SECONDS")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("2")
        .value_parser(seconds)
        .help("Refresh every 2 seconds, or every SECONDS; with --json one line per refresh")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds such as 5 or 0.5".to_owned())?;
    match (0.1..=86_400.0).contains(&number) {
        true => Ok(Duration::from_secs_f64(number)),
        false => Err("must be between 0.1 and 86400 seconds".to_owned()),
    }
}

/// The refresh interval, if `--watch` was given.
pub(crate) fn asked(matches: &ArgMatches) -> Option<Duration> {
    match matches.subcommand() {
        Some((_, child)) => asked(child),
        None => matches.try_get_one::<Duration>(ID).ok().flatten().copied(),
    }
}

/// Refreshes until interrupted. The first run must succeed; later ones may fail, for example while the
/// database restarts.
pub(crate) async fn run(
    every: Duration,
    matches: &ArgMatches,
    settings: &Settings,
    origins: &Origins,
    json: bool,
) -> Exit {
    let shutdown = shutdown::on_signal()?;
    // Opened once, not for each refresh.
    let needs_database = !matches.subcommand_name().is_some_and(|name| WITHOUT_DATABASE.contains(&name));
    let session = match needs_database {
        true => Some(Session::open(settings).await?),
        false => None,
    };
    let mut settings = settings.clone();
    if let Some(session) = &session {
        settings.database_url = Some(session.url.clone());
    }
    let result = looks(every, matches, &settings, origins, json, &shutdown).await;
    if let Some(session) = session {
        session.close().await;
    }
    result
}

async fn looks(
    every: Duration,
    matches: &ArgMatches,
    settings: &Settings,
    origins: &Origins,
    json: bool,
    shutdown: &tokio_util::sync::CancellationToken,
) -> Exit {
    let terminal = std::io::stdout().is_terminal() && !json;
    let mut first = true;
    while !shutdown.is_cancelled() {
        let output = Output::collecting(json);
        let cli = Cli::from_arg_matches(matches)?;
        let looked = tokio::select! {
            looked = command::run(cli.command, settings, origins, &output) => looked,
            () = shutdown.cancelled() => break,
        };
        let text = match looked {
            Ok(_) => output.collected(),
            Err(error) if first => return Err(error),
            Err(error) if json => {
                Output::fail(&error, true);
                String::new()
            }
            Err(error) => plain(&format!("{error:#}\n")).into_owned(),
        };
        let head = format!("every {every:?}, Ctrl-C to stop; {:.0}", Timestamp::now());
        // A closed pipe ends it.
        let shown = match (terminal, json) {
            (true, _) => print(&format!("{CLEAR}{head}\n\n{text}")),
            (false, true) => print(&text),
            (false, false) => print(&format!("{head}\n{text}\n")),
        };
        if shown.is_err() {
            break;
        }
        first = false;
        let _ = tokio::time::timeout(every, shutdown.cancelled()).await;
    }
    done()
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// O04: commands that list, show or report health can be watched; commands that act cannot.
    #[test]
    fn everything_that_looks_can_be_watched() {
        fn walk(path: &str, command: &Command, found: &mut Vec<String>) {
            let watched = command.get_arguments().any(|argument| argument.get_id() == ID);
            if command.get_subcommands().next().is_none() {
                if watched {
                    found.push(path.trim().to_owned());
                }
                let acts = ["add", "cancel", "replay", "remove", "set", "open", "close", "retry", "pause"];
                assert!(!(watched && acts.contains(&command.get_name())), "{path} acts");
            }
            for child in command.get_subcommands() {
                walk(&format!("{path} {}", child.get_name()), child, found);
            }
        }
        let mut found = vec![];
        walk("", &add(Cli::command()), &mut found);
        for path in [
            "job list",
            "job show",
            "job why",
            "job graph show",
            "dlq list",
            "dlq show",
            "queue health",
            "queue backlog",
            "schedule list",
            "executor list",
            "executor token list",
            "executor grant list",
            "events show",
            "events health",
            "events verify",
            "routes list",
            "routes show",
            "routes dlq list",
            "routes dlq show",
            "subscriptions list",
            "process list",
            "process show",
            "message list",
            "message show",
            "gate list",
            "config list",
            "stream list",
            "sessions list",
            "sessions show",
            "sessions sources",
            "project list",
            "doctor",
        ] {
            assert!(found.contains(&path.to_owned()), "{path} cannot be watched; {found:?}");
        }
        add(Cli::command()).debug_assert();
    }

    #[test]
    fn the_time_between_two_looks_may_be_left_out() {
        let asked_for = |line: &str| {
            let words = std::iter::once("towpath").chain(line.split(' '));
            add(Cli::command()).try_get_matches_from(words).map(|matches| asked(&matches))
        };
        assert_eq!(asked_for("job list").unwrap(), None);
        assert_eq!(asked_for("job list --watch").unwrap(), Some(Duration::from_secs(2)));
        assert_eq!(asked_for("queue health --watch=0.5").unwrap(), Some(Duration::from_millis(500)));
        assert!(asked_for("queue health --watch=0").is_err());
        // This command has its own `--watch`, which follows the job.
        assert_eq!(asked_for("job enqueue mail --watch").unwrap(), None);
    }
}
