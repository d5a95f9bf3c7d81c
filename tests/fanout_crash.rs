//! F03, F05, F06: a thousand sessions, and a server that is killed again and again while it publishes.
//! Sessions join late, leave, come back and are deleted; some are read live, fast or slowly, all the
//! time. Each holds exactly what was published while it followed, once and in order.
//!
//! `TOWPATH_TEST_FANOUT_SESSIONS=10000` and `TOWPATH_TEST_FANOUT_KILLS=50` make it a long run.

#![expect(clippy::single_range_in_vec_init, reason = "times a session followed are ranges, often one")]

mod watch;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use towpath_testkit::victim::Victim;

use crate::towpath::Place;
use towpath_testkit::wait;
use watch::Pace;

/// Followed by everybody, delivered by the worker; followed by a few, delivered inline.
const SOURCES: [&str; 2] = ["many", "few"];
const FEW: usize = 40;
/// Publishes of one source between two kills.
const PUBLISHES: u64 = 25;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether a session holds exactly the messages of these times, in order.
fn check(found: &[u64], followed: &[Range<u64>]) -> Result<(), String> {
    let expected: Vec<u64> = followed.iter().cloned().flatten().collect();
    match found.iter().zip(&expected).position(|(one, other)| one != other) {
        Some(at) => Err(format!("message {at} is {} instead of {}", found[at], expected[at])),
        None if found.len() != expected.len() => {
            Err(format!("{} messages instead of {}", found.len(), expected.len()))
        }
        None => Ok(()),
    }
}

/// The checker finds a bad history.
#[test]
fn the_checker_sees_loss_doubles_and_disorder() {
    let followed = [0..3, 5..7];
    assert_eq!(check(&[0, 1, 2, 5, 6], &followed), Ok(()));
    for bad in [&[0, 1, 2, 5][..], &[0, 1, 1, 2, 5, 6], &[0, 2, 1, 5, 6], &[0, 1, 2, 3, 5, 6], &[1, 2, 5, 6]]
    {
        assert!(check(bad, &followed).is_err(), "{bad:?}");
    }
}

struct World {
    http: Client,
    base: String,
    /// Messages of each source that were acknowledged.
    published: [AtomicU64; 2],
}

impl World {
    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> reqwest::Result<Response> {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match body {
            Some(body) => request.json(&body).send().await,
            None => request.send().await,
        }
    }

    async fn change(&self, method: Method, verb: &str, number: usize, source: &str) {
        let body = json!({ "sessionId": session(number), "streamId": source });
        let answer = self.send(method, &format!("/v1/app/{verb}"), Some(body)).await.unwrap();
        assert!(answer.status().is_success(), "{verb} {number} {source}: {}", answer.status());
    }

