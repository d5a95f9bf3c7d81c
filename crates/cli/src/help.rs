//! How `--help` is arranged: commands in groups, and settings only where a server reads them.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::settings::{self, File};
use crate::{Cli, EXIT_CODES, watch};

/// The commands, in groups, as the first screen lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Start", &["init", "up", "demo", "doctor", "top"]),
    ("Run one role", &["serve", "work", "route", "maintain"]),
    ("Jobs", &["job", "dlq", "queue", "schedule", "executor", "payload", "process", "message"]),
    ("Events and routes", &["events", "routes", "subscriptions"]),
    ("Streams", &["stream", "publish", "subscribe", "unsubscribe", "sessions", "project"]),
    (
        "Administration",
        &[
            "gate",
            "config",
            "token",
            "fault",
            "audit",
            "migrate",
            "db",
            "metrics",
            "settings",
            "man",
            "completions",
        ],
    ),
];

/// Commands that run a server, or write its settings: their help lists the settings.
const WITH_SETTINGS: [&str; 7] = ["up", "serve", "work", "route", "maintain", "demo", "init"];

/// The whole command line, with the file's values as defaults.
///
/// Every setting works with every command, so settings are global. They are hidden, except on the commands that have
/// a copy of their own that is not.
pub(crate) fn arranged(file: &File) -> Command {
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help")
        .help_heading(None::<&'static str>)
        .global(true);
    let command = file.as_defaults(settings::with_variables(Cli::command()));
    let settings: Vec<Arg> = command.get_arguments().filter(|one| one.get_env().is_some()).cloned().collect();
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(_) => argument.hide(true),
        None => argument.help_heading(None::<&'static str>),
    });
    let command = WITH_SETTINGS.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |one| one.args(settings.iter().cloned()))
    });
    let groups = groups(&command);
    watch::add(command.disable_help_flag(true).arg(help).disable_help_subcommand(true))
        .help_template(format!(
            "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}"
        ))
        .after_help(EXIT_CODES)
}

/// Each group: its commands and what they do.
fn groups(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        format!("  {name:13} {}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    let group = |(heading, names): &(&str, &[&str])| {
        format!("{heading}:\n{}", names.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect::<Vec<_>>().join("\n")
}

/// `towpath route list` means `towpath routes list`: one runs routing, the other manages routes.
pub(crate) fn routes_for_route(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let managing = Cli::command();
    let verbs = managing.find_subcommand("routes").into_iter().flat_map(Command::get_subcommands);
    let verbs: Vec<&str> = verbs.map(Command::get_name).collect();
    let at = arguments
        .windows(2)
        .position(|pair| pair[0] == "route" && pair[1].to_str().is_some_and(|verb| verbs.contains(&verb)));
    if let Some(at) = at {
        arguments[at] = "routes".into();
    }
    arguments
}

/// A usage error without its usage, as one line.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let is_hint = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let lines = text.lines().map(str::trim).take_while(is_hint);
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    text.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help_of(path: &[&str]) -> String {
        let mut command = crate::command_line();
        command.build();
        let found = path.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
        found.expect("a command").render_help().to_string()
    }

    /// O03: the first screen lists every command once, in a group.
    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::command_line();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut visible: Vec<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        grouped.sort_unstable();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
        assert!(help_of(&[]).lines().count() < 75, "{}", help_of(&[]));
    }

    /// O03: help shows the command; settings are shown where a server reads them, and work everywhere.
    #[test]
    fn help_shows_the_command_and_settings_only_where_a_server_reads_them() {
        assert!(help_of(&["up"]).contains("--smtp-url"));
        for path in [&["gate", "open"][..], &["job", "enqueue"], &["completions"], &["routes", "add"]] {
            let help = help_of(path);
            assert!(!help.contains("--smtp-url") && help.lines().count() < 60, "{path:?}: {help}");
        }
        let words = ["towpath", "gate", "list", "--data", "/x", "--database-url", "postgresql://h/d"];
        crate::command_line().try_get_matches_from(words).expect("settings work with every command");
    }

    #[test]
    fn route_with_a_verb_is_routes() {
        let told = |line: &str| {
            routes_for_route(line.split(' ').map(OsString::from)).join(std::ffi::OsStr::new(" "))
        };
        assert_eq!(told("towpath --json route list"), "towpath --json routes list");
        assert_eq!(told("towpath route --poll-only"), "towpath route --poll-only");
    }

    /// O03: singular and plural both work.
    #[test]
    fn both_numbers_of_a_noun_are_commands() {
        let command = crate::command_line();
        for pair in [
            ["job", "jobs"],
            ["event", "events"],
            ["process", "processes"],
            ["schedule", "schedules"],
            ["executor", "executors"],
            ["session", "sessions"],
            ["subscription", "subscriptions"],
            ["gate", "gates"],
            ["project", "projects"],
            ["token", "tokens"],
            ["message", "messages"],
            ["fault", "faults"],
            ["payload", "payloads"],
            ["stream", "streams"],
            ["queue", "queues"],
        ] {
            let found = pair.map(|name| command.find_subcommand(name).map(Command::get_name));
            assert!(found[0].is_some() && found[0] == found[1], "{pair:?}: {found:?}");
        }
    }
}
