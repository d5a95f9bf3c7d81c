//! A terminal with a program in it, for what people see and scripts do not.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use towpath_testkit::{TestDb, wait};

use crate::towpath::Place;

const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

pub(crate) struct Terminal {
    keyboard: File,
    /// Kept open, to see the modes that the program left behind.
    inside: OwnedFd,
    before: Termios,
    seen: Arc<Mutex<Vec<u8>>>,
    pub(crate) child: Child,
}

impl Terminal {
    pub(crate) fn run(mut command: Command) -> Terminal {
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

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// What a person sees: only what changed is sent, so the bytes alone do not show it.
    pub(crate) fn screen(&self) -> String {
        let mut screen = vt100::Parser::new(ROWS.try_into().unwrap(), COLUMNS.try_into().unwrap(), 0);
        screen.process(&self.seen.lock().unwrap());
        screen.screen().contents()
    }

    pub(crate) async fn wait_for(&self, words: &str) {
        wait::until(words, async || self.screen(), |screen| screen.contains(words)).await;
    }

    pub(crate) async fn wait_exit(&mut self) -> ExitStatus {
        wait::until_some("the end of the program", async || self.child.try_wait().unwrap()).await
    }

    /// The first screen is back, the cursor too, and keys mean what they meant.
    pub(crate) async fn is_as_before(&self) {
        let look = async || self.text();
        let text = wait::until("the first screen", look, |text| text.contains("\x1b[?1049l")).await;
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

/// O03: states have a colour and times are local on a terminal; in a pipe, and with `NO_COLOR`, nothing is coloured, and
/// a pipe gets times as in RFC 3339.
#[tokio::test]
async fn colours_and_local_times_are_for_terminals() {
    let db = TestDb::open().await;
    let place = Place::new();
    let command = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("DATABASE_URL", db.url()).env("TZ", "Asia/Tokyo").env_remove("NO_COLOR");
        command
    };
    let shown = async |command| {
        let mut terminal = Terminal::run(command);
        assert_eq!(terminal.wait_exit().await.code(), Some(0), "{}", terminal.text());
        wait::until("the last line", async || terminal.text(), |text| text.ends_with('\n')).await
    };
    db.freeze("2026-01-01T20:00:00Z".parse().unwrap()).await;
    let id = db.text("towpath.enqueue('towpath.noop', '{}')").await;
    let gates = shown(command(&["gate", "list"])).await;
    assert!(gates.contains("\x1b[32mopen\x1b[0m"), "{gates:?}");
    let mut plain = command(&["gate", "list"]);
    plain.env("NO_COLOR", "1");
    let plain = shown(plain).await;
    assert!(plain.contains("open") && !plain.contains('\x1b'), "{plain:?}");
    let job = shown(command(&["job", "show", &id])).await;
    assert!(job.contains("2026-01-02 05:00:00"), "{job}");
    let piped = command(&["job", "show", &id]).output().unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(piped.contains("2026-01-01T20:00:00Z") && !piped.contains('\x1b'), "{piped}");
}
