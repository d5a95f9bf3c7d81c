//! Streams on a full disk: a small file system that the test mounts.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use towpath_testkit::victim::Victim;
use towpath_testkit::wait::{until_some, until_true};

use crate::towpath::{PROGRAM, Place};

const DISK_MIB: usize = 24;
const FILLER_MIB: usize = 8;

/// A stream on a small file system that a helper process keeps mounted.
struct Small {
    place: Place,
    holder: Victim,
    http: reqwest::Client,
    url: String,
}

/// S06: a full disk answers 507 and says what to do, reads go on, and appends resume when
/// there is room; what was acknowledged is all there and nothing else.
#[tokio::test]
async fn a_full_disk_is_507_until_there_is_room() {
    let small = Small::new().await;
    let _server = small.serve().await;
    small.create().await;

    // The store itself may give some room back when it first meets the end of the disk, so
    // the disk counts as full when nothing fits for a while.
    let (mut acknowledged, mut refused) = (0, 0);
    while refused < 10 {
        let answer = small.append(acknowledged).await;
        if answer.status() == 204 {
            (acknowledged, refused) = (acknowledged + 1, 0);
            assert!(acknowledged < DISK_MIB << 4, "the disk cannot hold so much");
            continue;
        }
        assert_eq!(answer.status(), 507);
        let said = answer.text().await.unwrap();
        assert!(said.contains("disk_full") && said.contains("free some space"), "{said}");
        refused += 1;
    }
    assert_eq!(small.stored().await, acknowledged, "reads go on");

    std::fs::remove_file(small.data().join("filler")).unwrap();
    small.append_when_there_is_room(acknowledged).await;
    assert_eq!(small.stored().await, acknowledged + 1);
}

/// S06: a server that is killed on a full disk starts again on it: everything can be read, appends are refused with
/// a reason, and when there is room they succeed and commands find the server.
#[tokio::test]
async fn a_server_starts_on_a_full_disk_and_serves_reads() {
    let small = Small::new().await;
    let mut server = small.serve().await;
    small.create().await;
    let mut acknowledged = 0;
    while small.append(acknowledged).await.status() == 204 {
        acknowledged += 1;
        assert!(acknowledged < DISK_MIB << 4, "the disk cannot hold so much");
    }
    server.kill().await;

    // A start gives back what the last run had prepared. Sooner or later nothing at all fits.
    let mut fillers = vec!["filler".to_owned()];
    let server = until_some("a start without any room", async || {
        fillers.push(format!("more-{}", fillers.len()));
        fill(&small.data().join(&fillers[fillers.len() - 1]));
        let mut server = small.serve().await;
        assert_eq!(small.stored().await, acknowledged, "everything can be read");
        if server.lines().iter().any(|line| line.contains("cannot write")) {
            return Some(server);
        }
        server.kill().await;
        None
    })
    .await;
    let refused = small.append(acknowledged).await;
    assert_eq!(refused.status(), 507);
    assert!(refused.text().await.unwrap().contains("free some space"));
    assert!(!small.data().join("server.json").exists(), "no door of an earlier run is left");

    for name in fillers {
        std::fs::remove_file(small.data().join(name)).unwrap();
    }
    small.append_when_there_is_room(acknowledged).await;
    server.wait_for_line("commands can find this server").await;
    assert_eq!(small.stored().await, acknowledged + 1);
    assert!(small.data().join("server.json").exists());
}

impl Small {
    /// A file system with a file in it that can be removed.
    async fn new() -> Small {
        let place = Place::new();
        let script = format!(
            "mkdir -p data && mount -t tmpfs -o size={DISK_MIB}m none data && \
             head -c {FILLER_MIB}M /dev/zero >data/filler && echo held && exec sleep infinity"
        );
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", &script]).current_dir(&place.dir);
        let holder = Victim::spawn(command);
        holder.wait_for_line("held").await;
        let url = format!("http://127.0.0.1:{}/v1/stream/full", place.port);
        Small { place, holder, http: reqwest::Client::builder().no_proxy().build().unwrap(), url }
    }

    /// The file system from outside.
    fn data(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid()));
        root.join(self.place.dir.strip_prefix("/").unwrap()).join("data")
    }

    async fn serve(&self) -> Victim {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.pid().to_string(), "--mount"]);
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        let script = format!("cd '{}' && exec \"$0\" serve --data data", self.place.dir.display());
        command.args(["sh", "-c", &script, PROGRAM]);
        command.env_remove("DATABASE_URL").env("TOWPATH_LISTEN", format!("127.0.0.1:{}", self.place.port));
        let server = Victim::spawn(command);
        server.wait_for_line("towpath is ready").await;
        server
    }

    async fn create(&self) {
        let put = self.http.put(&self.url).header("content-type", "text/plain").send().await.unwrap();
        assert_eq!(put.status(), 201);
    }

    async fn append(&self, number: usize) -> reqwest::Response {
        let body = format!("{number:08}").repeat(8 << 10);
        self.http.post(&self.url).header("content-type", "text/plain").body(body).send().await.unwrap()
    }

    async fn append_when_there_is_room(&self, number: usize) {
        until_true("an append, as there is room", async || self.append(number).await.status() == 204).await;
    }

    /// Reads the whole stream, page by page, and returns how many appends it holds, in order.
    async fn stored(&self) -> usize {
        let (mut offset, mut all) = ("-1".to_owned(), String::new());
        loop {
            let page = self.http.get(format!("{}?offset={offset}", self.url)).send().await.unwrap();
            assert_eq!(page.status(), 200);
            let header = |name: &str| page.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
            let is_last = header("stream-up-to-date").is_some();
            offset = header("stream-next-offset").unwrap();
            all += &page.text().await.unwrap();
            if is_last {
                break;
            }
        }
        let appends: Vec<&str> =
            all.as_bytes().chunks(64 << 10).map(|it| std::str::from_utf8(it).unwrap()).collect();
        for (number, append) in appends.iter().enumerate() {
            assert_eq!(*append, format!("{number:08}").repeat(8 << 10), "append {number}");
        }
        appends.len()
    }
}

/// Fills the disk to the last byte.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 4 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
