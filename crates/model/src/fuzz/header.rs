//! Protocol headers: producers, expiry, content types, and traceparent.

use jiff::Timestamp;

use crate::stream::content_type::ContentType;
use crate::stream::expiry::{self, Expiry, decimal};
use crate::stream::producer::{NUMBER_MAX, Producer};
use crate::stream::state::{Accepted, Claim, claim};
use crate::trace::TraceParent;

/// Three lines of text, each used as each header.
pub fn header(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (first, second, third) = (next(), next(), next());
    producers(first, second, third);
    lives(first, second);
    types(first, second);
    numbers(first);
    if let Ok(parent) = first.parse::<TraceParent>() {
        assert_eq!(parent.to_string().parse(), Ok(parent));
        assert_eq!(parent.to_string().get(3..52), first.get(3..52), "trace and span are kept");
    }
}

fn numbers(text: &str) {
    if let Some(number) = decimal(text) {
        assert_eq!(number.to_string(), text, "a number has one form");
    }
}

/// S03: what is accepted is what was sent, and a request is new exactly once.
fn producers(id: &str, epoch: &str, seq: &str) {
    let parsed = Producer::parse(Some(id), Some(epoch), Some(seq));
    for (id, epoch, seq) in
        [(None, Some(epoch), Some(seq)), (Some(id), None, Some(seq)), (Some(id), Some(epoch), None)]
    {
        assert!(Producer::parse(id, epoch, seq).is_err(), "two of three are none");
    }
    let Ok(parsed) = parsed else { return };
    let Some(producer) = parsed else { panic!("three headers are a producer") };
    assert_eq!(&*producer.id, id);
    for (number, text) in [(producer.epoch, epoch), (producer.seq, seq)] {
        assert!(number <= NUMBER_MAX);
        assert_eq!(number.to_string().trim_start_matches('0'), text.trim_start_matches('0'));
    }
    let known = Accepted { epoch: producer.epoch, seq: producer.seq };
    assert_eq!(claim(Some(known), producer.epoch, producer.seq), Claim::Duplicate(known));
    assert_eq!(claim(Some(known), producer.epoch, producer.seq + 1), Claim::Next);
    assert_eq!(claim(Some(known), producer.epoch + 1, 0), Claim::Next);
    if producer.epoch > 0 {
        let stale = claim(Some(known), producer.epoch - 1, producer.seq);
        assert_eq!(stale, Claim::Stale { current_epoch: producer.epoch });
    }
}

fn lives(ttl: &str, expires_at: &str) {
    assert_eq!(Expiry::parse(Some(ttl), Some(expires_at)), Err(expiry::Invalid::Both));
    let used = Timestamp::from_second(1_800_000_000).expect("a time in range");
    if let Ok(life) = Expiry::parse(Some(ttl), None) {
        let Some(Expiry::Sliding { seconds }) = life else { panic!("{ttl} became {life:?}") };
        assert_eq!(seconds.to_string(), ttl);
        let ends = Expiry::Sliding { seconds }.ends_at(used).expect("a sliding life ends");
        assert_eq!(ends.as_second() - used.as_second(), seconds as i64);
    }
    for text in [ttl, expires_at] {
        if let Ok(life) = Expiry::parse(None, Some(text)) {
            let Some(Expiry::At(at)) = life else { panic!("{text} became {life:?}") };
            assert_eq!(Expiry::parse(None, Some(&at.to_string())), Ok(Some(Expiry::At(at))));
            assert_eq!(Expiry::At(at).ends_at(used), Some(at), "a moment does not move");
        }
    }
}

fn types(first: &str, second: &str) {
    let Some(one) = ContentType::parse(first) else { return };
    assert!(one.as_str().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "it goes into a header again");
    let again = ContentType::parse(one.as_str()).expect("what was accepted is accepted");
    assert_eq!(again.as_str(), one.as_str());
    let louder = ContentType::parse(&first.to_ascii_uppercase()).expect("letter case makes no difference");
    assert_eq!((&louder, louder.mode()), (&one, one.mode()));
    let bare = one.as_str().split(';').next().unwrap_or_default();
    let bare = ContentType::parse(bare).expect("parameters make no difference");
    assert_eq!((&bare, bare.mode()), (&one, one.mode()));
    if let Some(other) = ContentType::parse(second) {
        assert!(one != other || one.mode() == other.mode(), "one type is treated in one way");
    }
}
