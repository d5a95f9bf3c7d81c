//! What a token says.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Tokens are short-lived by design; one that would outlive this was made by mistake.
pub const LIFETIME_SECONDS_MAX: i64 = 366 * 86_400;

/// How much a token allows; each contains those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read streams, subscribe, look at and touch sessions.
    Read,
    /// And create, append, publish, delete, unsubscribe.
    Write,
    /// And everything about a project as a whole.
    Manage,
}

impl Scope {
    /// The largest of the words in a `scope` claim; others mean nothing here.
    pub fn parse(text: &str) -> Option<Scope> {
        let known = text.split_ascii_whitespace().filter_map(|word| match word {
            "read" => Some(Scope::Read),
            "write" => Some(Scope::Write),
            "manage" => Some(Scope::Manage),
            _ => None,
        });
        known.max()
    }

    /// Its word.
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
    /// Words, the largest of which counts.
    pub scope: String,
    /// When it ends, in seconds since 1970.
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
}

/// A claim that is there is of its type: `null` is no way to say that a token is not bound.
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

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// There is none.
    Missing,
    /// Not a token, or no key of the project signed it, or a claim is missing or of the
    /// wrong type. One answer, so that nobody learns which.
    Unverified,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// It ends too far in the future.
    TooLong,
    /// It was made for another project.
    Project,
    /// `scope` names no right there is.
    Scope,
}

impl Invalid {
    /// In a word, for counting.
    pub fn word(self) -> &'static str {
        match self {
            Invalid::Missing => "missing",
            Invalid::Unverified => "unverified",
            Invalid::Expired => "expired",
            Invalid::NotYet => "not_yet",
            Invalid::TooLong => "too_long",
            Invalid::Project => "project",
            Invalid::Scope => "scope",
        }
    }

    /// What to do about it.
    pub fn detail(self) -> &'static str {
        match self {
            Invalid::Missing => "a token is needed: Authorization: Bearer …",
            Invalid::Unverified => {
                "the token is not valid: signed by a key of this project, with sub, scope and a numeric exp"
            }
            Invalid::Expired => "the token has expired",
            Invalid::NotYet => "the token is not valid yet",
            Invalid::TooLong => "the token would be valid for more than a year; make a shorter one",
            Invalid::Project => "the token was made for another project",
            Invalid::Scope => "the token's scope names none of read, write and manage",
        }
    }
}

impl Claims {
    /// Judges claims whose signature is good.
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
