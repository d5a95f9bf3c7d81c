//! What a verified token allows.

use jiff::{SignedDuration, Timestamp};

use super::claims::{Claims, OneOrMany, Scope};
use crate::stream::name::SESSION_PREFIX;

/// How long a token in a URL may still be valid.
const URL_LIFETIME_SECONDS_MAX: i64 = 3_600;

/// The rights of a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    scope: Scope,
    streams: Option<Vec<String>>,
    session: Option<String>,
    /// The one job that it may read and cancel.
    pub job: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The key that signed it: revoking the key revokes this.
    pub kid: String,
}

/// The requested action. Ids are those within the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read a stream or its metadata.
    Read(&'a str),
    /// Create, append to, publish to, close or delete a stream.
    Write(&'a str),
    /// Change a stream's retention.
    Retain(&'a str),
    /// Subscribe a session to a stream.
    Subscribe {
        /// The session.
        session: &'a str,
        /// The stream.
        stream: &'a str,
    },
    /// Unsubscribe it.
    Unsubscribe {
        /// The session.
        session: &'a str,
        /// The stream.
        stream: &'a str,
    },
    /// Show a session.
    GetSession(&'a str),
    /// Extend its expiry.
    TouchSession(&'a str),
    /// End it.
    DeleteSession(&'a str),
    /// List streams.
    List,
    /// Pull from a protocol subscription.
    Work,
    /// Show or change the whole project.
    Manage,
}

/// Why an action is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The token's scope is too small.
    Scope {
        /// The scope it needs.
        needs: Scope,
    },
    /// The token is bound to another stream or session.
    Bound,
}

impl Grant {
    pub(super) fn new(scope: Scope, claims: Claims, kid: String) -> Grant {
        let seconds = i64::try_from(claims.exp).unwrap_or(i64::MAX);
        Grant {
            scope,
            streams: claims.stream_id.map(OneOrMany::into_vec),
            session: claims.session_id,
            job: claims.job_id,
            expires_at: Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX),
            kid,
        }
    }

    /// Whether it allows an action. A bound token can access only what it names, for reading and writing; its own
    /// session may follow any stream unless `stream_id` restricts it.
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

    /// Whether it may come in a URL, which others may see: it only reads, only what it names, and not for long.
    pub fn fits_url(&self, now: Timestamp) -> bool {
        let ends_soon = self.expires_at <= now + SignedDuration::from_secs(URL_LIFETIME_SECONDS_MAX);
        self.scope == Scope::Read && !self.is_unbound() && ends_soon
    }

    fn is_unbound(&self) -> bool {
        self.streams.is_none() && self.session.is_none() && self.job.is_none()
    }

    fn reaches_stream(&self, id: &str) -> bool {
        self.is_unbound() || self.names_stream(id) == Some(true)
    }

    fn reaches_session(&self, id: &str) -> bool {
        // Session ids are compared in lower case, as in stream names.
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
    /// The message for the client.
    pub fn detail(self) -> String {
        match self {
            Denied::Scope { needs } => format!("this requires a token with scope {}", needs.word()),
            Denied::Bound => "the token is bound to another stream or session".to_owned(),
        }
    }
}
