//! The directories of the private PostgreSQL, and the user it runs as.
//!
//! PostgreSQL refuses to run as root. When towpath is root, the files belong to an unprivileged user; if that user
//! cannot reach the data directory, they go to `/var/lib/towpath`, with a link in the data directory.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::unistd::{Uid, User};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::{Binaries, Config, server};
use crate::{Error, limits};

/// Name prefix of a directory that is being created.
const UNFINISHED: &str = "postgres.unfinished-";
/// Where clusters go that their user cannot reach otherwise.
const REFUGE: &str = "/var/lib/towpath";

/// The user PostgreSQL runs as, if not the current one.
#[derive(Debug, Clone, Copy)]
struct RunAs {
    uid: u32,
    gid: u32,
}

/// The directories of one private PostgreSQL.
#[derive(Clone)]
pub(super) struct Home {
    /// PostgreSQL's own directory, all links resolved except for its last step while it
    /// does not exist.
    pub(super) pgdata: PathBuf,
    /// The directory of its socket.
    pub(super) socket_dir: PathBuf,
    /// Its log.
    pub(super) log: PathBuf,
    password: PathBuf,
    port: Option<u16>,
    run_as: Option<RunAs>,
}

impl Home {
    /// Determines the paths. Creates towpath's directories, never PostgreSQL's own.
    pub(super) fn find(config: &Config) -> Result<Home, Error> {
        let data = config.data.canonicalize().map_err(|error| unusable(&config.data, &error))?;
        let run_as = match Uid::effective().is_root() {
            true => Some(unprivileged(config.user.as_deref())?),
            false => None,
        };
        let pgdata = match run_as {
            Some(user) => reachable_pgdata(&data, user)?,
            None => data.join("postgres"),
        };
        let socket_dir = socket_dir(&pgdata, run_as)?;
        Ok(Home {
            pgdata,
            socket_dir,
            log: data.join("postgres.log"),
            password: data.join("postgres.password"),
            port: config.port,
            run_as,
        })
    }

    /// Creates the directory if it is new. An incomplete one never gets the final name, so a kill in between leaves only
    /// leftovers that a later call removes.
    pub(super) async fn prepare(&self, binaries: &Binaries) -> Result<(), Error> {
        if major(&self.pgdata).is_some() {
            return Ok(());
        }
        let unfinished = self.unfinished()?;
        let failed = |error: std::io::Error| unusable(&unfinished, &error);
        // A directory without PG_VERSION is not PostgreSQL's; it must not be overwritten.
        if self.pgdata.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::Cluster(format!(
                "{} has files but is not a PostgreSQL directory; move it away or choose another with --data",
                self.pgdata.display()
            )));
        }
        std::fs::DirBuilder::new().mode(0o700).create(&unfinished).map_err(failed)?;
        self.give(&unfinished)?;
        let password = write_password(&self.password).map_err(|error| unusable(&self.password, &error))?;
        let handed = self.hand_over(&password)?;
        let initdb = self
            .command(&binaries.dir.join("initdb"))
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C", "--data-checksums"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions"])
            .arg("--pwfile")
            .arg(handed.path())
            .arg("--pgdata")
            .arg(&unfinished)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(failed)?;
        if !initdb.status.success() {
            let words = String::from_utf8_lossy(&initdb.stderr);
            let telling = words.lines().find(|line| line.contains("FATAL: ") || line.contains("error: "));
            return Err(Error::Cluster(format!(
                "initdb failed: {}; nothing was installed",
                telling.unwrap_or(words.trim())
            )));
        }
        std::fs::rename(&unfinished, &self.pgdata).map_err(failed)
    }

    /// A new temporary name for the directory, after removing leftovers of earlier attempts. It is new because an
    /// orphaned `initdb` may still be writing into the previous one.
    fn unfinished(&self) -> Result<PathBuf, Error> {
        let dir = self.pgdata.parent().unwrap_or(&self.pgdata);
        let entries = std::fs::read_dir(dir).map_err(|error| unusable(dir, &error))?;
        for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(UNFINISHED)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Ok(dir.join(format!("{UNFINISHED}{}", now.as_nanos())))
    }

    /// Stops an orphaned server in the directory; we hold the lock, so it has no owner. Returns its process id.
    pub(super) async fn stop_orphan(&self) -> Result<Option<i32>, Error> {
        let Some(pid) = server::running_in(&self.pgdata) else { return Ok(None) };
        tracing::warn!(pid, "stopping an orphaned PostgreSQL");
        let started = Instant::now();
        server::signal(pid, nix::sys::signal::Signal::SIGINT);
        while server::running_in(&self.pgdata).is_some() {
            if started.elapsed() > limits::CLUSTER_STOP_WAIT_MAX {
                server::signal(pid, nix::sys::signal::Signal::SIGQUIT);
            }
            if started.elapsed() > limits::CLUSTER_STOP_WAIT_MAX * 2 {
                return Err(Error::Cluster(format!(
                    "postgres process {pid} does not stop; stop it manually"
                )));
            }
            tokio::time::sleep(limits::CLUSTER_POLL).await;
        }
        Ok(Some(pid))
    }

    /// A command that runs as PostgreSQL's user.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(RunAs { uid, gid }) = self.run_as {
            command.uid(uid).gid(gid);
        }
        // LC_ALL fixes the language of error messages; PostgreSQL needs no other variables.
        command.env_clear().env("LC_ALL", "C").env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Its user may not be able to access our working directory.
        command.current_dir("/");
        command
    }

    /// The URL of a database through the socket.
    pub(super) fn socket_url(&self, database: &str) -> String {
        let host = percent_encode(&self.socket_dir.display().to_string());
        match self.port {
            Some(port) => format!("postgresql://postgres@/{database}?host={host}&port={port}"),
            None => format!("postgresql://postgres@/{database}?host={host}"),
        }
    }

    /// The URL of the database `towpath`: through the port if one is configured.
    pub(super) fn url(&self) -> String {
        match (self.port, std::fs::read_to_string(&self.password)) {
            (Some(port), Ok(password)) => {
                format!("postgresql://postgres:{}@127.0.0.1:{port}/towpath", password.trim())
            }
            _ => self.socket_url("towpath"),
        }
    }

    fn give(&self, path: &Path) -> Result<(), Error> {
        match self.run_as {
            Some(RunAs { uid, gid }) => {
                chown(path, Some(uid), Some(gid)).map_err(|error| unusable(path, &error))
            }
            None => Ok(()),
        }
    }

    /// A copy of the password that PostgreSQL's user can read, deleted on drop.
    fn hand_over(&self, password: &str) -> Result<Handed, Error> {
        let path = self.pgdata.with_extension("pwfile");
        let failed = |error: std::io::Error| unusable(&path, &error);
        let _ = std::fs::remove_file(&path);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(password.as_bytes()).map_err(failed)?;
        self.give(&path)?;
        Ok(Handed(path))
    }
}

