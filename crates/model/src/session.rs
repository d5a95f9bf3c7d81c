//! Sessions over HTTP: ids and request bodies.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::stream::name::{SESSION_PREFIX, StreamName, decode};

/// The longest name of a stream.
const ID_LENGTH_MAX: usize = 256;

/// Why a request about sessions is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Not a project's id.
    Project,
    /// Not a session's id.
    Session,
    /// Not the id of a stream that can be followed.
    Stream,
    /// A session's id instead of a source's.
    SessionAsSource,
}

impl Invalid {
    /// The message for the client.
    pub fn detail(self) -> &'static str {
        match self {
            Invalid::Project => "invalid project id: use letters, digits, - and _, at most 64 characters",
            Invalid::Session => "sessionId must be a UUID such as 0190f5a4-5c2e-7bb0-9f33-0123456789ab",
            Invalid::Stream => "invalid streamId: use letters, digits, -, _, : and ., at most 256 characters",
            Invalid::SessionAsSource => "streamId names a session; a session can follow only streams",
        }
    }
}

/// A session's id: a UUID in its canonical spelling, which is part of its stream's name.
pub fn session_id(text: &str) -> Result<String, Invalid> {
    // The parser's other spellings (braces, urn:, no hyphens) never have 36 characters.
    let id = if text.len() == 36 { Uuid::parse_str(text).ok() } else { None };
    id.map(|id| id.hyphenated().to_string()).ok_or(Invalid::Session)
}

/// The name of a session's stream.
pub fn session_stream(project: &str, text: &str) -> Result<StreamName, Invalid> {
    let id = session_id(text)?;
    check_project(project)?;
    StreamName::session(project, &id).ok_or(Invalid::Project)
}

/// The name of a stream that sessions can follow.
pub fn source(project: &str, id: &str) -> Result<StreamName, Invalid> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte);
    if id.is_empty() || id.len() > ID_LENGTH_MAX || !id.bytes().all(letter) {
        return Err(Invalid::Stream);
    }
    if id.starts_with(SESSION_PREFIX) {
        return Err(Invalid::SessionAsSource);
    }
    check_project(project)?;
    StreamName::new(project, id).ok_or(Invalid::Stream)
}

/// Names of projects with sessions are more restricted than those with streams only.
pub fn check_project(project: &str) -> Result<(), Invalid> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let fine = !project.is_empty() && project.len() <= 64 && project.bytes().all(letter);
    if fine { Ok(()) } else { Err(Invalid::Project) }
}

/// The session routes below `/v1/{project}/`. Ids are as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `subscribe`
    Subscribe,
    /// `unsubscribe`
    Unsubscribe,
    /// `publish/{streamId}`
    Publish(String),
    /// `session/{sessionId}`
    Session(String),
    /// `session/{sessionId}/touch`
    Touch(String),
    /// `sessions`: all of them.
    Sessions,
    /// `sources`: the streams that sessions follow, with lag.
    Sources,
}

impl Route {
    /// Parses the path after the project. Only whole segments match.
    pub fn parse(rest: &str) -> Option<Route> {
        let segments: Vec<&str> = rest.split('/').collect();
        Some(match segments[..] {
            ["subscribe"] => Route::Subscribe,
            ["unsubscribe"] => Route::Unsubscribe,
            ["publish", stream] => Route::Publish(decode(stream)?),
            ["session", id] => Route::Session(decode(id)?),
            ["session", id, "touch"] => Route::Touch(decode(id)?),
            ["sessions"] => Route::Sessions,
            ["sources"] => Route::Sources,
            _ => return None,
        })
    }
}

/// The body of subscribe and unsubscribe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pair {
    /// The session.
    pub session_id: String,
    /// The stream it follows.
    pub stream_id: String,
    /// Wrap each message in `{stream, offset, data}`, to tell several sources apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub envelope: bool,
}

/// The response to subscribing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// The session.
    pub session_id: String,
    /// The stream it follows.
    pub stream_id: String,
    /// Where its messages are read.
    pub session_stream_path: String,
    /// When it expires if unused, in milliseconds since 1970.
    pub expires_at: i64,
    /// Whether this created the session.
    pub is_new_session: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";

    /// F01: ids as in the source document.
    #[test]
    fn ids_are_checked() {
        assert_eq!(session_id(ID).as_deref(), Ok(ID));
        assert_eq!(session_id(&ID.to_uppercase()).as_deref(), Ok(ID));
        for text in
            ["", "user-alice", "0190f5a45c2e7bb09f330123456789ab", "{0190f5a4-5c2e-7bb0-9f33-0123456789ab}"]
        {
            assert_eq!(session_id(text), Err(Invalid::Session), "{text}");
        }
        assert!(source("app", "chat:room.1_a-b").is_ok());
        for id in ["", "a/b", "a b", "ä", "a\n", &"x".repeat(257)] {
            assert_eq!(source("app", id), Err(Invalid::Stream), "{id}");
        }
        for project in ["", "a.b", "a/b", "ü"] {
            assert_eq!(source(project, "a"), Err(Invalid::Project), "{project}");
        }
    }

    /// A session's stream cannot be a source: one client could then write into another's.
    #[test]
    fn a_session_is_no_source() {
        assert_eq!(source("app", &format!("session:{ID}")), Err(Invalid::SessionAsSource));
        assert_eq!(source("app", "session:x"), Err(Invalid::SessionAsSource));
        assert_eq!(&*session_stream("app", ID).unwrap().id, format!("session:{ID}"));
    }

    /// Routing is exact: part of a route does not match.
    #[test]
    fn routes_are_whole_segments() {
        assert_eq!(Route::parse("publish/a%3Ab"), Some(Route::Publish("a:b".into())));
        assert_eq!(Route::parse("session/x/touch"), Some(Route::Touch("x".into())));
        for rest in [
            "",
            "publish",
            "publish/",
            "publish/a/b",
            "xsubscribe",
            "subscribe/",
            "subscribe/x",
            "session",
            "session/x/touch/y",
            "session//touch",
            "sessions/x",
            "a/publish/b",
            "health",
            "publish/%zz",
        ] {
            let found = Route::parse(rest);
            let empty = matches!(&found, Some(Route::Publish(id) | Route::Touch(id)) if id.is_empty());
            assert!(found.is_none() || empty, "{rest}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_a_name(project in ".{0,12}", id in ".{0,40}") {
            if let Ok(name) = source(&project, &id) {
                prop_assert_eq!(name.path().contains(&*id), true);
            }
            if let Ok(taken) = session_id(&id) {
                prop_assert!(Uuid::parse_str(&taken).is_ok());
            }
        }
    }
}
