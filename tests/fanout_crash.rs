//! F03, F05, F06: a thousand sessions, a server that is killed in the middle of publishing again
//! and again, sessions that come late, leave, come back and die. Each holds exactly what was
//! published while it followed, once, in order.
//!
//! `TOWPATH_TEST_FANOUT_SESSIONS=10000` and `TOWPATH_TEST_FANOUT_KILLS=50` make it a campaign.

#![expect(clippy::single_range_in_vec_init, reason = "times a session followed are ranges, often one")]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use towpath_testkit::victim::Victim;

use crate::towpath::Place;

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

/// Shown a bad history, the checker says so.
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

    /// Publishes message after message as one producer, and repeats what was not answered.
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
    let victim = Victim::spawn(place.command(&["serve"])).with_deadline(Duration::from_secs(60));
    victim.wait_for_line("ready at").await;
    victim
}

async fn in_parallel(numbers: impl Iterator<Item = usize>, work: impl AsyncFn(usize)) {
    futures_util::stream::iter(numbers).for_each_concurrent(64, |number| work(number)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_holds_exactly_what_was_published_while_it_followed() {
    let (sessions, kills) =
        (setting("TOWPATH_TEST_FANOUT_SESSIONS", 1000), setting("TOWPATH_TEST_FANOUT_KILLS", 5));
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
    // Session `n` of each source follows from the start; a few more come later.
    in_parallel(0..sessions, async |number| {
        let source = if number < FEW { SOURCES[1] } else { SOURCES[0] };
        world.change(Method::POST, "subscribe", number, source).await;
    })
    .await;
    let mut late = vec![];
    let mut away: Vec<(usize, Vec<Range<u64>>)> = vec![];
    for round in 0..kills as u64 {
        let until = (round + 1) * PUBLISHES;
        let kill_at = round * PUBLISHES + fastrand::u64(1..PUBLISHES);
        let dead = FEW + 1 + round as usize;
        let killer = async {
            let moment = async {
                while world.published[0].load(Ordering::SeqCst) < kill_at {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            server.kill_when(moment).await;
            server = serve(&place).await;
            // One dies while the others are published to.
            let path = format!("/v1/app/session/{}", session(dead));
            assert_eq!(world.send(Method::DELETE, &path, None).await.unwrap().status(), 200);
        };
        tokio::join!(world.publish(0, until), world.publish(1, until), killer);
        // One comes late, one leaves, and the one that left a round ago comes back.
        let newcomer = sessions + round as usize;
        world.change(Method::POST, "subscribe", newcomer, SOURCES[0]).await;
        late.push((newcomer, until));
        if let Some((back, times)) = away.last_mut() {
            world.change(Method::POST, "subscribe", *back, SOURCES[0]).await;
            times.push(until..u64::MAX);
        }
        let leaver = FEW + 1 + kills + round as usize;
        world.change(Method::DELETE, "unsubscribe", leaver, SOURCES[0]).await;
        away.push((leaver, vec![0..until]));
    }
    let total = kills as u64 * PUBLISHES + PUBLISHES;
    tokio::join!(world.publish(0, total), world.publish(1, total));

    // Everything is delivered sooner or later, with nobody publishing any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let sources: Value =
            world.send(Method::GET, "/v1/app/sources", None).await.unwrap().json().await.unwrap();
        let lag: Vec<&Value> =
            sources["sources"].as_array().unwrap().iter().map(|one| &one["lagBytes"]).collect();
        if lag.iter().all(|lag| **lag == 0) {
            break;
        }
        assert!(Instant::now() < deadline, "still behind: {sources}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for source in SOURCES {
        let all = world.values(&format!("/v1/app/stream/{source}")).await;
        check(&all, &[0..total]).unwrap_or_else(|why| panic!("source {source}: {why}"));
    }
    let gone = FEW + 1..FEW + 1 + kills;
    let expected = |number: usize| -> Vec<Range<u64>> {
        let late = late.iter().find(|(one, _)| *one == number).map(|(_, from)| vec![*from..total]);
        let away = away.iter().find(|(one, _)| *one == number);
        let away = away.map(|(_, times)| times.iter().map(|time| time.start..time.end.min(total)).collect());
        late.or(away).unwrap_or_else(|| vec![0..total])
    };
    in_parallel(0..sessions + kills, async |number| {
        if gone.contains(&number) {
            let answer = world.send(Method::GET, &stream(number), None).await.unwrap();
            assert_eq!(answer.status(), 404, "session {number} was deleted");
            return;
        }
        let found = world.values(&stream(number)).await;
        check(&found, &expected(number)).unwrap_or_else(|why| panic!("session {number}: {why}"));
    })
    .await;
    server.terminate();
    server.wait_exit(Duration::from_secs(60)).await;
}
