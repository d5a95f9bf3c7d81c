//! Errors of database calls, one variant per reaction of a caller.

use std::error::Error as _;

use towpath_model::refusal::Refusal;

/// Every error of this crate's calls.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The function's gate is closed. Open it or wait.
    #[error("gate {gate} is closed; open it with: towpath gate open {gate} --why …")]
    GateClosed {
        /// The config key of the gate.
        gate: String,
    },
    /// The caller has no grant for this.
    #[error("not authorised: {0}")]
    NotAuthorised(String),
    /// Another worker holds the attempt now, or it has ended. Stop working on it.
    #[error("the lease of {0} is lost")]
    LeaseLost(String),
    /// The object's state does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The server does not respond, or refuses the connection.
    #[error("{0}")]
    Unreachable(String),
    /// This binary does not support the version of the server or the schema.
    #[error("{0}")]
    Unsupported(String),
    /// The private PostgreSQL cannot be found, prepared or started.
    #[error("{0}")]
    Cluster(String),
    /// Another process owns the data directory.
    #[error(
        "{data} is in use by towpath process {pid}; stop it with `towpath db stop`, \
         or choose another directory with --data"
    )]
    InUse {
        /// The data directory.
        data: String,
        /// The process that owns it; 0 if it has not written its id yet.
        pid: i32,
        /// The URL of its PostgreSQL, once it is up.
        url: Option<String>,
    },
    /// Any other PostgreSQL error.
    #[error("{}", in_words(.0))]
    Postgres(tokio_postgres::Error),
    /// An answer this binary cannot parse: a newer schema, or a bug.
    #[error(
        "this binary cannot parse the database's answer: {0}; the schema may be newer, run: towpath doctor"
    )]
    Unreadable(String),
}

impl Error {
    /// Whether it is temporary and unrelated to the request: a closed gate, no connection, a deadlock, a full disk. The
    /// same classes as `towpath._error_passing`.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::GateClosed { .. } | Error::Unreachable(_) => true,
            Error::Postgres(error) => error.code().is_none_or(|state| {
                let (state, class) = (state.code(), &state.code()[..2]);
                ["08", "40", "53", "57", "58"].contains(&class)
                    || ["55P03", "55006", "25006"].contains(&state)
            }),
            _ => false,
        }
    }

    /// Converts a function's refusal.
    pub(crate) fn refused(answer: &serde_json::Value) -> Error {
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        let detail = text("detail");
        match Refusal::from_word(&text("error")) {
            Some(Refusal::GateClosed) => Error::GateClosed { gate: text("gate") },
            Some(Refusal::UnknownKey) => Error::NotFound(format!(
                "there is no config key {:?}; list them with: towpath config list",
                text("key")
            )),
            Some(Refusal::InvalidValue) => Error::Invalid(format!("{}: {detail}", text("key"))),
            Some(Refusal::Invalid) => Error::Invalid(about(&text("field"), detail)),
            Some(Refusal::NotAuthorised) => Error::NotAuthorised(detail_or_fields(&detail, answer)),
            Some(Refusal::NotFound) => Error::NotFound(detail_or_fields(&detail, answer)),
            Some(Refusal::Conflict) => Error::Conflict(detail_or_fields(&detail, answer)),
            Some(Refusal::LeaseLost) => {
                let ids = [text("job_id"), text("delivery_id")];
                Error::LeaseLost(ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default())
            }
            Some(Refusal::NoSubscription) if answer["consumer"].is_string() => Error::NotFound(format!(
                "{} has no unmuted subscription; add one with: towpath subscriptions add",
                text("consumer")
            )),
            Some(Refusal::NoSubscription) => Error::NotFound(format!(
                "executor {} has no enabled subscription; list them with: towpath executor list",
                text("executor")
            )),
            Some(Refusal::Paused) => Error::Conflict(detail_or_fields(&detail, answer)),
            None => Error::Unreadable(answer.to_string()),
        }
    }
}

