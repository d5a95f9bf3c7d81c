//! The walks of ARCHITECTURE.md ("The life of …") name functions and types that exist.

use std::path::PathBuf;

use crate::tidy::{files, read, root};

/// The source tree without its tests.
struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    fn read() -> Sources {
        let folders = [root().join("crates"), root().join("sql")];
        let found = folders.iter().flat_map(|folder| files(folder, &[".rs", ".sql"]));
        let sources = found.filter(|path| !path.components().any(|part| part.as_os_str() == "tests"));
        Sources(sources.map(|path| (path.clone(), read(&path))).collect())
    }

    /// Whether a name of a walk exists: a SQL function, a method, a function of a module, a module, or a word.
    fn has(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.split("::").collect();
        match parts[..] {
            [one] if one.starts_with("fn_") || one.starts_with("_") || one.starts_with("towpath.") => {
                let function = format!("function towpath.{}(", one.trim_start_matches("towpath."));
                self.0.iter().any(|(_, text)| text.contains(&function))
            }
            [one] => self.0.iter().any(|(_, text)| has_word(text, one)),
            [.., owner, function] => self.has_function(owner, function) || self.has_module(owner, function),
            [] => false,
        }
    }

    fn has_function(&self, owner: &str, function: &str) -> bool {
        let is_owner = |(path, text): &&(PathBuf, String)| {
            let is_module = path.with_extension("").components().any(|part| part.as_os_str() == owner);
            is_module || ["impl", "trait"].iter().any(|word| text.lines().any(|l| declares(l, word, owner)))
        };
        let defined = [format!("fn {function}("), format!("fn {function}<")];
        let defines = |text: &str| defined.iter().any(|start| text.contains(start));
        self.0.iter().filter(is_owner).any(|(_, text)| defines(text))
    }

    fn has_module(&self, owner: &str, module: &str) -> bool {
        let places = [format!("{owner}/src/{module}.rs"), format!("{owner}/src/{module}/mod.rs")];
        self.0.iter().any(|(path, _)| places.iter().any(|place| path.ends_with(place)))
    }
}

fn declares(line: &str, word: &str, name: &str) -> bool {
    let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
    line.starts_with(word) && has_word(line, name)
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The names in the walks: inline code, and the chains of calls in indented blocks.
fn names(architecture: &str) -> Vec<&str> {
    let sections = architecture.split("\n## ").filter(|section| section.starts_with("The life of"));
    let mut names = vec![];
    for line in sections.flat_map(str::lines) {
        match line.strip_prefix("    ") {
            Some(chain) if chain.contains('→') || chain.contains("::") => {
                names.extend(chain.split(['→', '│', ' ']).filter(|name| name.contains("::")));
            }
            _ => names.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || "_:.".contains(c));
    names.into_iter().filter(is_name).collect()
}

#[test]
fn walks_name_what_exists() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let names = names(&architecture);
    assert!(names.len() > 80, "only {} names", names.len());
    let sources = Sources::read();
    let missing: Vec<&&str> = names.iter().filter(|name| !sources.has(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what does not exist: {missing:?}");
}

/// The check sees what it must: a function, a method, a type or a module that does not exist.
#[test]
fn a_name_that_does_not_exist_is_found() {
    let sources = Sources::read();
    for name in ["fn_job_ack", "towpath.emit", "Queue::push", "accept::serve_http1", "server::jobs", "Store"]
    {
        assert!(sources.has(name), "{name}");
    }
    for name in ["fn_job_sing", "towpath.sing", "Queue::sing", "Singer::push", "server::songs", "Singer"] {
        assert!(!sources.has(name), "{name}");
    }
    let page = "\n## The life of a job\n\n`one` two\n\n    A::b → C::d\n\n## Other\n\n`three`";
    assert_eq!(names(page), ["one", "A::b", "C::d"]);
}
