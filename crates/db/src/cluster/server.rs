//! The server process: started, supervised, and restarted when it dies.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin};
use tokio_util::sync::CancellationToken;

use super::home::Home;
use super::{Binaries, Config, Durability};
use crate::connect::connect_once;
use crate::{Error, limits};

/// Runs the command that follows, and interrupts it when standard input ends. Standard input is a pipe that we hold open
/// and never write to, so it closes when Towpath ends, even by SIGKILL. A background process reads from /dev/null, hence
/// the detour through descriptor 3.
const LEASH: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill -INT "$server"; } 2>/dev/null &
leash=$!
exec 3<&-
wait "$server"
status=$?
kill "$leash" 2>/dev/null
exit "$status"
"#;

/// A running server.
pub(super) struct Server {
    process: Process,
    launch: Launch,
}

/// The process and our end of the pipe that keeps it running, separate because waiting for a child closes its standard
/// input.
struct Process {
    child: Child,
    leash: ChildStdin,
}

/// Everything needed to restart it.
struct Launch {
    home: Home,
    command: PathBuf,
    arguments: Vec<String>,
}

impl Server {
    /// Starts the server and waits until it responds.
    pub(super) async fn start(home: Home, binaries: &Binaries, config: &Config) -> Result<Server, Error> {
        let arguments = arguments(&home, config);
        let launch = Launch { home, command: binaries.dir.join("postgres"), arguments };
        let process = launch.start().await?;
        Ok(Server { process, launch })
    }

    /// Waits for the end of the server. On request it shuts down; if it dies, it is restarted, because crash recovery
    /// handles a killed server.
    pub(super) async fn watch(mut self, stop: CancellationToken) {
        let mut pause = Duration::from_millis(100);
        loop {
            let started = Instant::now();
            tokio::select! {
                () = stop.cancelled() => return shut_down(self.process, &self.launch.home.pgdata).await,
                status = self.process.child.wait() => {
                    tracing::error!(?status, log = %self.launch.home.log.display(), "PostgreSQL stopped; restarting it");
                }
            }
            if started.elapsed() > Duration::from_secs(60) {
                pause = Duration::from_millis(100);
            }
            match restart(&self.launch, pause, &stop).await {
                Some(process) => self.process = process,
                None => return,
            }
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }
}

/// Retries until the server runs again or a stop is requested.
async fn restart(launch: &Launch, mut pause: Duration, stop: &CancellationToken) -> Option<Process> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        match launch.start().await {
            Ok(process) => return Some(process),
            Err(error) => tracing::error!(%error, "PostgreSQL did not start"),
        }
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

impl Launch {
    /// Starts the server. Children of a killed one may hold its shared memory briefly; PostgreSQL then refuses to start, and
    /// a retry succeeds.
    async fn start(&self) -> Result<Process, Error> {
        let deadline = Instant::now() + limits::CLUSTER_SETTLE_WAIT_MAX;
        loop {
            let log_start = self.trim_log();
            let mut process = self.spawn()?;
            match self.wait_ready(&mut process.child).await {
                Ok(()) => return Ok(process),
                Err(error) => {
                    let words = self.log_since(log_start);
                    let again =
                        words.contains("pre-existing shared memory block") || words.contains("lock file \"");
                    if !again || Instant::now() > deadline {
                        return Err(Error::Cluster(format!(
                            "{error}; its log, {}, ends with: {}",
                            self.home.log.display(),
                            last_words(&words)
                        )));
                    }
                }
            }
            tokio::time::sleep(limits::CLUSTER_POLL * 5).await;
        }
    }

    fn spawn(&self) -> Result<Process, Error> {
        let failed = |error: std::io::Error| Error::Cluster(format!("cannot start PostgreSQL: {error}"));
        let mut options = OpenOptions::new();
        let log = options.create(true).append(true).mode(0o600).open(&self.home.log).map_err(failed)?;
        // It contains failed statements with their values.
        log.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        let mut command = self.home.command(Path::new("/bin/sh"));
        command
            .args(["-c", LEASH, "towpath-leash"])
            .arg(&self.command)
            .args(&self.arguments)
            // Its own process group: Ctrl-C goes to towpath, which stops the server last.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        let mut child = command.spawn().map_err(failed)?;
        let leash = child.stdin.take().expect("standard input was asked to be a pipe");
        Ok(Process { child, leash })
    }

    async fn wait_ready(&self, child: &mut Child) -> Result<(), Error> {
        let deadline = Instant::now() + limits::CLUSTER_START_WAIT_MAX;
        let url = self.home.socket_url("postgres");
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Error::Cluster(format!("PostgreSQL did not start ({status})")));
            }
            if connect_once(&url).await.is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let waited = limits::CLUSTER_START_WAIT_MAX.as_secs();
                return Err(Error::Cluster(format!("PostgreSQL did not respond within {waited} s")));
            }
            tokio::time::sleep(limits::CLUSTER_POLL).await;
        }
    }

    /// Truncates the log if it is too large; returns where new lines start.
    fn trim_log(&self) -> u64 {
        let size = std::fs::metadata(&self.home.log).map_or(0, |meta| meta.len());
        if size <= limits::CLUSTER_LOG_BYTES_MAX {
            return size;
        }
        let _ = std::fs::write(&self.home.log, "");
        0
    }

    fn log_since(&self, start: u64) -> String {
        let bytes = std::fs::read(&self.home.log).unwrap_or_default();
        let start = usize::try_from(start).unwrap_or(0).min(bytes.len());
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

fn arguments(home: &Home, config: &Config) -> Vec<String> {
    let mut arguments = vec!["-D".to_owned(), home.pgdata.display().to_string()];
    let mut set = |name: &str, value: &str| arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
    set("unix_socket_directories", &home.socket_dir.display().to_string());
    set("unix_socket_permissions", "0700");
    set("listen_addresses", if config.port.is_some() { "127.0.0.1" } else { "" });
    if let Some(port) = config.port {
        set("port", &port.to_string());
    }
    // Queries are short; compiling them costs more than it saves.
    set("jit", "off");
    // Tests race hundreds of connections against each other.
    let tests = config.durability == Durability::Throwaway;
    set("max_connections", if tests { "500" } else { "200" });
    if tests {
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            set(setting, "off");
        }
        set("autovacuum_naptime", "10s");
        set("max_wal_size", "256MB");
    }
    arguments
}

/// Closes the pipe and waits; a server that takes too long is killed without a checkpoint.
async fn shut_down(process: Process, pgdata: &Path) {
    let Process { mut child, leash } = process;
    drop(leash);
    if tokio::time::timeout(limits::CLUSTER_STOP_WAIT_MAX, child.wait()).await.is_ok() {
        return;
    }
    tracing::warn!("PostgreSQL did not stop; killing it without a checkpoint");
    if let Some(pid) = running_in(pgdata) {
        signal(pid, Signal::SIGQUIT);
    }
    let _ = tokio::time::timeout(limits::CLUSTER_STOP_WAIT_MAX, child.wait()).await;
}

/// The postmaster of a directory. Its pid file may be stale and the pid reused, so the working directory is checked:
/// a postmaster's is its data directory.
pub(super) fn running_in(pgdata: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(pgdata.join("postmaster.pid")).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    (cwd == pgdata).then_some(pid)
}

/// Sends a signal; a process that is already gone is fine.
pub(super) fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}
