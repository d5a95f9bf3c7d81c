//! Random histories against a recorder that keeps everything, and the cases that
//! implementations of the protocol are known to get wrong.

use proptest::prelude::*;

use super::*;

fn producer(id: &str, epoch: u64, seq: u64) -> Producer {
    Producer { id: id.into(), epoch, seq }
}

fn standing(content_type: &ContentType) -> Standing<'_> {
    let tail = Offset::new(10);
    Standing { content_type, tail, closed: false, closed_by: None, stream_seq: None, producer: None }
}

fn wish<'a>() -> Wish<'a> {
    Wish {
        content_type: None,
        has_data: true,
        close: false,
        producer: None,
        stream_seq: None,
        expected_tail: None,
    }
}

proptest! {
    /// Whatever order requests and retries come in, each request of the newest life is
    /// accepted once, in order, without a hole, and no older life gets in.
    #[test]
    fn producers_are_exactly_once(requests in prop::collection::vec((0..4u64, 0..6u64), 0..200)) {
        let mut known = None;
        let mut written: Vec<(u64, u64)> = Vec::new();
        for (epoch, seq) in requests {
            match claim(known, epoch, seq) {
                Claim::Next => {
                    known = Some(Accepted { epoch, seq });
                    written.push((epoch, seq));
                }
                Claim::Duplicate(accepted) => {
                    prop_assert!(written.contains(&(epoch, seq)));
                    prop_assert_eq!(Some(accepted), known);
                }
                Claim::Stale { current_epoch } => prop_assert!(epoch < current_epoch),
                Claim::NotFromZero => prop_assert!(seq > 0),
                Claim::Gap { expected, received } => prop_assert!(expected < received),
            }
        }
        for pair in written.windows(2) {
            let next = pair[1].0 == pair[0].0 && pair[1].1 == pair[0].1 + 1;
            prop_assert!(next || (pair[1].0 > pair[0].0 && pair[1].1 == 0), "{:?}", pair);
        }
    }

    /// Accepted sequence texts grow byte by byte.
    #[test]
    fn stream_seq_only_grows(texts in prop::collection::vec("[0-9a-c]{1,3}", 0..50)) {
        let content_type = ContentType::default();
        let mut last: Option<String> = None;
        for text in texts {
            let now = Standing { stream_seq: last.as_deref(), ..standing(&content_type) };
            let verdict = append(now, Wish { stream_seq: Some(&text), ..wish() });
            let grows = last.as_ref().is_none_or(|last| text.as_bytes() > last.as_bytes());
            prop_assert_eq!(verdict == Verdict::Write, grows);
            if grows {
                last = Some(text);
            }
        }
    }

    /// Nothing is ever written behind the end.
    #[test]
    fn the_end_is_final(
        has_data: bool,
        close: bool,
        asks in prop::option::of((0..3u64, 0..3u64)),
        known in prop::option::of((0..3u64, 0..3u64)),
        tail in prop::option::of(0..20u64),
    ) {
        let content_type = ContentType::default();
        let asks = asks.map(|(epoch, seq)| producer("p", epoch, seq));
        let known = known.map(|(epoch, seq)| Accepted { epoch, seq });
        let now = Standing { closed: true, producer: known, ..standing(&content_type) };
        let expected_tail = tail.map(Offset::new);
        let wish = Wish { has_data, close, producer: asks.as_ref(), expected_tail, ..wish() };
        prop_assert_ne!(append(now, wish), Verdict::Write);
    }
}

#[test]
fn an_unknown_producer_starts_at_zero_in_any_life() {
    assert_eq!(claim(None, 0, 0), Claim::Next);
    assert_eq!(claim(None, 7, 0), Claim::Next);
    assert_eq!(claim(None, 0, 3), Claim::Gap { expected: 0, received: 3 });
}

#[test]
fn a_duplicate_reports_the_newest_request() {
    let known = Some(Accepted { epoch: 1, seq: 5 });
    assert_eq!(claim(known, 1, 2), Claim::Duplicate(Accepted { epoch: 1, seq: 5 }));
}

