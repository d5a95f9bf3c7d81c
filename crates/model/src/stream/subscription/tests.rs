//! Tests of subscriptions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn webhook() -> Subscription {
    let config = json!({ "type": "webhook", "pattern": "events/*", "webhook": { "url": "https://x" } });
    Subscription::new(Config::parse(&config).unwrap(), at(0))
}

fn pull() -> Subscription {
    let config = json!({ "type": "pull-wake", "pattern": "events/*", "wake_stream": "/events/wake/",
        "lease_ttl_ms": 1000 });
    Subscription::new(Config::parse(&config).unwrap(), at(0))
}

/// Follows `events/a`, whose tail is 10, and is woken by it.
fn woken(mut subscription: Subscription) -> Subscription {
    let linked = subscription.link_matching("events/a", None).unwrap();
    subscription.apply(linked);
    let pending = subscription.pending(|_| Offset::new(10));
    let wake = subscription.wake(pending, "w".to_owned(), at(0)).unwrap();
    subscription.apply(wake);
    subscription
}

fn fence(subscription: &Subscription) -> Fence {
    let generation = subscription.generation;
    Fence { token_generation: generation, generation: Some(generation), wake_id: Some("w".to_owned()) }
}

#[test]
fn requests_are_checked() {
    let parse = |body| Config::parse(&body).map_err(|invalid| invalid.0);
    assert_eq!(parse(json!({ "type": "x", "pattern": "a" })), Err("type must be webhook or pull-wake"));
    assert_eq!(parse(json!({ "type": "webhook", "pattern": "a" })), Err("a webhook requires webhook.url"));
    assert_eq!(
        parse(json!({ "type": "pull-wake", "wake_stream": "w" })),
        Err("a pattern or streams are required")
    );
    let lease = |ms| json!({ "type": "pull-wake", "wake_stream": "w", "pattern": "a", "lease_ttl_ms": ms });
    assert!(parse(lease(999)).is_err());
    assert!(parse(lease(600_001)).is_err());
    assert_eq!(parse(lease(1000)).unwrap().lease_ms, 1000);
}

#[test]
fn a_subscription_never_wakes_itself() {
    assert!(!pull().matches("events/wake"));
    assert!(pull().matches("events/other"));
}

#[test]
fn one_wake_at_a_time() {
    let subscription = woken(pull());
    assert_eq!(subscription.wake(subscription.pending(|_| Offset::new(20)), "v".into(), at(1)), None);
    let held = subscription.claim("one", at(0)).unwrap();
    let mut subscription = subscription;
    subscription.apply(held);
    let refused = subscription.claim("two", at(0)).unwrap_err();
    assert_eq!(refused, Refusal::Claimed { holder: "one".into(), generation: 1 });
}

#[test]
fn a_lost_worker_loses_its_wake() {
    let mut subscription = woken(pull());
    assert_eq!(subscription.expire(at(100)), None, "an unclaimed wake waits");
    subscription.apply(subscription.claim("one", at(0)).unwrap());
    assert_eq!(subscription.expire(at(0)), None);
    let old = fence(&subscription);
    subscription.apply(subscription.expire(at(1)).unwrap());
    let wake = subscription.wake(subscription.pending(|_| Offset::new(10)), "w".into(), at(1)).unwrap();
    subscription.apply(wake);
    let late = subscription.worked(&old, &Worked { acks: vec![], done: true }, |_| Offset::new(10), at(1));
    assert_eq!(late, Err(Refusal::Fenced));
}

#[test]
fn acks_move_forward_within_the_stream() {
    let mut subscription = woken(pull());
    let ack = |offset: u64| Worked {
        acks: vec![Ack { stream: "events/a".into(), offset: Offset::new(offset).to_string() }],
        done: false,
    };
    let tail = |_: &str| Offset::new(10);
    let now = fence(&subscription);
    for change in subscription.worked(&now, &ack(5), tail, at(0)).unwrap() {
        subscription.apply(change);
    }
    assert!(matches!(subscription.worked(&now, &ack(4), tail, at(0)), Err(Refusal::Offset(_))));
    assert!(matches!(subscription.worked(&now, &ack(11), tail, at(0)), Err(Refusal::Offset(_))));
    assert!(subscription.is_pending("events/a", Offset::new(10)));
    assert!(!subscription.is_pending("events/a", Offset::new(5)));
}

#[test]
fn done_means_what_the_wake_has_shown() {
    let mut subscription = woken(webhook());
    for change in subscription.delivered(1, true, at(0)) {
        subscription.apply(change);
    }
    assert_eq!(subscription.wake, None);
    assert_eq!(subscription.pending(|_| Offset::new(10)), BTreeMap::new());
    assert_eq!(subscription.pending(|_| Offset::new(11)).len(), 1, "what came meanwhile is still to do");
    assert_eq!(subscription.delivered(1, true, at(0)), vec![], "an answer to an old wake changes nothing");
}

#[test]
fn removing_a_name_leaves_the_pattern() {
    let mut subscription = woken(webhook());
    subscription.apply(Subscription::link_named("events/a", Offset::new(3)));
    assert_eq!(subscription.links["events/a"].acked, None, "a second reason does not move the first");
    for change in subscription.unlink_named("events/a") {
        subscription.apply(change);
    }
    assert!(subscription.links["events/a"].matched && !subscription.links["events/a"].explicit);
    subscription.apply(Subscription::link_named("b", Offset::new(3)));
    for change in subscription.unlink_named("b") {
        subscription.apply(change);
    }
    assert!(!subscription.links.contains_key("b"));
}

proptest! {
    #[test]
    fn pauses_grow_to_a_minute(failures in 0..20u32, random in 0.0..=1.0f64) {
        let mut subscription = woken(webhook());
        subscription.failures = failures;
        let Some(Change::Failed { retry_at }) = subscription.failed(1, at(0), random) else { panic!() };
        let pause = (retry_at.duration_since(at(0))).as_secs_f64();
        let middle = f64::from(1u32 << failures.min(6)).min(60.0);
        prop_assert!((middle * 0.8..=middle * 1.2 + 0.001).contains(&pause), "{pause} for {failures}");
        subscription.apply(Change::Failed { retry_at });
        let pending = subscription.pending(|_| Offset::new(10));
        prop_assert!(subscription.wake(pending.clone(), "v".into(), at(0)).is_none());
        let later = retry_at + SignedDuration::from_secs(1);
        prop_assert!(subscription.wake(pending, "v".into(), later).is_some());
    }

    /// A restart reads back the same state.
    #[test]
    fn changes_survive_being_written_down(acked in 0..100u64, generation in 0..9u64) {
        let mut subscription = woken(pull());
        subscription.generation = generation;
        subscription.apply(Change::Acked([("events/a".to_owned(), Offset::new(acked))].into()));
        let change = Change::Is(Box::new(subscription.clone()));
        let text = serde_json::to_string(&change).unwrap();
        prop_assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change);
    }
}
