//! A PostgreSQL that is too old, from the npm registry: the distribution has none.

use std::path::{Path, PathBuf};
use std::process::Command;

use towpath_testkit::victim::Victim;

use crate::towpath::Place;

/// Built for tests of programs like ours; one exact version, so that runs are repeatable.
const PACKAGE: &str = "@embedded-postgres/linux-";
const VERSION: &str = "14.23.0-beta.17";

/// A running PostgreSQL 14 with no data. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) url: String,
    _process: Victim,
}

impl Server {
    pub(crate) async fn start(place: &Place) -> Server {
        let bin = programs();
        let (pgdata, dir) = (place.dir.join("old"), place.dir.display());
        std::os::unix::fs::chown(&place.dir, Some(owner().0), Some(owner().1)).unwrap();
        run(as_owner(&bin.join("initdb")).args(["--auth=trust", "-U", "postgres", "-D"]).arg(&pgdata));
        let mut command = as_owner(&bin.join("postgres"));
        command.arg("-D").arg(&pgdata).args(["-c", "listen_addresses=", "-k"]).arg(&place.dir);
        let process = Victim::spawn(command);
        process.wait_for_line("ready to accept connections").await;
        Server { url: format!("postgresql://postgres@/postgres?host={dir}"), _process: process }
    }
}

/// The programs, fetched once per machine into the temporary directory.
fn programs() -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let prefix = std::env::temp_dir().join(format!("towpath-postgres-{VERSION}"));
    let package = prefix.join("node_modules").join(format!("{PACKAGE}{arch}"));
    let done = prefix.join("complete");
    if !done.exists() {
        std::fs::create_dir_all(&prefix).unwrap();
        let name = format!("{PACKAGE}{arch}@{VERSION}");
        run(Command::new("npm")
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
            .arg(&prefix)
            .arg(name));
        // The package's own script makes the links its libraries need.
        run(Command::new("node").arg("scripts/hydrate-symlinks.js").current_dir(&package));
        std::fs::write(done, "").unwrap();
    }
    package.join("native/bin")
}

/// The user a server may run as: us, or `postgres` when we are root.
fn owner() -> (u32, u32) {
    use nix::unistd::{Gid, Uid, User};
    match Uid::effective().is_root() {
        true => {
            User::from_name("postgres").unwrap().map(|user| (user.uid.as_raw(), user.gid.as_raw())).unwrap()
        }
        false => (Uid::effective().as_raw(), Gid::effective().as_raw()),
    }
}

fn as_owner(program: &Path) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.current_dir("/");
    if nix::unistd::Uid::effective().is_root() {
        command.uid(owner().0).gid(owner().1);
    }
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
