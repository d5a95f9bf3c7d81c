//! Every command that the tree names exists: in log lines, messages, hints, pages, guides, alerts and comments.

use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use crate::command_line;

/// What may follow "towpath" in a sentence about the program. Any other lower-case word must be a command.
const PROSE: &str =
    "alone can during is maintains maintenance reads routing runs starts that to worker works";

/// Where a command in running text ends.
const ENDS: [char; 14] = ['`', '"', ',', ';', ')', '(', '|', '#', '<', '>', '&', '…', '\\', '\n'];

/// An id where a page puts one.
const ID: &str = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";

/// O03: every `towpath …` in the tree names a command that exists, with options that it has.
#[test]
fn commands_named_in_the_tree_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut seen, mut wrong) = (0, vec![]);
    let program = command_line();
    for path in sources(&root) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (line, rest) in mentions(&text) {
            seen += 1;
            if let Err(why) = check(&program, rest) {
                wrong.push(format!("{}:{line}: {why}", path.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 500, "only {seen} commands were found; does this still read them?");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let program = command_line();
    let judge = |sentence: &str| {
        let text = sentence.replace("TP", "towpath");
        mentions(&text).map(|(line, rest)| (line, check(&program, rest))).collect::<Vec<_>>()
    };
    let wrong = [
        "see:\nTP routes dead-letters",
        "see:\nTP rotues list",
        "see:\nTP routes \\\n    dead-letters",
        "see:\n`TP job list --sate queued`",
        "see:\nTP dlq list --kind x --oldest",
    ];
    for sentence in wrong {
        let judged = judge(sentence);
        assert!(matches!(judged.as_slice(), [(2, Err(_))]), "{sentence}: {judged:?}");
    }
    let right = [
        "see: TP routes dlq list, or look with --all",
        "`TP routes` and `TP dlq list | show`",
        "TP job list --state queued --watch=0.5 --json",
        "TP is ready; a TP that runs as root; schema TP authorization",
        "TP db psql -- --no-psqlrc",
    ];
    for sentence in right {
        let judged = judge(sentence);
        assert!(judged.iter().all(|(_, one)| one.is_ok()), "{sentence}: {judged:?}");
    }
}

/// O03: a command that a page shows beside a button or in an empty state can be run as it is shown.
#[test]
fn commands_on_pages_can_be_run() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard");
    let (mut seen, mut wrong) = (0, vec![]);
    for directory in ["templates", "src/page"] {
        for path in sources(&pages.join(directory)) {
            for command in on_page(&std::fs::read_to_string(&path).unwrap()) {
                let parsed = command_line().try_get_matches_from(words(&command));
                wrong.extend(parsed.err().map(|error| format!("{}: {command}: {error}", path.display())));
                seen += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "only {seen} commands were found; does this still read them?");
}

/// Every file of the tree that people read, but what is built and what is generated from the commands themselves.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_skipped =
            name.starts_with('.') || ["target", "node_modules", "reference"].contains(&name.as_str());
        if path.is_dir() && !is_skipped {
            found.extend(sources(&path));
        }
        let endings = ["rs", "sql", "md", "html", "json", "yml", "toml", "py", "mjs", "service", "sh"];
        if path.extension().is_some_and(|ending| endings.iter().any(|one| *one == ending)) {
            found.push(path);
        }
    }
    found
}

/// The line and what follows, for each `towpath ` with a lower-case word behind it. A string of Rust that is
/// continued on the next line is one line.
fn mentions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("towpath ").filter_map(|(at, found)| {
        let (before, rest) = (&text[..at], &text[at + found.len()..]);
        let is_word = before.ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
        let is_command =
            rest.trim_start_matches([' ', '\\', '\n']).starts_with(|c: char| c.is_ascii_lowercase());
        // The schema, the event domain, and the packages of the same name.
        let others =
            ["schema ", "domain ", "crate ", "package ", "from ", "import ", "add ", "crates/", "-m "];
        let is_other = others.iter().any(|end| before.ends_with(end));
        (is_command && !is_word && !is_other).then(|| (1 + before.matches('\n').count(), rest))
    })
}

/// Walks down the commands that the words name, then looks at the options.
fn check(program: &Command, rest: &str) -> Result<(), String> {
    let rest = rest.replace("\\\n", " ");
    let rest = rest.split(ENDS).next().unwrap_or_default();
    let mut path = vec![program];
    let mut words = rest.split_whitespace().peekable();
    while let Some(word) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_lowercase())) {
        let command = path[path.len() - 1];
        if !command.has_subcommands() {
            break;
        }
        let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        match command.find_subcommand(name) {
            Some(found) => path.push(found),
            None if path.len() == 1 && PROSE.split(' ').any(|word| word == name) => return Ok(()),
            None => return Err(format!("`{} {name}` is no command", command.get_name())),
        }
        if name != word {
            return Ok(());
        }
    }
    for word in words.take_while(|word| *word != "--") {
        let Some(option) = word.strip_prefix("--") else { continue };
        let name: String = option.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let has = |command: &&Command| {
            let longs = command.get_arguments().filter_map(Arg::get_long_and_visible_aliases);
            longs.flatten().any(|long| long == name)
        };
        if !path.iter().any(has) && !["", "help", "version"].contains(&name.as_str()) {
            return Err(format!("`{}` has no option --{name}", path[path.len() - 1].get_name()));
        }
    }
    Ok(())
}

/// The commands in `<code class="cli">` and in strings, with ids for placeholders.
fn on_page(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let ends = [(r#"class="cli">towpath "#, "</code>"), (r#""towpath "#, "\"")];
    ends.iter()
        .flat_map(|(start, end)| {
            text.split(start).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default())
        })
        .map(|rest| format!("towpath {}", filled_in(rest)))
        .collect()
}

fn filled_in(template: &str) -> String {
    let mut text = template.replace("{}", ID).replace("STATUS", "closed").replace('…', "because");
    while let Some((before, after)) = text.clone().split_once("{{") {
        let after = after.split_once("}}").map_or("", |(_, after)| after);
        text = format!("{before}{ID}{after}");
    }
    text
}

/// As a shell does: text in single quotes is one word.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![];
    for (at, part) in command.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
