//! Finds the server programs of a supported PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use towpath_model::doctor::SERVER_MAJOR_MIN;

use crate::Error;

/// A directory with `initdb` and `postgres`, and their major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The directory.
    pub dir: PathBuf,
    /// The major version, for example 15.
    pub major: i32,
}

impl Binaries {
    /// The programs in `bin`, or the newest on PATH and in the usual directories. `wanted` is the version that created an
    /// existing data directory, the only one that can read it.
    pub fn find(bin: Option<&Path>, wanted: Option<i32>) -> Result<Binaries, Error> {
        let candidates = match bin {
            Some(dir) => vec![dir.to_owned()],
            None => usual_places(),
        };
        let found: Vec<Binaries> = candidates.iter().filter_map(|dir| Binaries::at(dir)).collect();
        choose(&found, wanted).cloned().ok_or_else(|| none_fits(&found, bin, wanted))
    }

    fn at(dir: &Path) -> Option<Binaries> {
        if !dir.join("initdb").exists() {
            return None;
        }
        let output = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
        let major = parse_major(std::str::from_utf8(&output.stdout).ok()?)?;
        Some(Binaries { dir: dir.to_owned(), major })
    }
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` and `17beta1` alike.
fn parse_major(version: &str) -> Option<i32> {
    let number = version.split(") ").nth(1)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn usual_places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for root in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        places.extend(entries.map(|entry| entry.path().join("bin")));
    }
    for root in ["/usr/pgsql-18", "/usr/pgsql-17", "/usr/pgsql-16", "/usr/pgsql-15", "/usr/local/pgsql"] {
        places.push(Path::new(root).join("bin"));
    }
    places
}

fn choose(found: &[Binaries], wanted: Option<i32>) -> Option<&Binaries> {
    match wanted {
        Some(major) => found.iter().find(|binaries| binaries.major == major),
        None => found.iter().filter(|b| b.major >= SERVER_MAJOR_MIN).max_by_key(|b| b.major),
    }
}

fn none_fits(found: &[Binaries], bin: Option<&Path>, wanted: Option<i32>) -> Error {
    let seen: Vec<String> = found.iter().map(|b| format!("{} in {}", b.major, b.dir.display())).collect();
    let seen = match (seen.is_empty(), bin) {
        (false, _) => format!("only PostgreSQL {}", seen.join(", ")),
        (true, Some(dir)) => format!("no PostgreSQL server in {}", dir.display()),
        (true, None) => "no PostgreSQL server".to_owned(),
    };
    Error::Cluster(match wanted {
        Some(major) => format!(
            "the data directory was created by PostgreSQL {major}, but {seen} was found; \
             install it (Debian: apt-get install postgresql-{major}) or set --postgres-bin"
        ),
        None => format!(
            "{seen} was found, but {SERVER_MAJOR_MIN} or newer is required; install it \
             (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; \
             macOS: brew install postgresql), set --postgres-bin, or point DATABASE_URL at a server"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binaries(majors: &[i32]) -> Vec<Binaries> {
        majors.iter().map(|&major| Binaries { dir: format!("/pg/{major}").into(), major }).collect()
    }

    #[test]
    fn versions_are_read_as_servers_print_them() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(parse_major("not a version"), None);
    }

    #[test]
    fn the_newest_is_taken_unless_a_directory_needs_another() {
        let found = binaries(&[14, 17, 15]);
        assert_eq!(choose(&found, None).map(|b| b.major), Some(17));
        assert_eq!(choose(&found, Some(15)).map(|b| b.major), Some(15));
        assert_eq!(choose(&found, Some(16)), None);
        assert_eq!(choose(&binaries(&[14]), None), None);
    }

    /// O02: the message names what was found, what is required and how to install it.
    #[test]
    fn the_error_names_the_package() {
        let message = none_fits(&binaries(&[14]), None, None).to_string();
        assert!(message.contains("only PostgreSQL 14") && message.contains("apt-get install postgresql"));
        let message = none_fits(&binaries(&[17]), None, Some(15)).to_string();
        assert!(message.contains("created by PostgreSQL 15") && message.contains("postgresql-15"));
    }
}
