//! A child process that a test watches, stops and kills at a chosen moment.
//!
//! It owns exactly the process it started, or the group when asked for one, and signals it only
//! before it is reaped, so that a reused process id is never hit. It knows nothing about what runs.

use std::collections::VecDeque;
use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::wait::WAIT_MAX;

/// Lines kept for waits and failure messages; a server under test logs far fewer.
const LINES_MAX: usize = 4096;
/// A longer line is kept as several; room for any log line we write.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// After an exit, how long the rest of the output may take: only a grandchild keeps a pipe longer.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the kernel gets to stop or bury a process that has been signalled.
const KERNEL_WAIT_MAX: Duration = Duration::from_secs(5);

/// The child process. Dropping it kills it with `SIGKILL` and reaps it.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    pid: Pid,
    reach: Reach,
    output: watch::Sender<Output>,
    readers: JoinSet<()>,
    deadline: Duration,
}

/// Whom a signal reaches.
#[derive(Clone, Copy, Debug)]
enum Reach {
    Process,
    Group,
}

/// A place in the output, to tell lines before it from lines after it.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Victim {
    /// Starts the command with captured output. Signals reach this one process.
    pub fn spawn(command: impl Into<Command>) -> Self {
        Self::start(command.into(), Reach::Process)
    }

    /// Starts the command as the leader of its own process group. Signals reach the whole group,
    /// until the leader has been reaped.
    pub fn spawn_group(command: impl Into<Command>) -> Self {
        let mut command = command.into();
        command.process_group(0);
        Self::start(command, Reach::Group)
    }

    /// Waits less long than the usual bound.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    fn start(mut command: Command, reach: Reach) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let id = child.id().expect("a child that was not awaited has an id");
        let pid = Pid::from_raw(id.try_into().expect("process ids are positive"));
        let output = watch::Sender::new(Output { pipes_open: 2, ..Output::default() });
        let mut readers = JoinSet::new();
        readers.spawn(capture(child.stdout.take().expect("stdout is piped"), output.clone()));
        readers.spawn(capture(child.stderr.take().expect("stderr is piped"), output.clone()));
        Self { child, pid, reach, output, readers, deadline: WAIT_MAX }
    }

    /// The process id, also after the process is gone.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// The captured lines, standard output and standard error as they came in.
    pub fn lines(&self) -> Vec<String> {
        self.output.borrow().lines.iter().cloned().collect()
    }

    /// The place after the last line captured so far.
    pub fn mark(&self) -> Mark {
        Mark(self.output.borrow().count)
    }

    /// Waits for a line that contains `pattern`, among those kept and those to come, and returns it.
    /// Panics with the output at the deadline, or as soon as the output has ended without it.
    pub async fn wait_for_line(&self, pattern: &str) -> String {
        self.wait_for_line_after(Mark(0), pattern).await
    }

    /// Like `wait_for_line`, for lines after the mark only.
    pub async fn wait_for_line_after(&self, mark: Mark, pattern: &str) -> String {
        let mut output = self.output.subscribe();
        let seen = output.wait_for(|output| output.find(mark, pattern).is_some() || output.pipes_open == 0);
        let found = match timeout(self.deadline, seen).await {
            Ok(output) => output.ok().and_then(|output| output.find(mark, pattern).cloned()),
            Err(_) => None,
        };
        found.unwrap_or_else(|| self.fail(&format!("wrote no line with {pattern:?}")))
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills with `SIGKILL`, reaps, and returns how the process ended.
    pub async fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.wait_exit().await
    }

    /// Kills as soon as a line contains `pattern`, and returns the line.
    pub async fn kill_on_line(&mut self, pattern: &str) -> String {
        let line = self.wait_for_line(pattern).await;
        self.kill().await;
        line
    }

    /// Kills as soon as the future is ready, and returns what it gave.
    pub async fn kill_when<T>(&mut self, moment: impl Future<Output = T>) -> T {
        let Ok(value) = timeout(self.deadline, moment).await else {
            self.fail(&format!("was not killed, the moment did not come within {:?}", self.deadline))
        };
        self.kill().await;
        value
    }

    /// Asks the process to end, with `SIGTERM`.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Does what Ctrl-C does, with `SIGINT`.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Stops the process with `SIGSTOP`, and returns when it has stopped or ended.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED;
        // WNOWAIT leaves an ended process for the runtime to reap.
        let look = stopped | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        let still = || !matches!(waitid(Id::Pid(self.pid), look), Ok(WaitStatus::StillAlive));
        assert!(poll_kernel(still), "process {} did not stop within {KERNEL_WAIT_MAX:?}", self.pid);
    }

    /// Lets a paused process go on, with `SIGCONT`.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits for the process to end and for its last output. Panics with the output at the deadline.
    pub async fn wait_exit(&mut self) -> ExitStatus {
        let Ok(status) = timeout(self.deadline, self.child.wait()).await else {
            self.fail(&format!("still runs after {:?}", self.deadline))
        };
        let drained = async { while self.readers.join_next().await.is_some() {} };
        let _ = timeout(DRAIN_WAIT_MAX, drained).await;
        status.expect("the runtime alone reaps this child")
    }

    fn fail(&self, what: &str) -> ! {
        let output = self.output.borrow().to_string();
        panic!("process {} {what}; its output:\n{output}", self.pid)
    }

    /// A process that was reaped is not signalled: its id may belong to another by now.
    fn signal(&self, signal: Signal) {
        if self.child.id().is_none() {
            return;
        }
        let sent = match self.reach {
            Reach::Process => kill(self.pid, signal),
            Reach::Group => killpg(self.pid, signal),
        };
        sent.unwrap_or_else(|error| panic!("cannot send {signal} to process {}: {error}", self.pid));
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        // Past the bound the runtime reaps it later; a failed test must not hang here.
        poll_kernel(|| !matches!(self.child.try_wait(), Ok(None)));
    }
}

/// Asks until yes or the bound. The kernel needs microseconds, so the thread may wait.
fn poll_kernel(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + KERNEL_WAIT_MAX;
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// What the process wrote: the newest lines, and how many there ever were.
#[derive(Debug, Default)]
struct Output {
    lines: VecDeque<String>,
    count: u64,
    pipes_open: usize,
}

impl Output {
    fn push(&mut self, line: &[u8]) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
        self.count += 1;
    }

    fn forgotten(&self) -> u64 {
        self.count - self.lines.len() as u64
    }

    fn find(&self, mark: Mark, pattern: &str) -> Option<&String> {
        let skip = usize::try_from(mark.0.saturating_sub(self.forgotten())).unwrap_or(usize::MAX);
        self.lines.iter().skip(skip).find(|line| line.contains(pattern))
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "({} earlier lines forgotten)", self.forgotten())?;
        self.lines.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Reads one pipe to its end, so that the child never blocks on a full one.
async fn capture(pipe: impl AsyncRead + Unpin, output: watch::Sender<Output>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        output.send_modify(|output| output.push(&line));
        line.clear();
    }
    output.send_modify(|output| output.pipes_open -= 1);
}
