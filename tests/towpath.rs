//! The binary, started the way a user starts it.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use towpath_testkit::database::scratch;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_towpath");

/// An empty directory and a free port.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn new() -> Place {
        // Bound and let go: the kernel does not hand a port out again soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Place { dir: scratch("towpath-test-place-"), port }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join(".towpath")
    }

    /// The program with arguments, in this directory, without our own environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(&self.dir).env_remove("DATABASE_URL");
        command.env("TOWPATH_LISTEN", format!("127.0.0.1:{}", self.port));
        command
    }

    /// The same as another user, who owns the directory and a copy of the program.
    pub(crate) fn command_as(&self, user: &str, arguments: &[&str]) -> Command {
        let user = nix::unistd::User::from_name(user).unwrap().expect("the distribution's package makes it");
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        std::os::unix::fs::chown(&self.dir, Some(uid), Some(gid)).unwrap();
        let program = self.dir.join("towpath");
        std::fs::copy(PROGRAM, &program).unwrap();
        let mut command = Command::new(program);
        let ours = self.command(arguments);
        command.args(ours.get_args()).current_dir(&self.dir).env_remove("DATABASE_URL").uid(uid).gid(gid);
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program, expects success, and returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts `towpath up` and waits until it is ready.
    pub(crate) async fn up(&self) -> Victim {
        let victim = Victim::spawn(self.command(&["up"]));
        victim.wait_for_line("towpath is ready").await;
        assert_eq!(self.get("/ready").await, 200);
        victim
    }

    /// The status of a request to the running server.
    pub(crate) async fn get(&self, path: &str) -> u16 {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        reqwest::get(url).await.map_or(0, |response| response.status().as_u16())
    }

    /// Waits until a request is answered with this status.
    pub(crate) async fn until(&self, path: &str, status: u16) {
        let look = async || self.get(path).await;
        wait::until(format!("{path} = {status}"), look, |answered| *answered == status).await;
    }

    /// The postmaster that runs in this place.
    pub(crate) fn postmaster(&self) -> Option<i32> {
        let pgdata = self.data().join("postgres").canonicalize().ok()?;
        let text = std::fs::read_to_string(pgdata.join("postmaster.pid")).ok()?;
        let pid: i32 = text.lines().next()?.parse().ok()?;
        (std::fs::read_link(format!("/proc/{pid}/cwd")).ok()? == pgdata).then_some(pid)
    }

    /// Waits until a postmaster other than this one runs in this place.
    pub(crate) async fn until_other_postmaster(&self, old: i32) {
        let look = async || self.postmaster();
        wait::until("a new postmaster", look, |pid| pid.is_some_and(|pid| pid != old)).await;
    }

    /// Processes whose command line or working directory mentions this place.
    pub(crate) fn processes(&self) -> Vec<String> {
        let place = self.dir.display().to_string();
        let mut found = vec![];
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let command = read("cmdline").replace('\0', " ");
            let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            if command.contains(&place) || cwd.starts_with(Path::new(&place)) {
                found.push(format!("{} {command}", entry.file_name().to_string_lossy()));
            }
        }
        found
    }

    /// Waits until nothing of this place runs any more.
    pub(crate) async fn until_empty(&self) {
        wait::until("the end of every process here", async || self.processes(), Vec::is_empty).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Everything a command printed, for a failing test's message.
pub(crate) fn words(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{} / {} / {}", output.status, text(&output.stdout), text(&output.stderr))
}
