//! Names: a project, and a stream in it.
//!
//! `/v1/{project}/stream/{id}` names a stream of a project, `/v1/stream/{id}` one of the
//! default project. An id may have several segments.

use std::fmt;
use std::sync::Arc;

use crate::session;

/// The name of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName {
    /// The tenant.
    pub project: Arc<str>,
    /// The stream within it.
    pub id: Arc<str>,
}

/// What a path below `/v1` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// One stream.
    Stream(StreamName),
    /// The list of a project's streams.
    List {
        /// The tenant.
        project: Arc<str>,
    },
    /// Sessions and publishing.
    Session {
        /// The tenant.
        project: Arc<str>,
        /// The route below it.
        route: session::Route,
    },
    /// The reserved API of the protocol; the rest of the path, not yet decoded.
    Reserved {
        /// The tenant.
        project: Arc<str>,
        /// What follows `__ds/`.
        rest: String,
    },
}

/// The project of `/v1/stream/{id}`.
pub const DEFAULT_PROJECT: &str = "default";
/// The first segment that belongs to the protocol itself.
const RESERVED: &str = "__ds";
/// The prefix of the stream of a session.
pub const SESSION_PREFIX: &str = "session:";
/// A name is stored with its stream and held in memory.
const ID_LENGTH_MAX: usize = 512;
const PROJECT_LENGTH_MAX: usize = 64;

impl Resource {
    /// Reads the path of a URL, without its query.
    pub fn parse(path: &str) -> Option<Resource> {
        let rest = path.strip_prefix("/v1/")?;
        if rest == "streams" {
            return Some(Resource::List { project: DEFAULT_PROJECT.into() });
        }
        if let Some(id) = rest.strip_prefix("stream/") {
            return Resource::of(DEFAULT_PROJECT, id);
        }
        let (project, rest) = rest.split_once('/')?;
        let project = decode(project).filter(|project| is_project(project))?;
        match rest.strip_prefix("stream/") {
            Some(id) => Resource::of(&project, id),
            None if rest == "streams" => Some(Resource::List { project: project.into() }),
            None => {
                session::Route::parse(rest).map(|route| Resource::Session { project: project.into(), route })
            }
        }
    }

    /// The tenant.
    pub fn project(&self) -> &str {
        match self {
            Resource::Stream(name) => &name.project,
            Resource::List { project }
            | Resource::Session { project, .. }
            | Resource::Reserved { project, .. } => project,
        }
    }

    fn of(project: &str, id: &str) -> Option<Resource> {
        if let Some(rest) = id.strip_prefix(RESERVED) {
            let rest = rest.strip_prefix('/').or(rest.is_empty().then_some(""));
            if let Some(rest) = rest {
                return Some(Resource::Reserved { project: project.into(), rest: rest.to_owned() });
            }
        }
        if !id.contains('%') {
            return StreamName::new(project, id).map(Resource::Stream);
        }
        StreamName::new(project, &decode(id)?).map(Resource::Stream)
    }
}

impl StreamName {
    /// A name, if both parts are valid. Ids that belong to the protocol are not: no client can reach
    /// them, however it encodes the name.
    pub fn new(project: &str, id: &str) -> Option<StreamName> {
        let ok = is_project(project) && is_id(id) && !is_reserved(id);
        ok.then(|| StreamName { project: project.into(), id: id.into() })
    }

    /// A name below `__ds/`, for the server's own streams.
    pub fn reserved(project: &str, rest: &str) -> Option<StreamName> {
        let id = format!("{RESERVED}/{rest}");
        (is_project(project) && is_id(&id)).then(|| StreamName { project: project.into(), id: id.into() })
    }

    /// Whether it belongs to the server.
    pub fn is_reserved(&self) -> bool {
        is_reserved(&self.id)
    }

    /// The stream of a session: `session:{id}` in its project.
    pub fn session(project: &str, id: &str) -> Option<StreamName> {
        let one_segment = !id.is_empty() && !id.contains('/');
        StreamName::new(project, &format!("{SESSION_PREFIX}{id}")).filter(|_| one_segment)
    }

    /// The session that this is the stream of, if any.
    pub fn session_id(&self) -> Option<&str> {
        self.id.strip_prefix(SESSION_PREFIX).filter(|id| !id.is_empty())
    }

    /// Whether a session could have this name: no other stream may have it.
    pub fn is_sessions(&self) -> bool {
        self.session_id().is_some_and(|id| session::session_id(id).is_ok())
    }

    /// Parses the path or URL of another stream of this server, as in `Stream-Forked-From`.
    pub fn parse_reference(text: &str) -> Option<StreamName> {
        let path = match text.split_once("://") {
            Some((_, rest)) => &rest[rest.find('/')?..],
            None => text,
        };
        match Resource::parse(path)? {
            Resource::Stream(name) => Some(name),
            Resource::List { .. } | Resource::Session { .. } | Resource::Reserved { .. } => None,
        }
    }

    /// The path of this stream.
    pub fn path(&self) -> String {
        let id = encode(&self.id);
        match &*self.project {
            DEFAULT_PROJECT => format!("/v1/stream/{id}"),
            project => format!("/v1/{project}/stream/{id}"),
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.project, self.id)
    }
}

