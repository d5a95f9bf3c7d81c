//! Handles: a connection, a transaction or a pool of a driver.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlx")]
mod sqlx;
mod tokio_postgres;

use super::Refused;

/// A connection, transaction or pool of a supported driver, on which a call runs.
///
/// | driver | handles | feature |
/// |---|---|---|
/// | tokio-postgres | `&Client`, `&Transaction`, and those of deadpool-postgres | `tokio-postgres` |
/// | sqlx | `&mut PgConnection`, `&mut Transaction`, `&PgPool` | `sqlx` |
/// | diesel-async | `&mut AsyncPgConnection` | `diesel-async` |
/// | sea-orm | `&DatabaseTransaction`, `&DatabaseConnection` | `sea-orm` |
///
/// On a transaction, a call is part of it: commit makes its effect visible, rollback leaves nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handle of a database driver that Towpath knows",
    note = "pass `&transaction` of tokio-postgres or sea-orm, `&mut *transaction` of sqlx, or `&mut connection` of \
            diesel-async, and enable the driver's feature of towpath"
)]
pub trait Handle: sealed::Ask + Send {}

pub(crate) mod sealed {
    use super::Failed;

    /// Runs one statement with one text parameter that returns one text, or null.
    pub trait Ask: Sized {
        fn ask(self, sql: &'static str, text: String) -> impl Future<Output = Result<String, Failed>> + Send;
    }
}

impl<T: sealed::Ask + Send> Handle for T {}

/// A driver's error, read.
#[derive(Debug)]
pub enum Failed {
    /// A door raised it.
    Raised(Refused),
    /// The server does not respond, or refuses connections for now.
    Unavailable(String),
    /// Any other.
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// Whether an SQLSTATE says that the server is unreachable, full, starting or stopping.
fn is_unavailable(sqlstate: &str) -> bool {
    ["08", "53", "57P"].iter().any(|class| sqlstate.starts_with(class))
}
