//! Plain English in everything that a person reads: words that we do not use, each with its replacement, and
//! prose that wraps at 110 columns.

use std::fmt;
use std::path::Path;

use crate::tidy::{files, read, root};

const COLUMNS_MAX: usize = 110;

/// Words and phrases that we do not use anywhere, and what to write instead. Forms of one word are separated by `|`.
///
/// They are matched as whole words, in lower or mixed case (`REST` is not `rest`), across line breaks, and
/// inside `snake_case` and `CamelCase` names. Inline code is not checked.
const UNUSED: &[(&str, &str)] = &[
    ("mend|mends|mended|mending", "fix"),
    ("rests|rested", "is paused, waits, is idle"),
    ("hurry|hurries|hurried", "runs now, raises the priority"),
    ("is made off", "created (off)"),
    ("opens nothing", "gives no access, is revoked"),
    ("is said to be|are said to be", "is, are"),
    ("told from|told apart", "distinguished from, different"),
    ("tells of|told of", "describes, reports, notified"),
    ("in the clear", "unencrypted"),
    ("dial|dials|dialled", "connect, connected"),
    ("stands still", "is paused, is stuck, has stopped"),
    ("strands|stranded", "leaves stuck, stuck"),
    ("anew", "again"),
    ("for ever", "forever, indefinitely"),
    ("lean on|leans on", "depends on"),
    ("of one's own", "your own, separate"),
    ("turns away|turned away", "refuses, refused"),
    ("takes back|taken back", "revokes, undoes, requeues"),
    ("whoever", "name who: the caller, the worker, anyone who"),
    ("beat|beats", "heartbeat, sends heartbeats"),
    ("way out|ways out", "transport"),
    ("under way", "running, in flight, in progress"),
    ("hear|hears|heard|ear|ears", "receives, is notified, gets an error"),
    ("speak|speaks|spoke|spoken", "uses, sends, means"),
    ("wish|wishes|wished|guest|guests|twin|twins", "name what it is: a request, a connection, a copy"),
];

/// More of them on pages for users and operators. In code they may be names, or plain enough in a comment.
const UNUSED_ON_PAGES: &[(&str, &str)] = &[
    ("somebody", "name who: a worker, an operator, another process"),
    ("nobody", "no, none, or name who: no worker, no other process"),
    ("spares|spared", "saves, limits"),
];

/// What people read as a page, or type: documentation, deployment, examples, development commands.
const PAGES: &[&str] = &[".md", ".yml", ".service", "Containerfile", ".ts", "dev"];

/// Code, with its comments, names and strings.
const CODE: &[&str] = &[".rs", ".sql", ".html", ".js", ".mjs", ".css", ".py", ".toml", "run"];

/// Generated from texts that are checked themselves.
const GENERATED: &[&str] = &[
    "reference/cli.md",
    "reference/http.md",
    "reference/sql.md",
    "reference/metrics.md",
    "package-lock.json",
];

/// This file names the words.
const NOT_CHECKED: &[&str] = &["tests/plain_english.rs"];

/// A word that is not used, or a line that is too long.
#[derive(Debug, PartialEq)]
struct Finding {
    line: usize,
    found: String,
    instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}; instead: {}", self.line, self.found, self.instead)
    }
}

#[test]
fn texts_are_in_plain_english() {
    let pages = texts(PAGES);
    assert!(pages.len() > 40, "only {} pages", pages.len());
    let lists = [UNUSED, UNUSED_ON_PAGES].concat();
    complain(pages.iter().flat_map(|(path, text)| at(path, unused_words(text, &lists))));
}

#[test]
fn code_is_in_plain_english() {
    let code = texts(CODE);
    assert!(code.len() > 700, "only {} files", code.len());
    complain(code.iter().flat_map(|(path, text)| at(path, unused_words(text, UNUSED))));
}

#[test]
fn prose_wraps() {
    complain(texts(&[".md"]).iter().flat_map(|(path, text)| at(path, long_lines(text))));
}

/// Every text with one of these endings, by its path in the tree.
fn texts(endings: &[&str]) -> Vec<(String, String)> {
    let path = |file: &Path| file.strip_prefix(root()).unwrap().display().to_string();
    let checked = |path: &String| {
        !GENERATED.iter().any(|end| path.ends_with(end))
            && !NOT_CHECKED.iter().any(|part| path.contains(part))
    };
    let found = files(&root(), endings).into_iter().filter(|file| checked(&path(file)));
    found.map(|file| (path(&file), read(&file))).collect()
}

fn at(path: &str, findings: Vec<Finding>) -> impl Iterator<Item = String> {
    findings.into_iter().map(move |finding| format!("{path}:{finding}"))
}

