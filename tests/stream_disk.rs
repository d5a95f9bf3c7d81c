//! Streams on a disk that is really full: a small file system of the test's own.

use std::path::PathBuf;
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
