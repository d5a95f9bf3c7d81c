//! Sessions over HTTP: which ids there are, and what the bodies say.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::stream::name::{SESSION_PREFIX, StreamName, decode};

/// As long as a name of a stream may be.
const ID_LENGTH_MAX: usize = 256;

/// Why a request about sessions was refused before anybody was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Not a project's id.
    Project,
    /// Not a session's id.
    Session,
    /// Not the id of a stream that can be followed.
    Stream,
    /// The id of a session where a source is meant.
    SessionAsSource,
}

impl Invalid {
    /// What to do about it.
    pub fn detail(self) -> &'static str {
        match self {
            Invalid::Project => "a project's id has letters, digits, - and _, at most 64",
            Invalid::Session => "sessionId must be a UUID such as 0190f5a4-5c2e-7bb0-9f33-0123456789ab",
            Invalid::Stream => "streamId has letters, digits, -, _, : and ., at most 256",
            Invalid::SessionAsSource => "streamId names a session; sessions follow streams, not each other",
        }
    }
}

/// A session's id: a UUID, in the one spelling that everybody uses as its stream's name.
pub fn session_id(text: &str) -> Result<String, Invalid> {
    // The other spellings that the parser knows (braces, urn:, no hyphens) are 36 long never.
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

/// Projects that have sessions are named more narrowly than those that only have streams.
pub fn check_project(project: &str) -> Result<(), Invalid> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let fine = !project.is_empty() && project.len() <= 64 && project.bytes().all(letter);
    if fine { Ok(()) } else { Err(Invalid::Project) }
}

/// What a path below `/v1/{project}/` asks of sessions. Ids are as they were sent.
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
    /// `sources`: the streams that sessions follow, and how far behind each is.
    Sources,
}

impl Route {
    /// Reads what follows the project. Whole segments only: a path that merely begins or ends
    /// like one of these is none of them.
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
    /// Who.
    pub session_id: String,
    /// Follows what.
    pub stream_id: String,
    /// Wrap each message in `{stream, offset, data}`, to tell several sources apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub envelope: bool,
}

/// What subscribing answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// Who.
    pub session_id: String,
    /// Follows what.
    pub stream_id: String,
    /// Where its messages are read.
    pub session_stream_path: String,
    /// When it ends if nobody uses it, in milliseconds since 1970.
    pub expires_at: i64,
    /// Whether the session began with this.
    pub is_new_session: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";

    /// F01: ids as the source document has them.
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

    /// A session's stream is nobody's source: else one client would write into another's.
    #[test]
    fn a_session_is_no_source() {
        assert_eq!(source("app", &format!("session:{ID}")), Err(Invalid::SessionAsSource));
        assert_eq!(source("app", "session:x"), Err(Invalid::SessionAsSource));
        assert_eq!(&*session_stream("app", ID).unwrap().id, format!("session:{ID}"));
    }

    /// Exact routing: a substring of a route opens nothing.
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