/// The version that created a directory, if it exists.
pub(super) fn major(pgdata: &Path) -> Option<i32> {
    std::fs::read_to_string(pgdata.join("PG_VERSION")).ok()?.trim().parse().ok()
}

struct Handed(PathBuf);

impl Handed {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::Cluster(format!("cannot use {}: {error}; choose another directory with --data", path.display()))
}

fn unprivileged(name: Option<&str>) -> Result<RunAs, Error> {
    let name = name.unwrap_or("postgres");
    let missing = |why: &str| {
        Error::Cluster(format!(
            "PostgreSQL does not run as root, and {why}; create a user (useradd --system {name}) \
             or name one with --postgres-user"
        ))
    };
    match User::from_name(name) {
        Ok(Some(user)) if user.uid.is_root() => Err(missing(&format!("{name} is root too"))),
        Ok(Some(user)) => Ok(RunAs { uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        _ => Err(missing(&format!("there is no user {name}"))),
    }
}

/// `data/postgres`, or another directory with a link to it if the user cannot reach it.
fn reachable_pgdata(data: &Path, user: RunAs) -> Result<PathBuf, Error> {
    let plain = data.join("postgres");
    if let Ok(target) = plain.read_link() {
        make_refuge(&target, user)?;
        return Ok(target);
    }
    if data.ancestors().all(|dir| may_enter(dir, user)) {
        return Ok(plain);
    }
    let target = Path::new(REFUGE).join(short_name(data)).join("postgres");
    make_refuge(&target, user)?;
    symlink(&target, &plain).map_err(|error| unusable(&plain, &error))?;
    tracing::info!(to = %target.display(), "the PostgreSQL user cannot access the data directory; storing its files elsewhere");
    Ok(target)
}

fn make_refuge(pgdata: &Path, user: RunAs) -> Result<(), Error> {
    let dir = pgdata.parent().unwrap_or(pgdata);
    let failed = |error: std::io::Error| unusable(dir, &error);
    std::fs::create_dir_all(dir).map_err(failed)?;
    chown(dir, Some(user.uid), Some(user.gid)).map_err(failed)
}

fn may_enter(dir: &Path, user: RunAs) -> bool {
    std::fs::metadata(dir).is_ok_and(|meta| {
        let bit = match () {
            () if meta.uid() == user.uid => 0o100,
            () if meta.gid() == user.gid => 0o010,
            () => 0o001,
        };
        meta.mode() & bit != 0
    })
}

/// PostgreSQL's own directory, which is private; or, if that path is too long for a socket, a short one that we own.
fn socket_dir(pgdata: &Path, run_as: Option<RunAs>) -> Result<PathBuf, Error> {
    if pgdata.as_os_str().len() <= limits::SOCKET_DIR_BYTES_MAX {
        return Ok(pgdata.to_owned());
    }
    let dir = std::env::temp_dir().join(format!("towpath-{}", short_name(pgdata)));
    let failed = |error: std::io::Error| unusable(&dir, &error);
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let uid = run_as.map_or_else(|| Uid::effective().as_raw(), |user| user.uid);
    if let Some(user) = run_as {
        chown(&dir, Some(user.uid), Some(user.gid)).map_err(failed)?;
    }
    let meta = std::fs::symlink_metadata(&dir).map_err(failed)?;
    if !meta.is_dir() || meta.uid() != uid {
        return Err(Error::Cluster(format!("{} belongs to another user; remove it", dir.display())));
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    Ok(dir)
}

/// A random superuser password for the loopback port.
fn write_password(path: &Path) -> std::io::Result<String> {
    let mut random = [0u8; 24];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut random)?;
    let password = hex(&random);
    let _ = std::fs::remove_file(path);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?.write_all(password.as_bytes())?;
    Ok(password)
}

/// A short name for a path that is too long.
fn short_name(path: &Path) -> String {
    hex(&Sha256::digest(path.as_os_str().as_encoded_bytes())[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}
