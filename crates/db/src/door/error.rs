//! What an application's call may end with.

use towpath_model::refusal::Refusal;

use super::Failed;
use crate::Raised;

/// Why a call failed: one variant per code of refusal, and two for everything else.
///
/// ```
/// # use towpath_db::door as towpath;
/// # fn example(error: towpath::Error) {
/// use towpath::Error;
/// match &error {
///     Error::GateClosed(_) | Error::Unavailable(_) => eprintln!("try again later: {error}"),
///     _ => eprintln!("{}: {}; {}", error.word(), error.detail(), error.hint().unwrap_or_default()),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A gate is closed: an operator has switched this part of Towpath off.
    #[error("{0}")]
    GateClosed(Refused),
    /// An argument is missing or malformed.
    #[error("{0}")]
    Invalid(Refused),
    /// The login has no grant for this.
    #[error("{0}")]
    NotAuthorised(Refused),
    /// The thing named does not exist, or no longer exists.
    #[error("{0}")]
    NotFound(Refused),
    /// Its state does not allow this.
    #[error("{0}")]
    Conflict(Refused),
    /// Another worker holds the attempt now, or it has ended. Stop working on it.
    #[error("{0}")]
    LeaseLost(Refused),
    /// The executor has no enabled subscription.
    #[error("{0}")]
    NoSubscription(Refused),
    /// The kind is paused.
    #[error("{0}")]
    Paused(Refused),
    /// The database cannot be reached, or is starting or stopping. Retry.
    #[error("{0}")]
    Unavailable(String),
    /// Any other error of the driver or of PostgreSQL.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// What a refusal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its code.
    pub refusal: Refusal,
    /// What was refused, and why.
    pub detail: String,
    /// The field, the gate or the index that it is about; empty if there is none.
    pub subject: String,
    /// The next step, as a command where there is one.
    pub hint: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error {
    /// The code of the error, for programs: `gate_closed`, `invalid`, …
    pub fn word(&self) -> &'static str {
        match self {
            Error::Unavailable(_) => "unavailable",
            Error::Other(_) => "internal",
            _ => self.refused().map_or("internal", |refused| refused.refusal.word()),
        }
    }

    /// The cause, for people.
    pub fn detail(&self) -> String {
        self.to_string()
    }

    /// What to do next, where there is one answer.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Unavailable(_) => Some("Check the database and try again."),
            _ => self.refused().map(|refused| refused.hint.as_str()).filter(|hint| !hint.is_empty()),
        }
    }

    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Error::GateClosed(refused)
            | Error::Invalid(refused)
            | Error::NotAuthorised(refused)
            | Error::NotFound(refused)
            | Error::Conflict(refused)
            | Error::LeaseLost(refused)
            | Error::NoSubscription(refused)
            | Error::Paused(refused) => Some(refused),
            Error::Unavailable(_) | Error::Other(_) => None,
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Error {
        refuse(Refusal::Invalid, message.into(), "")
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused.refusal {
            Refusal::GateClosed => Error::GateClosed(refused),
            Refusal::Invalid | Refusal::InvalidValue | Refusal::UnknownKey => Error::Invalid(refused),
            Refusal::NotAuthorised => Error::NotAuthorised(refused),
            Refusal::NotFound => Error::NotFound(refused),
            Refusal::Conflict => Error::Conflict(refused),
            Refusal::LeaseLost => Error::LeaseLost(refused),
            Refusal::NoSubscription => Error::NoSubscription(refused),
            Refusal::Paused => Error::Paused(refused),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Raised(refused) => refused.into(),
            Failed::Unavailable(message) => Error::Unavailable(message),
            Failed::Other(error) => Error::Other(error),
        }
    }
}

/// Calls that Towpath's own programs make too have an error of their own.
impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Error {
        let message = error.to_string();
        match error {
            crate::Error::GateClosed { gate } => refuse(Refusal::GateClosed, message, &gate),
            crate::Error::NotAuthorised(_) => refuse(Refusal::NotAuthorised, message, ""),
            crate::Error::LeaseLost(job) => refuse(Refusal::LeaseLost, message, &job),
            crate::Error::Conflict(_) => refuse(Refusal::Conflict, message, ""),
            crate::Error::NotFound(_) => refuse(Refusal::NotFound, message, ""),
            crate::Error::Invalid(_) => refuse(Refusal::Invalid, message, ""),
            crate::Error::Unreachable(_) => Error::Unavailable(message),
            crate::Error::Postgres(error) => Failed::from(error).into(),
            other => Error::Other(other.into()),
        }
    }
}

fn refuse(refusal: Refusal, detail: String, subject: &str) -> Error {
    Refused { refusal, detail, subject: subject.to_owned(), hint: String::new() }.into()
}

impl Refused {
    /// What a door raised; none if the SQLSTATE is not Towpath's.
    pub(super) fn raised(raised: Raised<'_>) -> Option<Refused> {
        let Raised { sqlstate, message, detail, hint } = raised;
        Some(Refused {
            refusal: Refusal::from_sqlstate(sqlstate)?,
            detail: message.to_owned(),
            subject: detail.to_owned(),
            hint: hint.to_owned(),
        })
    }
}
