//! Random histories against a simple recorder, and cases that implementations of the protocol are
//! known to get wrong.

use proptest::prelude::*;

use super::*;

fn producer(id: &str, epoch: u64, seq: u64) -> Producer {
    Producer { id: id.into(), epoch, seq }
}

fn open_stream(content_type: &ContentType) -> StreamFacts<'_> {
    let tail = Offset::new(10);
    StreamFacts { content_type, tail, closed: false, closed_by: None, stream_seq: None, producer: None }
}

fn data<'a>() -> AppendFacts<'a> {
    AppendFacts {
        content_type: None,
        has_data: true,
        close: false,
        producer: None,
        stream_seq: None,
        expected_tail: None,
    }
}

proptest! {
    /// Whatever the order of requests and retries, each request of the newest epoch is accepted
    /// once, in order, without a gap, and no older epoch is accepted.
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
            let now = StreamFacts { stream_seq: last.as_deref(), ..open_stream(&content_type) };
            let verdict = append(now, AppendFacts { stream_seq: Some(&text), ..data() });
            let grows = last.as_ref().is_none_or(|last| text.as_bytes() > last.as_bytes());
            prop_assert_eq!(verdict == Verdict::Write, grows);
            if grows {
                last = Some(text);
            }
        }
    }

    /// Nothing is ever written to a closed stream.
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
        let now = StreamFacts { closed: true, producer: known, ..open_stream(&content_type) };
        let expected_tail = tail.map(Offset::new);
        let asked = AppendFacts { has_data, close, producer: asks.as_ref(), expected_tail, ..data() };
        prop_assert_ne!(append(now, asked), Verdict::Write);
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
fn a_fenced_producer_is_refused_even_behind_the_end() {
    let content_type = ContentType::default();
    let (old, closer) = (producer("p", 0, 9), producer("p", 1, 0));
    let now = StreamFacts {
        closed: true,
        closed_by: Some(&closer),
        producer: Some(Accepted { epoch: 1, seq: 0 }),
        ..open_stream(&content_type)
    };
    let stale = Verdict::Refuse(Refusal::StaleEpoch { current_epoch: 1 });
    assert_eq!(append(now, AppendFacts { producer: Some(&old), ..data() }), stale);
    let again = Verdict::Duplicate(Accepted { epoch: 1, seq: 0 });
    assert_eq!(append(now, AppendFacts { producer: Some(&closer), ..data() }), again);
    let next = producer("p", 1, 1);
    assert_eq!(
        append(now, AppendFacts { producer: Some(&next), ..data() }),
        Verdict::Refuse(Refusal::Closed)
    );
    let close = AppendFacts { has_data: false, close: true, ..data() };
    assert_eq!(append(now, close), Verdict::AlreadyClosed);
}

#[test]
fn the_end_comes_before_the_type_and_the_type_before_the_rest() {
    let (bytes, json) = (ContentType::default(), ContentType::parse("application/json").unwrap());
    let asks = AppendFacts { content_type: Some(&json), stream_seq: Some(""), ..data() };
    let now = open_stream(&bytes);
    assert_eq!(append(StreamFacts { closed: true, ..now }, asks), Verdict::Refuse(Refusal::Closed));
    assert_eq!(append(now, asks), Verdict::Refuse(Refusal::ContentType));
    // Closing has no body, so its content type does not count.
    let close = AppendFacts { has_data: false, close: true, stream_seq: None, ..asks };
    assert_eq!(append(now, close), Verdict::Write);
}

#[test]
fn a_retry_is_a_duplicate_before_its_sequence_or_tail_is_looked_at() {
    let content_type = ContentType::default();
    let again = producer("p", 0, 0);
    let known = Accepted { epoch: 0, seq: 0 };
    let now = StreamFacts { producer: Some(known), stream_seq: Some("5"), ..open_stream(&content_type) };
    let asks = AppendFacts {
        producer: Some(&again),
        stream_seq: Some("5"),
        expected_tail: Some(Offset::ZERO),
        ..data()
    };
    assert_eq!(append(now, asks), Verdict::Duplicate(known));
    assert_eq!(append(now, AppendFacts { producer: None, ..asks }), Verdict::Refuse(Refusal::StreamSeq));
    let asks = AppendFacts { producer: None, stream_seq: None, ..asks };
    assert_eq!(append(now, asks), Verdict::Refuse(Refusal::TailMoved));
}

#[test]
fn what_a_fork_left_out_is_the_same_when_left_out_again() {
    let origin = StreamName::new("default", "s").unwrap();
    let point = |offset| ForkPoint { origin: origin.clone(), offset, sub_offset: 0 };
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
