//! Streams on a disk that is really full: a small file system of the test's own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use towpath_testkit::victim::Victim;

use crate::towpath::{PROGRAM, Place, WAIT_MAX};

const DISK_MIB: usize = 24;
const FILLER_MIB: usize = 8;

/// Starts `towpath serve` in a mount namespace of its own, where its data directory is a
/// small file system with a file in it that can be taken away.
async fn serve_on_a_small_disk(place: &Place) -> Victim {
    let script = format!(
        "mkdir -p data && mount -t tmpfs -o size={DISK_MIB}m none data && \
         head -c {FILLER_MIB}M /dev/zero >data/filler && exec \"$0\" serve --data data"
    );
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", &script, PROGRAM]).current_dir(&place.dir);
    command.env_remove("DATABASE_URL").env("TOWPATH_LISTEN", format!("127.0.0.1:{}", place.port));
    let victim = Victim::spawn(command);
    victim.wait_for_line("towpath is ready").await;
    victim
}

/// S06: a full disk answers 507 and says what to do, reads go on, and appends resume when
/// there is room; what was acknowledged is all there and nothing else.
#[tokio::test]
async fn a_full_disk_is_507_until_there_is_room() {
    let place = Place::new();
    let server = serve_on_a_small_disk(&place).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{}/v1/stream/full", place.port);
    let append = |number: usize| {
        let body = format!("{number:08}").repeat(8 << 10);
        http.post(&url).header("content-type", "text/plain").body(body).send()
    };
    assert_eq!(http.put(&url).header("content-type", "text/plain").send().await.unwrap().status(), 201);

    // The store itself may give some room back when it first meets the end of the disk, so
    // the disk counts as full when nothing fits for a while.
    let (mut acknowledged, mut refused) = (0, 0);
    while refused < 10 {
        let answer = append(acknowledged).await.unwrap();
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
    assert_eq!(stored(&http, &url).await, acknowledged, "reads go on");

    // The server's own view of its file system, from outside.
    let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let filler = root.join(place.dir.strip_prefix("/").unwrap()).join("data/filler");
    std::fs::remove_file(filler).unwrap();
    let deadline = Instant::now() + WAIT_MAX;
    while append(acknowledged).await.unwrap().status() != 204 {
        assert!(Instant::now() < deadline, "there is room, and appends are still refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    acknowledged += 1;
    assert_eq!(stored(&http, &url).await, acknowledged);
}

/// S06: a server that is killed on a full disk starts again on it: everything can be read, appends are refused in
/// words, and when there is room they are taken and commands find the server.
#[tokio::test]
async fn a_server_starts_on_a_full_disk_and_serves_reads() {
    let place = Place::new();
    let holder = hold_a_small_disk(&place).await;
    let mut server = serve_on(&holder, &place).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{}/v1/stream/full", place.port);
    let append = |number: usize| {
        let body = format!("{number:08}").repeat(8 << 10);
        http.post(&url).header("content-type", "text/plain").body(body).send()
    };
    assert_eq!(http.put(&url).header("content-type", "text/plain").send().await.unwrap().status(), 201);
    let mut acknowledged = 0;
    while append(acknowledged).await.unwrap().status() == 204 {
        acknowledged += 1;
        assert!(acknowledged < DISK_MIB << 4, "the disk cannot hold so much");
    }
    server.kill().await;

    // A start gives back what the last run had prepared. Sooner or later nothing at all fits.
    let data = seen_by(&holder, &place);
    let deadline = Instant::now() + WAIT_MAX;
    let mut fillers = vec!["filler".to_owned()];
    let server = loop {
        fillers.push(format!("more-{}", fillers.len()));
        fill(&data.join(&fillers[fillers.len() - 1]));
        let mut server = serve_on(&holder, &place).await;
        assert_eq!(stored(&http, &url).await, acknowledged, "everything can be read");
        if server.lines().iter().any(|line| line.contains("no room on the disk for")) {
            break server;
        }
        assert!(Instant::now() < deadline, "there is always room");
        server.kill().await;
    };
    let refused = append(acknowledged).await.unwrap();
    assert_eq!(refused.status(), 507);
    assert!(refused.text().await.unwrap().contains("free some space"));
    assert!(!data.join("server.json").exists(), "no door of an earlier run is left");

    for name in fillers {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    let deadline = Instant::now() + WAIT_MAX;
    while append(acknowledged).await.unwrap().status() != 204 {
        assert!(Instant::now() < deadline, "there is room, and appends are still refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.wait_for_line("commands find this server").await;
    assert_eq!(stored(&http, &url).await, acknowledged + 1);
    assert!(data.join("server.json").exists());
}

/// Writes to a file until not one byte fits.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 4 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// A process that keeps a small file system for those that are started on it later.
async fn hold_a_small_disk(place: &Place) -> Victim {
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
    holder
}

/// The small file system from outside.
fn seen_by(holder: &Victim, place: &Place) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", holder.pid()));
    root.join(place.dir.strip_prefix("/").unwrap()).join("data")
}

async fn serve_on(holder: &Victim, place: &Place) -> Victim {
    let mut command = Command::new("nsenter");
    command.args(["--target", &holder.pid().to_string(), "--mount"]);
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    let script = format!("cd '{}' && exec \"$0\" serve --data data", place.dir.display());
    command.args(["sh", "-c", &script, PROGRAM]);
    command.env_remove("DATABASE_URL").env("TOWPATH_LISTEN", format!("127.0.0.1:{}", place.port));
    let server = Victim::spawn(command).with_deadline(WAIT_MAX);
    server.wait_for_line("towpath is ready").await;
    server
}

/// Reads the whole stream, page by page, and answers how many appends it holds, in order.
async fn stored(http: &reqwest::Client, url: &str) -> usize {
    let (mut offset, mut all) = ("-1".to_owned(), String::new());
    loop {
        let page = http.get(format!("{url}?offset={offset}")).send().await.unwrap();
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
