//! The claims of a token.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Tokens are short-lived by design; a longer lifetime is a mistake.
pub const LIFETIME_SECONDS_MAX: i64 = 366 * 86_400;

/// The scope of a token; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read streams, subscribe, show and touch sessions.
    Read,
    /// And create, append, publish, delete, unsubscribe.
    Write,
    /// And everything about a project as a whole.
    Manage,
}

impl Scope {
    /// The largest scope in a `scope` claim; other words are ignored.
    pub fn parse(text: &str) -> Option<Scope> {
        let known = text.split_ascii_whitespace().filter_map(|word| match word {
            "read" => Some(Scope::Read),
            "write" => Some(Scope::Write),
            "manage" => Some(Scope::Manage),
            _ => None,
        });
        known.max()
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Manage => "manage",
        }
    }
}

/// The claims, typed: a claim of another type does not deserialize, and the token fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The project.
    pub sub: String,
    /// Scopes, of which the largest counts.
    pub scope: String,
    /// When it expires, in seconds since 1970.
    pub exp: u64,
    /// Not before, likewise.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// Bound to this stream, or these.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<OneOrMany>,
    /// Bound to this session.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The one job that it may read and cancel.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// A claim that is present must have its type: `null` does not make a token unbound.
fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(claim: D) -> Result<Option<T>, D::Error> {
    T::deserialize(claim).map(Some)
}

/// `"a"` or `["a", "b"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One name.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The names, in either form.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

impl From<Vec<String>> for OneOrMany {
    fn from(mut many: Vec<String>) -> OneOrMany {
        match many.len() {
            1 => OneOrMany::One(many.remove(0)),
            _ => OneOrMany::Many(many),
        }
    }
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// There is none.
    Missing,
    /// Not a token, or not signed by a key of the project, or a claim is missing or has the wrong type. One answer
    /// for all, so that an attacker learns nothing.
    Unverified,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// It expires too far in the future.
    TooLong,
    /// It is for another project.
    Project,
    /// `scope` has no known scope.
    Scope,
    /// It came in the URL, and allows too much for that.
    Url,
}

impl Invalid {
    /// In one word, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Invalid::Missing => "missing",
            Invalid::Unverified => "unverified",
            Invalid::Expired => "expired",
            Invalid::NotYet => "not_yet",
            Invalid::TooLong => "too_long",
            Invalid::Project => "project",
            Invalid::Scope => "scope",
            Invalid::Url => "url",
        }
    }

    /// The message for the client.
    pub fn detail(self) -> &'static str {
        match self {
            Invalid::Missing => "a token is required: send Authorization: Bearer TOKEN",
            Invalid::Unverified => {
                "invalid token: it must be signed by a key of this project and have sub, scope and a numeric exp"
            }
            Invalid::Expired => "the token has expired",
            Invalid::NotYet => "the token is not valid yet",
            Invalid::TooLong => "the token is valid for more than a year; use a shorter expiry",
            Invalid::Project => "the token is for another project",
            Invalid::Scope => "the token's scope has none of read, write and manage",
            Invalid::Url => {
                "a token in the URL must have scope read, name a stream, a session or a job, and expire within an \
                 hour; send others in Authorization: Bearer TOKEN"
            }
        }
    }
}

impl Claims {
    /// Checks claims whose signature is valid.
    pub(super) fn check(&self, project: &str, now: Timestamp) -> Result<Scope, Invalid> {
        let now = u64::try_from(now.as_second()).unwrap_or(0);
        if self.sub != project {
            return Err(Invalid::Project);
        }
        if self.exp <= now {
            return Err(Invalid::Expired);
        }
        if self.exp - now > LIFETIME_SECONDS_MAX as u64 {
            return Err(Invalid::TooLong);
        }
        if self.nbf.is_some_and(|nbf| nbf > now) {
            return Err(Invalid::NotYet);
        }
        Scope::parse(&self.scope).ok_or(Invalid::Scope)
    }
}