impl Error {
    /// Whether one item of a batch caused the error, rather than a temporary condition (see `towpath._error_passing`) or
    /// missing rights. Then retrying item by item finds it.
    pub(crate) fn is_of_an_item(&self) -> bool {
        let Error::Postgres(error) = self else { return false };
        let Some(code) = error.code().map(tokio_postgres::error::SqlState::code) else { return false };
        let passing = ["08", "40", "42", "53", "57", "58"].iter().any(|class| code.starts_with(class));
        !passing && !["55P03", "55006", "25006"].contains(&code)
    }

    /// Converts what a door (`towpath.enqueue` and the like) raised; none if the SQLSTATE is not Towpath's.
    pub fn raised(raised: Raised<'_>) -> Option<Error> {
        let Raised { sqlstate, message, detail, hint } = raised;
        let words = if hint.is_empty() { message.to_owned() } else { format!("{message}; {hint}") };
        Some(match Refusal::from_sqlstate(sqlstate)? {
            Refusal::GateClosed => {
                Error::GateClosed { gate: detail.strip_prefix("gate: ").unwrap_or(detail).to_owned() }
            }
            Refusal::Invalid | Refusal::InvalidValue => Error::Invalid(words),
            Refusal::NotAuthorised => Error::NotAuthorised(words),
            Refusal::NotFound | Refusal::UnknownKey | Refusal::NoSubscription => Error::NotFound(words),
            Refusal::Conflict | Refusal::Paused => Error::Conflict(words),
            Refusal::LeaseLost => Error::LeaseLost(detail.to_owned()),
        })
    }
}

/// An exception of PostgreSQL, independent of the driver.
#[derive(Debug, Clone, Copy)]
pub struct Raised<'a> {
    /// The SQLSTATE.
    pub sqlstate: &'a str,
    /// What was refused and why.
    pub message: &'a str,
    /// Details: the field, the gate, the index of the row.
    pub detail: &'a str,
    /// What to do next.
    pub hint: &'a str,
}

/// The detail, prefixed with the field unless it contains it.
fn about(field: &str, detail: String) -> String {
    if field.is_empty() || detail.contains(field) { detail } else { format!("{field}: {detail}") }
}

/// The detail, or the other fields of the answer if there is none.
fn detail_or_fields(detail: &str, answer: &serde_json::Value) -> String {
    if !detail.is_empty() {
        return detail.to_owned();
    }
    let fields = answer.as_object().into_iter().flatten().filter(|(key, _)| *key != "ok");
    fields.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// Not derived: the message already contains the cause, and a `source` would be printed a second time.
impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        let raised = error.as_db_error().and_then(|db| {
            Error::raised(Raised {
                sqlstate: db.code().code(),
                message: db.message(),
                detail: db.detail().unwrap_or_default(),
                hint: db.hint().unwrap_or_default(),
            })
        });
        raised.unwrap_or(Error::Postgres(error))
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Error {
        match error {
            deadpool_postgres::PoolError::Backend(error) => Error::unreachable(&error, "the database"),
            other => Error::Unreachable(format!("no database connection available in time: {other}")),
        }
    }
}

impl Error {
    /// A failed connection, with its cause.
    pub(crate) fn unreachable(error: &tokio_postgres::Error, whom: &str) -> Error {
        Error::Unreachable(format!(
            "cannot connect to {whom}: {}; check DATABASE_URL and that the server is running, \
             or unset it to use a private PostgreSQL",
            in_words(error)
        ))
    }
}

/// tokio-postgres reports only "db error" or "error connecting to server"; the cause is in its source.
fn in_words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut words = format!("{} (SQLSTATE {})", db.message(), db.code().code());
        for extra in [db.detail(), db.hint()].into_iter().flatten() {
            words.push_str("; ");
            words.push_str(extra);
        }
        // A statement of another client, or none of ours: the pooler gave us another session.
        if ["42P05", "26000"].contains(&db.code().code()) {
            words.push_str(
                "; DATABASE_URL leads through a pooler in transaction mode, but Towpath needs sessions: \
                 use session mode, or connect to PostgreSQL directly",
            );
        }
        return words;
    }
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
