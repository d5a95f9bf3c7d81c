//! What a verified token may do.

use jiff::Timestamp;

use super::claims::{Claims, OneOrMany, Scope};
use crate::stream::name::SESSION_PREFIX;

/// The rights of a token that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    scope: Scope,
    streams: Option<Vec<String>>,
    session: Option<String>,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The key that signed it: when that is revoked, so is this.
    pub kid: String,
}

/// What somebody wants to do. Ids are those within the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read a stream or ask about it.
    Read(&'a str),
    /// Create, append to, publish to, close or delete a stream.
    Write(&'a str),
    /// Change how long a stream's data is kept.
    Retain(&'a str),
    /// Let a session follow a stream.
    Subscribe {
        /// Who.
        session: &'a str,
        /// What.
        stream: &'a str,
    },
    /// Let it no longer follow.
    Unsubscribe {
        /// Who.
        session: &'a str,
        /// What.
        stream: &'a str,
    },
    /// Look at a session.
    GetSession(&'a str),
    /// Let it live longer.
    TouchSession(&'a str),
    /// End it.
    DeleteSession(&'a str),
    /// See which streams there are.
    List,
    /// Take work from a subscription of the protocol.
    Work,
    /// Change or see what concerns the whole project.
    Manage,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The token's scope is too small.
    Scope {
        /// What it takes.
        needs: Scope,
    },
    /// The token is bound to something else.
    Bound,
}

impl Grant {
    pub(super) fn new(scope: Scope, claims: Claims, kid: String) -> Grant {
        let seconds = i64::try_from(claims.exp).unwrap_or(i64::MAX);
        Grant {
            scope,
            streams: claims.stream_id.map(OneOrMany::into_vec),
            session: claims.session_id,
            expires_at: Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX),
            kid,
        }
    }

    /// Whether it allows something. A bound token reaches what it names and nothing else,
    /// whether reading or writing; only which streams its own session may follow is open
    /// until `stream_id` says.
    pub fn allows(&self, action: Action<'_>) -> Result<(), Denied> {
        let needs = action.needs();
        if self.scope < needs {
            return Err(Denied::Scope { needs });
        }
        let reached = match action {
            Action::Read(id) | Action::Write(id) | Action::Retain(id) => {
                match id.strip_prefix(SESSION_PREFIX) {
                    Some(session) => self.reaches_session(session),
                    None => self.reaches_stream(id),
                }
            }
            Action::GetSession(id) | Action::TouchSession(id) | Action::DeleteSession(id) => {
                self.reaches_session(id)
            }
            Action::Subscribe { session, stream } | Action::Unsubscribe { session, stream } => {
                self.reaches_session(session) && self.names_stream(stream).unwrap_or(true)
            }
            Action::List | Action::Work | Action::Manage => self.is_unbound(),
        };
        if reached { Ok(()) } else { Err(Denied::Bound) }
    }

    fn is_unbound(&self) -> bool {
        self.streams.is_none() && self.session.is_none()
    }

    fn reaches_stream(&self, id: &str) -> bool {
        self.is_unbound() || self.names_stream(id) == Some(true)
    }

    fn reaches_session(&self, id: &str) -> bool {
        // Ids of sessions are compared as they are written in names: lower case.
        let is_own = |own: &String| own.eq_ignore_ascii_case(id);
        self.is_unbound() || self.session.as_ref().is_some_and(is_own)
    }

    fn names_stream(&self, id: &str) -> Option<bool> {
        self.streams.as_ref().map(|streams| streams.iter().any(|stream| stream == id))
    }
}

impl Action<'_> {
    fn needs(self) -> Scope {
        match self {
            Action::Read(_)
            | Action::Subscribe { .. }
            | Action::GetSession(_)
            | Action::TouchSession(_)
            | Action::List => Scope::Read,
            Action::Write(_) | Action::Unsubscribe { .. } | Action::DeleteSession(_) | Action::Work => {
                Scope::Write
            }
            Action::Manage | Action::Retain(_) => Scope::Manage,
        }
    }
}

impl Denied {
    /// What to do about it.
    pub fn detail(self) -> String {
        match self {
            Denied::Scope { needs } => format!("this needs a token of scope {}", needs.word()),
            Denied::Bound => "the token is bound to another stream or session".to_owned(),
        }
    }
}
