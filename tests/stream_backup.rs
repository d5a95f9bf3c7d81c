//! `towpath stream backup` under load, and `restore` elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::{Place, words};

const STREAMS: usize = 4;

/// One acknowledged append: its stream, its text, and the offset behind it.
type Acknowledged = (usize, String, String);

struct Writers {
    url: String,
    http: reqwest::Client,
    acknowledged: AtomicUsize,
    stop: CancellationToken,
}

impl Writers {
    /// Appends to one stream until stopped; answers everything that was acknowledged, in order.
    async fn write(self: Arc<Writers>, stream: usize) -> Vec<Acknowledged> {
        let mut done = vec![];
        while !self.stop.is_cancelled() {
            let text = format!("{stream}-{}|", done.len());
            let url = format!("{}/v1/stream/s{stream}", self.url);
            let request = self.http.post(url).header("content-type", "text/plain").body(text.clone());
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 204);
            let offset = response.headers()["stream-next-offset"].to_str().unwrap().to_owned();
            done.push((stream, text, offset));
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        done
    }
}

/// The bytes of every stream.
async fn content(url: &str) -> BTreeMap<usize, String> {
    let mut all = BTreeMap::new();
    for stream in 0..STREAMS {
        let text =
            reqwest::get(format!("{url}/v1/stream/s{stream}?offset=-1")).await.unwrap().text().await.unwrap();
        all.insert(stream, text);
    }
    all
}

/// S06, O05: a backup taken while four writers append holds everything that was acknowledged before it began, and
/// nothing but a beginning of what each wrote; offsets are the same after a restore into another place, and appends go
/// on there. Nonsense is refused: a directory that is not empty, no backup, a damaged file, a running server.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_holds_everything_acknowledged_before() {
    let place = Place::new();
    let mut server = Victim::spawn(place.command(&["serve"]));
    server.wait_for_line("ready at").await;
    for stream in 0..STREAMS {
        place.ok(&["stream", "create", &format!("s{stream}"), "--content-type", "text/plain"]);
    }
    let url = format!("http://127.0.0.1:{}", place.port);
    let writers = Arc::new(Writers {
        url: url.clone(),
        http: reqwest::Client::new(),
        acknowledged: AtomicUsize::new(0),
        stop: CancellationToken::new(),
    });
    let running: Vec<_> = (0..STREAMS).map(|stream| tokio::spawn(writers.clone().write(stream))).collect();
    let count = async || writers.acknowledged.load(Ordering::Relaxed);
    wait::until("some appends", count, |n| *n > 200).await;
    let before = content(&url).await;
    let backup = place.dir.join("backup");
    let backup = backup.to_str().unwrap();
    let at_backup = writers.acknowledged.load(Ordering::Relaxed);
    let command = |arguments: &[&str]| place.command(arguments);
    let mut written = command(&["stream", "backup", backup]);
    let written = tokio::task::spawn_blocking(move || written.output().unwrap()).await.unwrap();
    assert!(written.status.success(), "{}", words(&written));
    wait::until("appends after the backup", count, |n| *n > at_backup + 200).await;
    writers.stop.cancel();
    let mut acknowledged = vec![];
    for writer in running {
        acknowledged.extend(writer.await.unwrap());
    }
    let after = content(&url).await;
    let refused = |output: std::process::Output, text: &str| {
        assert!(!output.status.success() && words(&output).contains(text), "{text}: {}", words(&output));
    };
    refused(place.run(&["stream", "backup", backup]), "is not empty");
    refused(place.run(&["stream", "restore", backup]), "is not empty");
    server.kill().await;

    let other = Place::new();
    refused(other.run(&["stream", "restore", other.dir.to_str().unwrap()]), "is not a backup");
    other.ok(&["stream", "restore", backup]);
    let mut restored = Victim::spawn(other.command(&["serve"]));
    restored.wait_for_line("ready at").await;
    let url = format!("http://127.0.0.1:{}", other.port);
    let found = content(&url).await;
    for stream in 0..STREAMS {
        let text = &found[&stream];
        assert!(
            text.starts_with(&before[&stream]),
            "stream {stream} lost what was acknowledged before the backup"
        );
        assert!(after[&stream].starts_with(text), "stream {stream} holds what was never written");
    }
    assert_ne!(found, after, "the backup was taken while writers went on");
    // An offset that a reader had before the backup leads to the same place.
    for (stream, text, offset) in &acknowledged {
        let place = after[stream].find(text.as_str()).unwrap() + text.len();
        if place > before[stream].len() {
            continue;
        }
        let rest = reqwest::get(format!("{url}/v1/stream/s{stream}?offset={offset}")).await.unwrap();
        assert_eq!(rest.text().await.unwrap(), found[stream][place..], "offset {offset} of stream {stream}");
        if place * 2 > before[stream].len() {
            break;
        }
    }
    other.ok(&["stream", "append", "s0", "more"]);
    restored.terminate();
    assert_eq!(restored.wait_exit().await.code(), Some(0));

    let third = Place::new();
    let damaged =
        std::fs::read_dir(backup).unwrap().flatten().find(|file| file.path().extension().is_some()).unwrap();
    let mut bytes = std::fs::read(damaged.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(damaged.path(), bytes).unwrap();
    refused(third.run(&["stream", "restore", backup]), "its checksum differs");
    assert!(!third.data().join("streams").exists(), "nothing is restored from a damaged backup");
}
