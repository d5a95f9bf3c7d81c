//! Shell completion: a short script for each shell asks this program what may come next, so that names of the database
//! can be completed too. It starts nothing, prints no error and gives up soon.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, Args, Command, ValueEnum};
use serde::Deserialize;
use towpath_db::{Database, Error};

use crate::settings::Settings;

/// Pressing Tab takes no longer.
const WAIT_MAX: Duration = Duration::from_millis(800);
/// The newest jobs that are offered.
const JOBS: i32 = 20;

/// A shell with a completion script.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    /// GNU bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

#[derive(Args)]
pub(crate) struct Complete {
    /// The words after `towpath`; the last one is being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The script that a shell loads.
pub(crate) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => {
            r#"_towpath() {
    local IFS=$'\n'
    COMPREPLY=($(towpath complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _towpath towpath"#
        }
        Shell::Zsh => {
            r#"#compdef towpath
_towpath() {
    local -a found
    found=("${(@f)$(towpath complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found
}
compdef _towpath towpath"#
        }
        Shell::Fish => {
            r#"function __towpath_complete
    set -l words (commandline -opc) (commandline -ct)
    towpath complete -- $words[2..-1] 2>/dev/null
end
complete -c towpath -f -a '(__towpath_complete)'"#
        }
    }
}

/// Prints what may come next, one word a line.
pub(crate) async fn run(complete: &Complete, settings: &Settings) {
    let (typed, before) =
        complete.words.split_last().map_or(("", &[][..]), |(typed, before)| (typed.as_str(), before));
    let program = crate::command_line();
    let offered = match next(&program, before, typed) {
        Next::Words(words) => words,
        Next::Names(names) => {
            let names = tokio::time::timeout(WAIT_MAX, of_database(names, before, settings)).await;
            names.ok().and_then(Result::ok).unwrap_or_default()
        }
    };
    let mut out = String::new();
    for word in offered.iter().filter(|word| word.starts_with(typed)) {
        out += &crate::output::one_line(word);
        out.push('\n');
    }
    let _ = std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes());
}

/// What comes next.
#[derive(Debug, PartialEq)]
enum Next {
    /// One of these.
    Words(Vec<String>),
    /// A name that the database knows.
    Names(Names),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Names {
    Gates,
    Kinds,
    Routes,
    Executors,
    ExecutorKinds,
    Jobs,
}

fn next(program: &Command, before: &[String], typed: &str) -> Next {
    let mut path = vec![program];
    let mut place = 0;
    let mut option = None;
    for word in before {
        let command = path[path.len() - 1];
        if option.take().is_some() {
            continue;
        }
        if let Some(name) = word.strip_prefix("--") {
            option = find_option(&path, name).filter(|one| one.get_action().takes_values());
        } else if let Some(found) = command.find_subcommand(word) {
            path.push(found);
            place = 0;
        } else if !word.starts_with('-') {
            place += 1;
        }
    }
    let command = path[path.len() - 1];
    if let Some(option) = option {
        return values(&path, option);
    }
    if typed.starts_with('-') {
        let shown =
            [program, command].into_iter().flat_map(Command::get_arguments).filter(|one| !one.is_hide_set());
        let longs: BTreeSet<String> =
            shown.filter_map(Arg::get_long).map(|long| format!("--{long}")).collect();
        return Next::Words(longs.into_iter().collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        return Next::Words(shown.map(|one| one.get_name().to_owned()).collect());
    }
    let positionals: Vec<&Arg> = command.get_positionals().collect();
    match positionals.get(place).or(positionals.last()) {
        Some(argument) => values(&path, argument),
        None => Next::Words(vec![]),
    }
}

fn find_option<'a>(path: &[&'a Command], name: &str) -> Option<&'a Arg> {
    path.iter().rev().flat_map(|command| command.get_arguments()).find(|one| one.get_long() == Some(name))
}