    /// Publishes message after message as one producer, and retries what was not acknowledged.
    async fn publish(&self, which: usize, until: u64) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let number = self.published[which].load(Ordering::SeqCst);
            if number >= until {
                return;
            }
            assert!(Instant::now() < deadline, "{} stopped at {number}", SOURCES[which]);
            let url = format!("{}/v1/app/publish/{}", self.base, SOURCES[which]);
            let request = self.http.post(url).header("content-type", "application/json");
            let request = request.header("producer-id", "campaign").header("producer-epoch", 0);
            match request.header("producer-seq", number).body(number.to_string()).send().await {
                Ok(answer) if answer.status().is_success() => {
                    self.published[which].store(number + 1, Ordering::SeqCst);
                }
                Ok(answer) => panic!("{}: {}", SOURCES[which], answer.status()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn values(&self, path: &str) -> Vec<u64> {
        let answer = self.send(Method::GET, path, None).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }
}

fn session(number: usize) -> String {
    format!("0190f5a4-5c2e-7bb0-9f33-{number:012}")
}

fn stream(number: usize) -> String {
    format!("/v1/app/stream/session:{}", session(number))
}

async fn serve(place: &Place) -> Victim {
    let victim = Victim::spawn(place.command(&["serve", "--fanout-queue-threshold", "200"]));
    victim.wait_for_line("ready at").await;
    victim
}

async fn in_parallel(numbers: impl Iterator<Item = usize>, work: impl AsyncFn(usize)) {
    futures_util::stream::iter(numbers).for_each_concurrent(64, |number| work(number)).await;
}

/// Sessions by what happens to them. All others follow from the first message to the last.
struct Cast {
    sessions: usize,
    kills: usize,
    /// How many join, leave, come back and are deleted between two kills.
    churn: usize,
}

impl Cast {
    fn new() -> Cast {
        let sessions = setting("TOWPATH_TEST_FANOUT_SESSIONS", 1000);
        let cast =
            Cast { sessions, kills: setting("TOWPATH_TEST_FANOUT_KILLS", 5), churn: (sessions / 500).max(1) };
        assert!(cast.leavers(cast.kills).end < sessions - 4, "too many kills for so few sessions");
        cast
    }

    /// Sessions deleted in a round.
    fn dead(&self, round: usize) -> Range<usize> {
        let from = FEW + round * self.churn;
        from..from + self.churn
    }

    /// Sessions that leave after a round and come back after the next.
    fn leavers(&self, round: usize) -> Range<usize> {
        let from = FEW + (self.kills + round) * self.churn;
        from..from + self.churn
    }

    /// Sessions that join late, after a round.
    fn late(&self, round: usize) -> Range<usize> {
        let from = self.sessions + round * self.churn;
        from..from + self.churn
    }

    /// Sessions with live readers: two of each source, one fast and one slow.
    fn watched(&self) -> [(usize, Pace); 4] {
        let last = self.sessions - 1;
        [(0, Pace::Fast), (1, Pace::Slow), (last, Pace::Fast), (last - 1, Pace::Slow)]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_holds_exactly_what_was_published_while_it_followed() {
    let cast = Cast::new();
    let total = (cast.kills as u64 + 1) * PUBLISHES;
    let place = Place::new();
    let mut server = serve(&place).await;
    let world = World {
        http: Client::builder().no_proxy().build().unwrap(),
        base: format!("http://127.0.0.1:{}", place.port),
        published: Default::default(),
    };
    for source in SOURCES {
        let put = world.http.put(format!("{}/v1/app/stream/{source}", world.base));
        put.header("content-type", "application/json").send().await.unwrap();
    }
    in_parallel(0..cast.sessions, async |number| {
        let source = if number < FEW { SOURCES[1] } else { SOURCES[0] };
        world.change(Method::POST, "subscribe", number, source).await;
    })
    .await;
    let watchers = cast.watched().map(|(number, pace)| {
        let url = format!("{}{}", world.base, stream(number));
        tokio::spawn(watch::follow(world.http.clone(), url, pace, total))
    });
    // When the others of the many followed; without an entry: from the first to the last.
    let mut followed: HashMap<usize, Vec<Range<u64>>> = HashMap::new();
    for round in 0..cast.kills {
        let until = (round as u64 + 1) * PUBLISHES;
        let kill_at = round as u64 * PUBLISHES + fastrand::u64(1..PUBLISHES);
        let killer = async {
            let moment = async {
                while world.published[0].load(Ordering::SeqCst) < kill_at {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(..4000))).await;
            };
            server.kill_when(moment).await;
            server = serve(&place).await;
            // Some die while the others are published to.
            in_parallel(cast.dead(round), async |number| {
                let path = format!("/v1/app/session/{}", session(number));
                assert_eq!(world.send(Method::DELETE, &path, None).await.unwrap().status(), 200);
            })
            .await;
        };
        tokio::join!(world.publish(0, until), world.publish(1, until), killer);
        let back = if round > 0 { cast.leavers(round - 1) } else { 0..0 };
        in_parallel(cast.late(round).chain(back.clone()), async |number| {
            world.change(Method::POST, "subscribe", number, SOURCES[0]).await;
        })
        .await;
        in_parallel(cast.leavers(round), async |number| {
            world.change(Method::DELETE, "unsubscribe", number, SOURCES[0]).await;
        })
        .await;
        for number in cast.late(round).chain(back) {
            followed.entry(number).or_default().push(until..total);
        }
        for number in cast.leavers(round) {
            followed.insert(number, vec![0..until]);
        }
    }
    tokio::join!(world.publish(0, total), world.publish(1, total));

    // Everything is delivered sooner or later, with nobody publishing any more.
    let look = async || -> Value {
        world.send(Method::GET, "/v1/app/sources", None).await.unwrap().json().await.unwrap()
    };
    let is_delivered =
        |all: &Value| all["sources"].as_array().unwrap().iter().all(|source| source["lagBytes"] == 0);
    wait::until("the delivery of everything", look, is_delivered).await;
    for source in SOURCES {
        let all = world.values(&format!("/v1/app/stream/{source}")).await;
        check(&all, &[0..total]).unwrap_or_else(|why| panic!("source {source}: {why}"));
    }
    let mut connections = 0;
    for ((number, _), watcher) in cast.watched().iter().zip(watchers) {
        let (seen, came) = watcher.await.unwrap();
        check(&seen, &[0..total]).unwrap_or_else(|why| panic!("the reader of session {number}: {why}"));
        connections += came;
    }
    let gone = cast.dead(0).start..cast.dead(cast.kills).start;
    let checked = AtomicUsize::new(0);
    in_parallel(0..cast.late(cast.kills).start, async |number| {
        if gone.contains(&number) {
            let answer = world.send(Method::GET, &stream(number), None).await.unwrap();
            assert_eq!(answer.status(), 404, "session {number} was deleted");
            return;
        }
        let found = world.values(&stream(number)).await;
        let expected = followed.get(&number).cloned().unwrap_or_else(|| vec![0..total]);
        check(&found, &expected).unwrap_or_else(|why| panic!("session {number}: {why}"));
        checked.fetch_add(found.len(), Ordering::SeqCst);
    })
    .await;
    println!(
        "{} sessions, {} kills, {} publishes: {} messages in sessions are right; {} died, {} came late, {} left \
         and came back; 4 live readers came back {} times",
        cast.sessions,
        cast.kills,
        total * 2,
        checked.into_inner(),
        gone.len(),
        cast.kills * cast.churn,
        cast.kills.saturating_sub(1) * cast.churn,
        connections - 4
    );
    server.terminate();
    server.wait_exit().await;
}
