//! Finds the server programs of a supported PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Uid;
use towpath_model::doctor::SERVER_MAJOR_MIN;

use crate::Error;

/// Homebrew has no package without a version. This is the newest that the tests run on.
const SERVER_MAJOR_BREW: i32 = 18;

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
    // A distribution whose own version is too old would install that one again.
    let newer =
        if found.is_empty() { "" } else { ", or a newer one from https://www.postgresql.org/download" };
    let install = install_line(&on_path, Uid::effective().is_root(), wanted);
    Error::Cluster(match wanted {
        Some(major) => format!(
            "the data directory was created by PostgreSQL {major}, but {seen} was found; \
             install it ({install}) or set --postgres-bin"
        ),
        None => format!(
            "{seen} was found, but {SERVER_MAJOR_MIN} or newer is required; install it ({install}){newer}, \
             set --postgres-bin, or point DATABASE_URL at a server"
        ),
    })
}

/// The line that installs PostgreSQL, or one version of it, with the package manager that this system has.
fn install_line(has: &dyn Fn(&str) -> bool, root: bool, wanted: Option<i32>) -> String {
    let sudo = if root { "" } else { "sudo " };
    let version = wanted.map(|major| major.to_string()).unwrap_or_default();
    let dashed = wanted.map(|major| format!("-{major}")).unwrap_or_default();
    let newest = wanted.unwrap_or(SERVER_MAJOR_BREW);
    match ["apt-get", "dnf", "zypper", "pacman", "brew"].into_iter().find(|manager| has(manager)) {
        Some("apt-get") => format!("{sudo}apt-get install postgresql{dashed}"),
        Some("pacman") => format!("{sudo}pacman -S postgresql"),
        Some("brew") => format!("brew install postgresql@{newest}"),
        Some(manager) => format!("{sudo}{manager} install postgresql{version}-server"),
        None => "from your distribution, or from https://www.postgresql.org/download".to_owned(),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
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
        let line = install_line(&on_path, Uid::effective().is_root(), None);
        let message = none_fits(&[], None, None).to_string();
        assert!(
            message.contains("no PostgreSQL server") && message.contains(&format!("({line}),")),
            "{message}"
        );
        let message = none_fits(&binaries(&[14]), None, None).to_string();
        assert!(message.contains("only PostgreSQL 14") && message.contains("or a newer one"), "{message}");
        let message = none_fits(&binaries(&[17]), None, Some(15)).to_string();
        assert!(
            message.contains("created by PostgreSQL 15") && message.contains("only PostgreSQL 17"),
            "{message}"
        );
    }

    /// O02: the line is for the package manager of this system, and can be pasted.
    #[test]
    fn the_line_to_install_fits_the_system() {
        let line = |manager: &'static str, root: bool, wanted: Option<i32>| {
            install_line(&move |program| program == manager, root, wanted)
        };
        assert_eq!(line("apt-get", true, None), "apt-get install postgresql");
        assert_eq!(line("apt-get", false, Some(15)), "sudo apt-get install postgresql-15");
        assert_eq!(line("dnf", false, None), "sudo dnf install postgresql-server");
        assert_eq!(line("dnf", false, Some(16)), "sudo dnf install postgresql16-server");
        assert_eq!(line("zypper", true, None), "zypper install postgresql-server");
        assert_eq!(line("pacman", false, None), "sudo pacman -S postgresql");
        assert_eq!(line("brew", false, None), "brew install postgresql@18");
        assert_eq!(line("brew", false, Some(15)), "brew install postgresql@15");
        assert!(line("apk", false, None).starts_with("from your distribution"));
    }
}