/// What an argument may be, by its name.
fn values(path: &[&Command], argument: &Arg) -> Next {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        return Next::Words(possible.iter().map(|value| value.get_name().to_owned()).collect());
    }
    let group = path.get(1).map_or("", |command| command.get_name());
    let is_option = argument.get_long().is_some();
    Next::Names(match (argument.get_id().as_str(), group) {
        ("gates", _) => Names::Gates,
        ("kind" | "job_kind" | "to_job", _) => Names::Kinds,
        ("route", _) => Names::Routes,
        ("job", _) => Names::Jobs,
        ("executor", "work") | ("name", "executor") => Names::Executors,
        ("executor", "executor" | "queue") if !is_option => Names::Executors,
        ("executor", _) => Names::ExecutorKinds,
        _ => return Next::Words(vec![]),
    })
}

async fn of_database(names: Names, before: &[String], settings: &Settings) -> Result<Vec<String>, Error> {
    let Some(url) = url(before, settings) else { return Ok(vec![]) };
    let database = Database::connect(&url).await?;
    let found: BTreeSet<String> = match names {
        Names::Gates => {
            let entries = database.config_list().await?.into_iter();
            entries.filter(towpath_db::ConfigEntry::is_gate).map(|entry| entry.key).collect()
        }
        Names::Kinds => {
            let subscribed =
                database.subscription_list(None).await?.into_iter().filter_map(|one| one.job_kind);
            subscribed.chain(database.queue_backlog().await?.into_iter().map(|one| one.job_kind)).collect()
        }
        Names::Routes => database.route_list().await?.into_iter().map(|one| one.route_name).collect(),
        Names::Executors => database.consumer_list().await?.into_iter().map(|one| one.executor_id).collect(),
        Names::ExecutorKinds => database.executor_kinds().await?.into_iter().collect(),
        Names::Jobs => {
            let page = database.job_list(&towpath_db::job_read::JobFilter::default(), JOBS, None).await?;
            page.jobs.into_iter().map(|job| job.job_id.to_string()).collect()
        }
    };
    Ok(found.into_iter().collect())
}

/// The database of the words or the settings, or the private PostgreSQL that runs already; none is started.
fn url(before: &[String], settings: &Settings) -> Option<String> {
    #[derive(Deserialize)]
    struct Owner {
        url: Option<String>,
    }
    let given = |flag: &str| {
        let at = before.iter().position(|word| word == flag)?;
        before.get(at + 1).cloned()
    };
    given("--database-url").or_else(|| settings.database_url.clone()).or_else(|| {
        let data = given("--data").map_or_else(|| settings.data.clone(), Into::into);
        let owner: Owner = serde_json::from_slice(&std::fs::read(data.join("towpath.lock")).ok()?).ok()?;
        owner.url
    })
}

#[cfg(test)]
mod tests {
    use super::{Names, Next, Shell, next, script};

    fn after(line: &str) -> Next {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (typed, before) = words.split_last().unwrap();
        next(&crate::command_line(), before, typed)
    }

    /// O03: commands, options, values and names of the database are completed, settings are not in the way.
    #[test]
    fn what_comes_next_is_known() {
        let words = |line: &str| match after(line) {
            Next::Words(words) => words,
            Next::Names(names) => panic!("{names:?}"),
        };
        assert!(words("").contains(&"job".to_owned()) && !words("").contains(&"complete".to_owned()));
        assert!(words("gate ").contains(&"open".to_owned()));
        let options = words("gate open --");
        assert!(
            options.contains(&"--why".to_owned()) && !options.contains(&"--smtp-url".to_owned()),
            "{options:?}"
        );
        assert!(words("up --log-format ").contains(&"json".to_owned()));
        for (line, names) in [
            ("gate open ", Names::Gates),
            ("gates close queue.worker.enabled ", Names::Gates),
            ("job enqueue ", Names::Kinds),
            ("job list --kind ", Names::Kinds),
            ("--json job show ", Names::Jobs),
            ("job enqueue mail --executor ", Names::ExecutorKinds),
            ("routes show ", Names::Routes),
            ("executor enable ", Names::Executors),
            ("work --executor ", Names::Executors),
        ] {
            assert_eq!(after(line), Next::Names(names), "{line}");
        }
    }

    #[test]
    fn scripts_are_short() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(script(shell).lines().count() < 10);
        }
    }
}
