//! S04: two nodes on one log in PostgreSQL. The node that serves is killed, paused past its lease, or comes back without
//! its cache, while writers retry as idempotent producers: every acknowledged append is there once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::until_true;

use crate::towpath::Place;

const WRITERS: usize = 6;

/// A node that serves, or stands by.
struct Node {
    place: Place,
    victim: Option<Victim>,
}

impl Node {
    fn new() -> Node {
        Node { place: Place::new(), victim: None }
    }

    fn start(&mut self, db: &TestDb) {
        let arguments = ["serve", "--stream-store", "postgres", "--database-url", &db.url()];
        self.victim = Some(Victim::spawn(self.place.command(&arguments)));
    }

    fn victim(&mut self) -> &mut Victim {
        self.victim.as_mut().unwrap()
    }

    fn signal(&mut self, signal: Signal) {
        kill(Pid::from_raw(self.victim().pid().cast_signed()), signal).unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/stream/a", self.place.port)
    }
}

/// What happens to the node that serves.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    /// It is killed, and starts again with an empty disk.
    LoseCache,
    /// It is stopped until the other one serves, and then continued.
    Pause,
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(3)).build().unwrap()
}

/// Appends number after number as one producer, to whichever node answers.
async fn write(
    writer: usize,
    urls: [String; 2],
    stop: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicU64; WRITERS]>,
) {
    let (http, mut at, mut seq) = (http(), 0, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let request = http.post(&urls[at]).header("content-type", "text/plain");
        let request = request.header("producer-id", format!("w{writer}")).header("producer-epoch", "0");
        let request = request.header("producer-seq", seq).body(format!("{writer}:{seq};"));
        match request.send().await {
            Ok(answer) if answer.status().is_success() => {
                seq += 1;
                acknowledged[writer].store(seq, Ordering::Relaxed);
            }
            Ok(answer) if answer.status() == 503 => {}
            Ok(answer) => panic!("writer {writer} {seq}: {}", answer.status()),
            Err(_) => at = 1 - at,
        }
    }
}

async fn stored(url: &str) -> String {
    let (http, mut offset, mut all) = (http(), "-1".to_owned(), String::new());
    loop {
        let page = http.get(format!("{url}?offset={offset}")).send().await.unwrap();
        assert_eq!(page.status(), 200);
        let header = |name: &str| page.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        let is_last = header("stream-up-to-date").is_some();
        offset = header("stream-next-offset").unwrap();
        all += &page.text().await.unwrap();
        if is_last {
            return all;
        }
    }
}

/// Whether a writer's messages are there from the first on, once and in order, and all that were acknowledged.
fn check(stored: &str, writer: usize, acknowledged: u64) -> Result<(), String> {
    let own = stored.split_terminator(';').filter_map(|it| it.split_once(':'));
    let own: Vec<u64> =
        own.filter(|(who, _)| *who == writer.to_string()).map(|(_, seq)| seq.parse().unwrap()).collect();
    let is_sequence = own.iter().enumerate().all(|(at, seq)| at as u64 == *seq);
    let count = own.len() as u64;
    // One more may be stored: its answer was lost, and the writer was stopped before it retried.
    if is_sequence && (acknowledged..=acknowledged + 1).contains(&count) {
        return Ok(());
    }
    Err(format!("writer {writer}: {acknowledged} acknowledged, stored {own:?}"))
}

/// The checker finds a bad history.
#[test]
fn the_checker_of_two_nodes_sees_loss_doubles_and_disorder() {
    assert_eq!(check("0:0;1:0;0:1;", 0, 2), Ok(()));
    for bad in ["0:0;", "0:0;0:0;0:1;", "0:1;0:0;", "0:1;0:2;"] {
        assert!(check(bad, 0, 2).is_err(), "{bad}");
    }
}

/// S04: nothing acknowledged is lost or repeated by five takeovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeovers_lose_and_repeat_nothing() {
    let db = TestDb::new().await;
    let mut nodes = [Node::new(), Node::new()];
    nodes[0].start(&db);
    nodes[0].victim().wait_for_line("towpath is ready").await;
    nodes[1].start(&db);
    nodes[1].victim().wait_for_line("standing by").await;
    let created = http().put(nodes[0].url()).header("content-type", "text/plain").send().await.unwrap();
    assert_eq!(created.status(), 201);

    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicU64; WRITERS]>::default());
    let urls = [nodes[0].url(), nodes[1].url()];
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(writer, urls.clone(), stop.clone(), acknowledged.clone())))
        .collect();
    let progress = async || {
        let sum = || acknowledged.iter().map(|seq| seq.load(Ordering::Relaxed)).sum::<u64>();
        let before = sum();
        until_true("appends", async || sum() > before + 60).await;
    };
    let mut serving = 0;
    for fault in [Fault::Kill, Fault::Pause, Fault::LoseCache, Fault::Kill, Fault::Pause] {
        progress().await;
        let other = 1 - serving;
        match fault {
            Fault::Kill | Fault::LoseCache => drop(nodes[serving].victim().kill().await),
            Fault::Pause => nodes[serving].signal(Signal::SIGSTOP),
        }
        nodes[other].victim().wait_for_line("towpath is ready").await;
        if matches!(fault, Fault::Pause) {
            nodes[serving].signal(Signal::SIGCONT);
            nodes[serving].victim().wait_for_line("this one stops").await;
            let victim = nodes[serving].victim.as_mut().unwrap();
            until_true("its end", async || !victim.is_running()).await;
        }
        if matches!(fault, Fault::LoseCache) {
            std::fs::remove_dir_all(nodes[serving].place.data().join("stream-cache")).unwrap();
        }
        progress().await;
        nodes[serving].start(&db);
        nodes[serving].victim().wait_for_line("standing by").await;
        serving = other;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let all = stored(&nodes[serving].url()).await;
    for (writer, acknowledged) in acknowledged.iter().enumerate() {
        check(&all, writer, acknowledged.load(Ordering::Relaxed)).unwrap();
    }
}

/// S07: `towpath up` takes messages of SQL transactions in; a reader over HTTP gets them.
#[tokio::test]
async fn a_published_row_is_read_over_http() {
    let place = Place::new();
    let _up = place.up().await;
    place.ok(&["db", "psql", "--", "-qc", "select towpath.publish('orders', '{\"paid\": 7}')"]);
    let url = format!("http://127.0.0.1:{}/v1/stream/orders", place.port);
    until_true("the message", async || {
        let answer = http().get(&url).send().await.unwrap();
        answer.status() == 200 && answer.text().await.unwrap().contains("{\"paid\": 7}")
    })
    .await;
}
