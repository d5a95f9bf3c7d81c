//! Paths, names, offsets, cursors, tags and patterns.

use jiff::Timestamp;

use crate::session;
use crate::stream::name::{Resource, StreamName, decode, encode};
use crate::stream::offset::{Offset, Start};
use crate::stream::{cursor, etag, glob};

/// Two lines of text, each parsed as everything it could be.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (first, second) = text.split_once('\n').unwrap_or((text, ""));
    offsets(first, second);
    cursors(first, second.len() as u64);
    tags(first, second);
    places(first);
    patterns(first, second);
    assert_eq!(decode(&encode(first)).as_deref(), Some(first), "what is encoded is decoded");
}

/// S05: an offset has one form, and sorts like the number in it.
fn offsets(first: &str, second: &str) {
    let Some(offset) = Offset::parse(first) else { return };
    assert_eq!(offset.to_string(), first);
    assert_eq!(offset.to_text(), first.as_bytes());
    assert_eq!(first.replace('_', "").parse(), Ok(u128::from(offset.bytes())), "the digits are the number");
    assert_eq!(Start::parse(first), Some(Start::At(offset)));
    if let Some(other) = Offset::parse(second) {
        assert_eq!(first.cmp(second), offset.cmp(&other));
    }
}

/// A reader's cursor never repeats, and an invalid one counts as none.
fn cursors(sent: &str, random: u64) {
    let now = Timestamp::from_second(1_800_000_000).expect("a time in range");
    let (fresh, answer) = (cursor::next(now, None, random), cursor::next(now, Some(sent), random));
    assert!(answer >= fresh);
    match sent.parse::<u64>() {
        Ok(sent) => assert!(answer > sent || answer == u64::MAX, "{sent} was answered by {answer}"),
        Err(_) => assert_eq!(answer, fresh),
    }
}

fn tags(list: &str, more: &str) {
    let tag = "\"1:0:5\"";
    assert!(etag::names(&format!("{list}, W/{tag},{more}"), tag), "a tag in a list is found");
    if etag::names(list, tag) {
        assert!(list.contains(tag) || list.split(',').any(|one| one.trim() == "*"), "nothing else is");
    }
}

fn places(path: &str) {
    match Resource::parse(path) {
        Some(Resource::Stream(name)) => stream(path, &name),
        Some(Resource::Reserved { project, rest }) => {
            assert!(path.ends_with(&rest) && path.contains("/stream/__ds"));
            assert!(StreamName::new(&project, "a").is_some());
        }
        Some(Resource::List { project }) => assert!(StreamName::new(&project, "a").is_some()),
        Some(Resource::Session { project, route }) => sessions(&project, &route),
        None => assert_eq!(StreamName::parse_reference(path).filter(|_| !path.contains("://")), None),
    }
}

/// A name has one path, which leads back to it, and no spelling of it reaches the server's own streams.
fn stream(path: &str, name: &StreamName) {
    assert!(!name.is_reserved(), "{path} reaches a reserved stream");
    assert_eq!(StreamName::new(&name.project, &name.id).as_ref(), Some(name));
    let canonical = name.path();
    assert!(canonical.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte)));
    assert_eq!(Resource::parse(&canonical), Some(Resource::Stream(name.clone())));
    assert_eq!(StreamName::parse_reference(path).as_ref(), Some(name));
    assert_eq!(StreamName::parse_reference(&format!("http://h:1{canonical}")).as_ref(), Some(name));
    if let Some(id) = name.session_id() {
        let one_segment = !id.contains('/');
        assert_eq!(StreamName::session(&name.project, id), one_segment.then(|| name.clone()));
    }
}

fn sessions(project: &str, route: &session::Route) {
    use session::Route::{Publish, Session, Sessions, Sources, Subscribe, Touch, Unsubscribe};
    match route {
        Publish(id) => {
            if let Ok(name) = session::source(project, id) {
                assert_eq!(name.session_id(), None, "a session is nobody's source");
                assert_eq!(Resource::parse(&name.path()), Some(Resource::Stream(name)));
            }
        }
        Session(id) | Touch(id) => {
            if let Ok(name) = session::session_stream(project, id) {
                let again = name.session_id().expect("a session's stream says whose it is");
                assert!(again.eq_ignore_ascii_case(id));
                assert_eq!(session::session_id(again).as_deref(), Ok(again), "there is one spelling");
            }
        }
        Subscribe | Unsubscribe | Sessions | Sources => {}
    }
}

/// Patterns compared with a simple, slow implementation.
fn patterns(pattern: &str, name: &str) {
    let segments = |text: &str| -> Vec<String> {
        text.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
    };
    let (parts, segments) = (segments(pattern), segments(name));
    if parts.len() <= 6 && segments.len() <= 6 {
        assert_eq!(glob::matches(pattern, name), fits(&parts, &segments), "{pattern} and {name}");
    }
}

fn fits(pattern: &[String], name: &[String]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((part, rest)) if part == "**" => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        Some((part, rest)) => name
            .split_first()
            .is_some_and(|(first, behind)| (part == "*" || part == first) && fits(rest, behind)),
    }
}
