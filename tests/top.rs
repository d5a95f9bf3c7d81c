//! `towpath top` on a terminal: it draws, it quits, and it leaves the terminal as it was.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use towpath_testkit::victim::Victim;

use crate::towpath::{Place, WAIT_MAX, words};

const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

/// A terminal with a program in it.
struct Terminal {
    keyboard: File,
    /// Kept open, to see the modes that the program left behind.
    inside: OwnedFd,
    before: Termios,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    fn run(mut command: Command) -> Terminal {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        // Clones close when the program starts; what it gets are copies of these.
        let end = || pair.slave.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let child = command.spawn().unwrap();
        let seen = Arc::new(Mutex::new(vec![]));
        let (mut screen, kept) = (File::from(pair.master.try_clone().unwrap()), seen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Terminal { keyboard: File::from(pair.master), inside: pair.slave, before, seen, child }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// What a person sees: only what changed is sent, so the bytes alone do not show it.
    fn screen(&self) -> String {
        let mut screen = vt100::Parser::new(ROWS.try_into().unwrap(), COLUMNS.try_into().unwrap(), 0);
        screen.process(&self.seen.lock().unwrap());
        screen.screen().contents()
    }

    async fn wait_for(&self, words: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        while !self.screen().contains(words) {
            assert!(Instant::now() < deadline, "{words} never came: {}", self.screen());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn wait_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it did not end: {:?}", self.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The first screen is back, the cursor too, and keys mean what they meant.
    async fn is_as_before(&self) {
        let deadline = Instant::now() + WAIT_MAX;
        while !self.text().contains("\x1b[?1049l") {
            assert!(Instant::now() < deadline, "the screen was not given back: {:?}", self.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let text = self.text();
        assert!(text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h"), "{text:?}");
        assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "{text:?}");
        let now = tcgetattr(&self.inside).unwrap();
        assert_eq!(now.local_flags, self.before.local_flags);
        assert_eq!(now.input_flags, self.before.input_flags);
        assert_eq!(now.output_flags, self.before.output_flags);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// O04: it draws what is there, turns pages, and whatever ends it, the terminal is as before.
#[tokio::test]
async fn top_draws_and_gives_the_terminal_back() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["job", "enqueue", "nobody.runs.this"]);

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    top.press("2");
    top.wait_for("nobody.runs.this").await;
    top.press("q");
    assert_eq!(top.wait_exit().await.code(), Some(0));
    top.is_as_before().await;

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    top.press("\x03");
    assert_eq!(top.wait_exit().await.code(), Some(0), "Ctrl-C");
    top.is_as_before().await;

    let mut top = Terminal::run(place.command(&["top"]));
    top.wait_for("Needs attention").await;
    kill(Pid::from_raw(top.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(top.wait_exit().await.code(), Some(0), "SIGTERM");
    top.is_as_before().await;

    let mut command = place.command(&["top"]);
    command.env("TOWPATH_TEST_FAIL_POINT", "top.draw");
    let mut top = Terminal::run(command);
    assert_eq!(top.wait_exit().await.code(), Some(101), "a panic");
    top.is_as_before().await;
    assert!(top.text().contains("a test asked for it"), "{:?}", top.text());

    let frame: Value = serde_json::from_str(&place.ok(&["top", "--once", "--json"])).unwrap();
    assert_eq!(frame["queue"]["queued"], 1);
    assert!(frame["rates"].is_object() && frame["streams"]["missing"].is_null(), "{frame}");
    assert!(place.ok(&["top", "--once"]).contains("Needs attention"));
    let piped = place.run(&["top"]);
    assert_eq!(piped.status.code(), Some(1));
    assert!(words(&piped).contains("towpath top --once --json"), "{}", words(&piped));
    up.terminate();
    up.wait_exit(WAIT_MAX).await;
}