fn complain(findings: impl Iterator<Item = String>) {
    let findings: Vec<String> = findings.collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn unused_words(text: &str, list: &[(&str, &str)]) -> Vec<Finding> {
    let words = words(text);
    let mut findings = vec![];
    for (forms, instead) in list {
        for form in forms.split('|') {
            let form: Vec<&str> = form.split(' ').collect();
            for window in words.windows(form.len()) {
                if window.iter().zip(&form).all(|((_, word), form)| word == form) {
                    let (found, instead) = (form.join(" "), (*instead).to_owned());
                    findings.push(Finding { line: window[0].0, found, instead });
                }
            }
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// The words of a text in lower case, with their lines; the end of a sentence or a cell counts as a word, so that
/// no phrase reaches across it. Words in capitals, inline code and HTML comments are left out.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = vec![];
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with("<!--")) {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "/-#*!>".contains(c));

        let prose = camel_case_apart(&without_inline_code(line));
        for part in prose.split_inclusive(|c: char| !c.is_alphanumeric() && c != '\'') {
            let word = part.trim_end_matches(|c: char| !c.is_alphanumeric());
            let in_capitals = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
            if !word.is_empty() && !in_capitals {
                words.push((index + 1, word.to_lowercase()));
            }
            if part.ends_with(['.', ';', ':', '!', '?', '|', '`', '{', '}', '(', ')', '"']) {
                words.push((index + 1, ".".to_owned()));
            }
        }
    }
    words
}

/// `CamelCase` as `Camel Case`.
fn camel_case_apart(line: &str) -> String {
    let mut apart = String::with_capacity(line.len());
    let mut after_lower = false;
    for c in line.chars() {
        if after_lower && c.is_uppercase() {
            apart.push(' ');
        }
        apart.push(c);
        after_lower = c.is_lowercase();
    }
    apart
}

/// A line whose backticks each stand for the code that was between two of them.
fn without_inline_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // An odd backtick is no code.
        return line.to_owned();
    }
    parts.into_iter().step_by(2).collect::<Vec<_>>().join("`")
}

/// Lines of prose in Markdown that are longer than they may be: not code, tables, headings or comments, and not a
/// line that has no place to break.
fn long_lines(page: &str) -> Vec<Finding> {
    let (mut fenced, mut commented) = (false, false);
    let mut findings = vec![];
    for (index, line) in page.lines().enumerate() {
        let start = line.trim_start();
        fenced ^= start.starts_with("```");
        commented |= start.starts_with("<!--");
        let prose = !fenced && !commented && !line.starts_with("    ") && !start.starts_with(['#', '|']);
        commented &= !line.contains("-->");
        let columns = line.chars().count();
        if prose && columns > COLUMNS_MAX && can_break(start) {
            let instead = format!("wrap at {COLUMNS_MAX} columns, this line has {columns}");
            findings.push(Finding { line: index + 1, found: start.chars().take(20).collect(), instead });
        }
    }
    findings
}

/// Whether a line has a space to break at: after the sign of a list, outside inline code.
fn can_break(line: &str) -> bool {
    without_inline_code(line).trim_start_matches("- ").contains(' ')
}

/// The check sees what it must: a planted word, a phrase over two lines of a comment, a name in code.
#[test]
fn a_planted_word_is_found() {
    let all = [UNUSED, UNUSED_ON_PAGES].concat();
    let found = |text: &str| -> Vec<(usize, String)> {
        unused_words(text, &all).into_iter().map(|finding| (finding.line, finding.found)).collect()
    };
    let finding = |line: usize, word: &str| (line, word.to_owned());
    assert_eq!(found("# Pool\n\nSomebody mends it."), [finding(3, "mends"), finding(3, "somebody")]);
    assert_eq!(found("/// It is under\n/// way."), [finding(1, "under way")]);
    assert_eq!(found("fn nobody_reads() {}"), [finding(1, "nobody")]);
    assert_eq!(found("struct AppendWish;"), [finding(1, "wish")]);
    assert_eq!(found("<!-- says: nobody -->"), []);
    assert_eq!(found("greet-them is made, off"), [finding(1, "is made off")]);
    assert_eq!(
        unused_words("the gate rests", UNUSED)[0].to_string(),
        "1: \"rests\"; instead: is paused, waits, is idle"
    );
}

/// Honest uses are not: the rest of something, REST, a heartbeat, a user of that name, two sentences.
#[test]
fn honest_words_are_not_found() {
    for text in [
        "RESTS and the rest of a REST API, amended, with a heartbeat",
        "it runs as the user `nobody`",
        "| under | way |\nWe go under. Way to go",
    ] {
        assert_eq!(unused_words(text, &[UNUSED, UNUSED_ON_PAGES].concat()), [], "{text}");
    }
}

#[test]
fn a_long_line_is_found_where_it_can_be_wrapped() {
    let long = "word ".repeat(23);
    let lines = |page: &str| long_lines(page).iter().map(|finding| finding.line).collect::<Vec<_>>();
    assert_eq!(lines(&format!("short\n{long}\n- {long}")), [2, 3]);
    for page in [
        format!("```\n{long}\n```"),
        format!("    {long}"),
        format!("| {long} |"),
        format!("# {long}"),
        format!("<!-- run:\n{long}\n-->"),
        format!("- `{long}`"),
    ] {
        assert_eq!(lines(&page), [0; 0], "{page}");
    }
}