/// Letters, digits, `-`, `_` and `.`; `stream` and `streams` would make paths ambiguous.
fn is_project(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let sized = !text.is_empty() && text.len() <= PROJECT_LENGTH_MAX;
    sized && text.bytes().all(letter) && !text.starts_with('.') && text != "stream" && text != "streams"
}

/// Printable characters, in segments that are not empty, `.` or `..`.
fn is_id(text: &str) -> bool {
    let sized = !text.is_empty() && text.len() <= ID_LENGTH_MAX && !text.chars().any(char::is_control);
    sized && text.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

fn is_reserved(id: &str) -> bool {
    id.split('/').next() == Some(RESERVED)
}

/// Percent-decoding; `None` if it is malformed or not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                bytes.push(hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()?);
                rest = &rest[2..];
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encoding of everything that has a meaning in a URL, except `/` and `:`.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(byte.into()),
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' | b'!' | b'$' | b'\'' | b'(' | b')' => {
                out.push(byte.into());
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(path: &str) -> Option<(String, String)> {
        match Resource::parse(path)? {
            Resource::Stream(name) => Some((name.project.to_string(), name.id.to_string())),
            _ => None,
        }
    }

    #[test]
    fn paths_name_streams() {
        let named = |project: &str, id: &str| Some((project.to_owned(), id.to_owned()));
        assert_eq!(stream("/v1/stream/a"), named("default", "a"));
        assert_eq!(stream("/v1/shop/stream/orders/7"), named("shop", "orders/7"));
        assert_eq!(stream("/v1/stream/stream/x"), named("default", "stream/x"));
        assert_eq!(stream("/v1/shop/stream/session:a%20b"), named("shop", "session:a b"));
        for path in ["/v1/stream/", "/v1/stream", "/v1//stream/a", "/v1/a b/stream/a", "/v1/stream/a/../b"] {
            assert_eq!(stream(path), None, "{path}");
        }
        assert_eq!(stream("/v1/stream/%00"), None);
        assert_eq!(stream("/v1/stream/%2e%2e/x"), None);
        assert_eq!(stream("/v1/stream/%zz"), None);
    }

    #[test]
    fn reserved_paths_and_lists_are_no_streams() {
        let reserved = |rest: &str| Resource::Reserved { project: "default".into(), rest: rest.into() };
        assert_eq!(Resource::parse("/v1/stream/__ds/jwks.json"), Some(reserved("jwks.json")));
        assert_eq!(Resource::parse("/v1/stream/__ds"), Some(reserved("")));
        for path in ["/v1/stream/__ds%2Fkeys", "/v1/stream/%5F_ds/keys", "/v1/a/stream/%5f%5fds"] {
            assert_eq!(Resource::parse(path), None, "{path}");
        }
        assert_eq!(StreamName::new("default", "__ds/keys"), None);
        assert!(StreamName::reserved("default", "keys").unwrap().is_reserved());
        assert_eq!(stream("/v1/stream/__dsx"), Some(("default".into(), "__dsx".into())));
        assert_eq!(Resource::parse("/v1/a/streams"), Some(Resource::List { project: "a".into() }));
    }

    /// F09: sessions have names of their own.
    #[test]
    fn sessions_have_their_own_names() {
        let name = StreamName::session("shop", "a1").unwrap();
        assert_eq!((&*name.id, name.session_id()), ("session:a1", Some("a1")));
        assert_eq!(StreamName::new("shop", "orders").unwrap().session_id(), None);
        assert!(!name.is_sessions(), "sessions are named by UUIDs");
        for (id, is_sessions) in [
            ("session:0190f5a4-5c2e-7bb0-9f33-0123456789ab", true),
            ("session:0190F5A4-5C2E-7BB0-9F33-0123456789AB", true),
            ("app/session:0190f5a4-5c2e-7bb0-9f33-0123456789ab", false),
            ("session:0190f5a4", false),
            ("0190f5a4-5c2e-7bb0-9f33-0123456789ab", false),
        ] {
            assert_eq!(StreamName::new("shop", id).unwrap().is_sessions(), is_sessions, "{id}");
        }
        assert_eq!(StreamName::session("shop", ""), None);
        assert_eq!(StreamName::session("shop", "../x"), None);
    }

    #[test]
    fn references_are_paths_or_urls() {
        let name = StreamName::new("default", "a").unwrap();
        assert_eq!(StreamName::parse_reference("/v1/stream/a"), Some(name.clone()));
        assert_eq!(StreamName::parse_reference("http://h:1/v1/stream/a"), Some(name));
        assert_eq!(StreamName::parse_reference("a"), None);
        assert_eq!(StreamName::parse_reference("http://h"), None);
    }

    proptest! {
        #[test]
        fn a_name_is_found_at_its_path(id in "[^\\x00-\\x1f]{1,30}", project in "[a-z0-9-]{1,10}") {
            if let Some(name) = StreamName::new(&project, &id) {
                prop_assert_eq!(Resource::parse(&name.path()), Some(Resource::Stream(name)));
            }
        }
    }
}
