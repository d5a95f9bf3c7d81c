//! What can go wrong when asking the database, one variant per reaction of a caller.

use std::error::Error as _;

use towpath_model::refusal::Refusal;

/// Everything this crate's calls can answer besides success.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gate in front of the function is closed. Open it or wait.
    #[error("gate {gate} is closed; open it with: towpath gate open {gate} --why …")]
    GateClosed {
        /// The config key of the gate.
        gate: String,
    },
    /// Whoever asks was not granted this.
    #[error("not authorised: {0}")]
    NotAuthorised(String),
    /// Somebody else holds the attempt now, or it has ended. Drop the work.
    #[error("the lease on {0} is lost")]
    LeaseLost(String),
    /// The state of the thing named does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// The thing named does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An argument does not fit.
    #[error("{0}")]
    Invalid(String),
    /// No server answers at the address, or it does not let us in.
    #[error("{0}")]
    Unreachable(String),
    /// The server or the schema is of a version this binary does not work with.
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
        /// The process that owns it, 0 when it has not written its name yet.
        pid: i32,
        /// How to reach its PostgreSQL, once it is up.
        url: Option<String>,
    },
    /// Anything else PostgreSQL said.
    #[error("{}", in_words(.0))]
    Postgres(tokio_postgres::Error),
    /// An answer this binary cannot read: a newer schema, or a bug.
    #[error(
        "the database answered {0}, which this binary cannot read; is the schema newer? see `towpath doctor`"
    )]
    Unreadable(String),
}

impl Error {
    /// Whether it says something about the moment and not about what was asked: a closed gate, no connection,
    /// a deadlock, no disk. The same classes as `towpath._error_passing`.
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

    /// Turns a refusal of a function into the variant a caller reacts to.
    pub(crate) fn refused(answer: &serde_json::Value) -> Error {
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        let detail = text("detail");
        match Refusal::from_word(&text("error")) {
            Some(Refusal::GateClosed) => Error::GateClosed { gate: text("gate") },
            Some(Refusal::UnknownKey) => {
                Error::NotFound(format!("there is no config key {:?}; see: towpath config list", text("key")))
            }
            Some(Refusal::InvalidValue) => Error::Invalid(format!("{}: {detail}", text("key"))),
            Some(Refusal::Invalid) => Error::Invalid(about(&text("field"), detail)),
            Some(Refusal::NotAuthorised) => Error::NotAuthorised(told(&detail, answer)),
            Some(Refusal::NotFound) => Error::NotFound(told(&detail, answer)),
            Some(Refusal::Conflict) => Error::Conflict(told(&detail, answer)),
            Some(Refusal::LeaseLost) => {
                let ids = [text("job_id"), text("delivery_id")];
                Error::LeaseLost(ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default())
            }
            Some(Refusal::NoSubscription) if answer["consumer"].is_string() => Error::NotFound(format!(
                "{} has no unmuted subscription; make one with: towpath subscriptions add",
                text("consumer")
            )),
            Some(Refusal::NoSubscription) => Error::NotFound(format!(
                "executor {} has no enabled subscription; see: towpath executor list",
                text("executor")
            )),
            Some(Refusal::Paused) => Error::Conflict(told(&detail, answer)),
            None => Error::Unreadable(answer.to_string()),
        }
    }
}

impl Error {
    /// Whether PostgreSQL raised for what was asked, rather than for the moment (as `towpath._error_passing` tells them
    /// apart) or for want of rights: then asking item by item finds the one it raises for.
    pub(crate) fn is_of_an_item(&self) -> bool {
        let Error::Postgres(error) = self else { return false };
        let Some(code) = error.code().map(tokio_postgres::error::SqlState::code) else { return false };
        let passing = ["08", "40", "42", "53", "57", "58"].iter().any(|class| code.starts_with(class));
        !passing && !["55P03", "55006", "25006"].contains(&code)
    }

    /// Turns what a door (`towpath.enqueue` and its like) raised into the variant a caller reacts to;
    /// none if the SQLSTATE is not one of ours.
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

/// What PostgreSQL said when it raised, whichever driver heard it.
#[derive(Debug, Clone, Copy)]
pub struct Raised<'a> {
    /// The five characters.
    pub sqlstate: &'a str,
    /// What was refused and why.
    pub message: &'a str,
    /// The facts: the field, the gate, the index of the row.
    pub detail: &'a str,
    /// What to do next.
    pub hint: &'a str,
}

/// The detail with the field it is about, unless it names it.
fn about(field: &str, detail: String) -> String {
    if field.is_empty() || detail.contains(field) { detail } else { format!("{field}: {detail}") }
}

/// The detail, or what else the answer holds when it has none.
fn told(detail: &str, answer: &serde_json::Value) -> String {
    if !detail.is_empty() {
        return detail.to_owned();
    }
    let fields = answer.as_object().into_iter().flatten().filter(|(key, _)| *key != "ok");
    fields.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// By hand rather than derived: the words already hold the cause, and a `source` would be
/// printed a second time.
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
            other => Error::Unreachable(format!("no database connection within the wait: {other}")),
        }
    }
}

impl Error {
    /// A failed connection, with the cause PostgreSQL or the network gave.
    pub(crate) fn unreachable(error: &tokio_postgres::Error, whom: &str) -> Error {
        Error::Unreachable(format!(
            "cannot connect to {whom}: {}; check DATABASE_URL and that the server runs, \
             or unset it to use a private PostgreSQL",
            in_words(error)
        ))
    }
}

/// tokio-postgres says only "db error" or "error connecting to server"; the cause is below.
fn in_words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut words = format!("{} (SQLSTATE {})", db.message(), db.code().code());
        for extra in [db.detail(), db.hint()].into_iter().flatten() {
            words.push_str("; ");
            words.push_str(extra);
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