#[test]
fn a_fenced_producer_hears_so_even_behind_the_end() {
    let content_type = ContentType::default();
    let (old, closer) = (producer("p", 0, 9), producer("p", 1, 0));
    let now = Standing {
        closed: true,
        closed_by: Some(&closer),
        producer: Some(Accepted { epoch: 1, seq: 0 }),
        ..standing(&content_type)
    };
    let stale = Verdict::Refuse(Refusal::StaleEpoch { current_epoch: 1 });
    assert_eq!(append(now, Wish { producer: Some(&old), ..wish() }), stale);
    let again = Verdict::Duplicate(Accepted { epoch: 1, seq: 0 });
    assert_eq!(append(now, Wish { producer: Some(&closer), ..wish() }), again);
    let next = producer("p", 1, 1);
    assert_eq!(append(now, Wish { producer: Some(&next), ..wish() }), Verdict::Refuse(Refusal::Closed));
    let close = Wish { has_data: false, close: true, ..wish() };
    assert_eq!(append(now, close), Verdict::AlreadyClosed);
}

#[test]
fn the_end_comes_before_the_type_and_the_type_before_the_rest() {
    let (bytes, json) = (ContentType::default(), ContentType::parse("application/json").unwrap());
    let asks = Wish { content_type: Some(&json), stream_seq: Some(""), ..wish() };
    let now = standing(&bytes);
    assert_eq!(append(Standing { closed: true, ..now }, asks), Verdict::Refuse(Refusal::Closed));
    assert_eq!(append(now, asks), Verdict::Refuse(Refusal::ContentType));
    // Closing has no body, so its type says nothing.
    let close = Wish { has_data: false, close: true, stream_seq: None, ..asks };
    assert_eq!(append(now, close), Verdict::Write);
}

#[test]
fn a_retry_is_a_duplicate_before_its_sequence_or_tail_is_looked_at() {
    let content_type = ContentType::default();
    let again = producer("p", 0, 0);
    let known = Accepted { epoch: 0, seq: 0 };
    let now = Standing { producer: Some(known), stream_seq: Some("5"), ..standing(&content_type) };
    let asks =
        Wish { producer: Some(&again), stream_seq: Some("5"), expected_tail: Some(Offset::ZERO), ..wish() };
    assert_eq!(append(now, asks), Verdict::Duplicate(known));
    assert_eq!(append(now, Wish { producer: None, ..asks }), Verdict::Refuse(Refusal::StreamSeq));
    let asks = Wish { producer: None, stream_seq: None, ..asks };
    assert_eq!(append(now, asks), Verdict::Refuse(Refusal::TailMoved));
}

#[test]
fn what_a_fork_left_out_is_the_same_when_left_out_again() {
    let source = StreamName::new("default", "s").unwrap();
    let point = |offset| ForkPoint { source: source.clone(), offset, sub_offset: 0 };
    let there = Shape {
        content_type: Some(ContentType::parse("text/plain").unwrap()),
        expiry: Some(Expiry::Sliding { seconds: 60 }),
        closed: false,
        fork: Some(point(Some(Offset::new(3)))),
    };
    let asked = Shape { content_type: None, expiry: None, closed: false, fork: Some(point(None)) };
    assert!(same_creation(&there, &asked));
    let elsewhere = Shape { fork: Some(point(Some(Offset::new(4)))), ..asked.clone() };
    assert!(!same_creation(&there, &elsewhere));
    assert!(!same_creation(&there, &Shape { fork: None, ..there.clone() }));
    assert!(!same_creation(&there, &Shape { closed: true, ..asked }));
}

#[test]
fn the_default_type_and_life_may_be_named() {
    let bare = Shape { content_type: None, expiry: None, closed: false, fork: None };
    let there = Shape { content_type: Some(ContentType::default()), expiry: None, ..bare.clone() };
    assert!(same_creation(&there, &bare));
    assert!(same_creation(&there, &Shape { expiry: Some(Expiry::Never), ..bare.clone() }));
    let text = Some(ContentType::parse("text/plain").unwrap());
    assert!(!same_creation(&there, &Shape { content_type: text, ..bare }));
}
