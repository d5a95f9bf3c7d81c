//! Checks of the source tree itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use towpath_db::migrate::{MIGRATIONS, SOURCES};
use towpath_model::refusal::Refusal;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below `dir` with one of these endings, without the output of cargo and npm, and without links.
pub(crate) fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = vec![];
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    for entry in entries.filter(|entry| !entry.path().is_symlink()) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !["target", "node_modules", ".git", ".towpath"].contains(&name.as_str()) {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn files_are_short_enough_to_hold_one_idea() {
    let generated = root().join("sql/schema.sql");
    for path in files(&root(), &[".rs", ".sql"]).into_iter().filter(|path| *path != generated) {
        let lines = read(&path).lines().count();
        assert!(lines <= 800, "{} has {lines} lines: there is a second idea inside", path.display());
    }
}

#[test]
fn the_binary_carries_every_sql_file() {
    let sql = root().join("sql");
    let on_disk: BTreeSet<String> = files(&sql, &[".sql"])
        .iter()
        .map(|path| path.strip_prefix(&sql).unwrap().display().to_string())
        .filter(|path| path != "install.sql" && path != "schema.sql")
        .collect();
    let migrations = MIGRATIONS.iter().map(|migration| format!("migrations/{}.sql", migration.name));
    let carried: BTreeSet<String> = migrations.chain(SOURCES.iter().map(|s| s.path.to_owned())).collect();
    assert_eq!(on_disk, carried);
}

/// Every function has a comment that says its transition, its fence and its answers.
#[test]
fn every_sql_function_is_commented() {
    for path in files(&root().join("sql"), &[".sql"]) {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if line.starts_with("create function") || line.starts_with("create or replace function") {
                let before = index.checked_sub(1).map_or("", |before| lines[before]);
                assert!(before.starts_with("--"), "{}: no comment above: {line}", path.display());
            }
        }
    }
}

/// Q21: the refusal codes and their SQLSTATEs: the same in the SQL, in `sql/README.md` and in Rust.
#[test]
fn refusals_are_one_closed_list() {
    let sql = root().join("sql");
    let readme = read(&sql.join("README.md"));
    let documented: BTreeSet<&str> = readme
        .lines()
        .skip_while(|line| !line.starts_with("## Refusal codes"))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let known: BTreeSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.word()).collect();
    assert_eq!(documented, known, "sql/README.md and model::refusal differ");
    let door = read(&sql.join("functions/door.sql"));
    for refusal in Refusal::ALL {
        let (word, code) = (refusal.word(), refusal.sqlstate());
        assert!(readme.contains(&format!("| `{word}` | `{code}` |")), "sql/README.md: {word} is {code}");
        assert!(door.contains(&format!("when '{word}' then '{code}'")), "door.sql: {word} is {code}");
    }
    assert_eq!(door.matches(" then 'TP").count(), Refusal::ALL.len(), "door.sql has a code of its own");
    let mut used = BTreeSet::new();
    let functions = files(&sql.join("functions"), &[".sql"]);
    let texts: Vec<String> = functions.iter().map(|path| read(path)).collect();
    for text in &texts {
        for (at, _) in text.match_indices("'error', '") {
            used.insert(text[at + "'error', '".len()..].split('\'').next().unwrap());
        }
    }
    // The envelope of a call that went well has an error, and it is empty.
    used.remove("");
    assert_eq!(used, known, "the SQL files and model::refusal differ");
}

/// Relative links in the documentation lead to existing files and headings.
#[test]
fn links_lead_somewhere() {
    for path in files(&root(), &[".md"]) {
        let text = read(&path);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(there.exists(), "{}: dead link {target}", path.display());
            let found = heading.is_empty() || headings(&read(&there)).contains(heading);
            assert!(found, "{}: no such heading: {target}", path.display());
        }
    }
}

/// What the container file copies is in the tree and goes into the build's context, and nothing else does.
#[test]
fn the_container_file_finds_what_it_copies() {
    let container = root().join("deploy/container/Containerfile");
    let file = read(&container);
    let copies = file
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|copy| !copy.starts_with("--from="));
    let copied: BTreeSet<&str> =
        copies.flat_map(|copy| copy.rsplit_once(' ').unwrap().0.split(' ')).collect();
    let ignored = read(&container.with_extension("dockerignore"));
    let (all, kept) = ignored.split_once('\n').unwrap();
    assert_eq!(all, "*", "everything is ignored but what is named");
    let kept: BTreeSet<&str> = kept.lines().map(|line| line.strip_prefix('!').unwrap()).collect();
    assert_eq!(copied, kept);
    for source in copied {
        assert!(root().join(source).exists(), "there is no {source} to copy");
    }
}

/// The headings of a page as links name them: lower case, hyphens for spaces, no other characters.
fn headings(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(anchor).collect()
}

/// Every page of the documentation is in its index.
#[test]
fn every_page_is_in_an_index() {
    let docs = root().join("docs");
    for (dir, index) in
        [("guides", "README.md"), ("runbooks", "README.md"), ("reference", "reference/README.md")]
    {
        let index = read(&docs.join(index));
        for page in files(&docs.join(dir), &[".md"]) {
            let name = page.file_name().unwrap().to_string_lossy().into_owned();
            assert!(name == "README.md" || index.contains(&format!("{name})")), "no index has {dir}/{name}");
        }
    }
}

/// Every setting is documented, and every documented setting exists.
#[test]
fn settings_are_documented() {
    let shown = crate::towpath::Place::new().ok(&["settings", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let known: BTreeSet<&str> = shown.as_array().unwrap().iter().filter_map(|s| s["key"].as_str()).collect();
    let page = read(&root().join("docs/settings.md"));
    let table = page.split("| setting |").nth(1).unwrap().split("\n\n").next().unwrap();
    let documented: BTreeSet<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(documented, known);
}

/// Only `db` contains SQL, and `model` does no I/O: Cargo keeps the crates out.
#[test]
fn arrows_point_one_way() {
    let manifest = |name: &str| {
        let text = read(&root().join("crates").join(name).join("Cargo.toml"));
        text.split("[dev-dependencies]").next().unwrap().to_owned()
    };
    for (krate, absent) in [
        ("model", vec!["towpath-", "tokio", "axum", "hyper"]),
        ("db", vec!["towpath-server", "towpath-streams", "axum", "hyper"]),
        ("streams", vec!["towpath-db", "towpath-server", "tokio-postgres", "axum", "hyper"]),
        ("worker", vec!["towpath-server", "towpath-streams", "tokio-postgres", "axum", "hyper"]),
        ("towpath", vec!["towpath-server", "towpath-streams", "tokio-postgres", "axum", "hyper"]),
        ("route", vec!["towpath-server", "towpath-worker", "tokio-postgres", "axum", "hyper"]),
        ("message", vec!["towpath-server", "towpath-streams", "tokio-postgres", "axum"]),
        ("dashboard", vec!["towpath-server", "towpath-worker", "tokio-postgres", "deadpool"]),
        ("server", vec!["towpath-worker", "towpath-dashboard", "tokio-postgres", "deadpool"]),
    ] {
        let manifest = manifest(krate);
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        for name in absent {
            let found = dependencies.lines().any(|line| line.starts_with(name));
            assert!(!found, "crates/{krate} must not depend on {name}*");
        }
    }
}
