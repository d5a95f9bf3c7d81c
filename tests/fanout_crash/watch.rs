//! Readers that follow a session through every kill: they read live, resume from their last offset when the
//! connection ends, and return what they read.

use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;

/// How a reader reads.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// Without pauses.
    Fast,
    /// With a pause after every chunk.
    Slow,
}

/// Far longer than the time between two messages.
const QUIET_MAX: Duration = Duration::from_secs(120);

/// Follows the session at `url` until it has read all messages; returns them, and how often it
/// reconnected.
pub(super) async fn follow(http: Client, url: String, pace: Pace, total: u64) -> (Vec<u64>, usize) {
    let (mut seen, mut next, mut connections) = (vec![], "-1".to_owned(), 0);
    let mut received_at = Instant::now();
    while (seen.len() as u64) < total {
        assert!(received_at.elapsed() < QUIET_MAX, "{url} is quiet after {} messages", seen.len());
        let request = http.get(format!("{url}?offset={next}&live=sse"));
        let Ok(mut response) = request.send().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        assert_eq!(response.status(), 200, "{url}?offset={next}");
        connections += 1;
        let (mut text, mut unsure) = (String::new(), vec![]);
        while let Ok(Some(chunk)) = response.chunk().await {
            text.push_str(std::str::from_utf8(&chunk).expect("events are text"));
            while let Some((block, rest)) = text.split_once("\n\n") {
                // Data counts once the control event behind it says where to go on.
                match read(block) {
                    Event::Data(mut numbers) => unsure.append(&mut numbers),
                    Event::Control(offset) => {
                        seen.append(&mut unsure);
                        (next, received_at) = (offset, Instant::now());
                    }
                }
                text = rest.to_owned();
            }
            if seen.len() as u64 >= total {
                break;
            }
            if let Pace::Slow = pace {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    (seen, connections)
}

enum Event {
    Data(Vec<u64>),
    Control(String),
}

fn read(block: &str) -> Event {
    let (kind, data) = block.split_once('\n').expect("an event has a name and data");
    let data: Vec<&str> = data.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let value: Value = serde_json::from_str(&data.join("\n")).expect("data is JSON");
    match kind {
        "event: data" => Event::Data(serde_json::from_value(value).expect("messages are numbers")),
        _ => Event::Control(value["streamNextOffset"].as_str().expect("an offset").to_owned()),
    }
}
