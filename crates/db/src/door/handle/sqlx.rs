//! sqlx.

use ::sqlx::postgres::{PgConnection, PgDatabaseError, PgPool, Postgres};
use ::sqlx::{Error, PgExecutor, Transaction};

use super::sealed::Ask;
use super::{Failed, Refused, is_unavailable};
use crate::Raised;

/// Without a named statement, so that it works behind a transaction pooler.
async fn ask<'e>(executor: impl PgExecutor<'e>, sql: &'static str, text: String) -> Result<String, Failed> {
    let query = ::sqlx::query_scalar::<_, Option<String>>(sql).persistent(false).bind(text);
    Ok(query.fetch_one(executor).await?.unwrap_or_default())
}

impl Ask for &mut PgConnection {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, text).await
    }
}

impl Ask for &mut Transaction<'_, Postgres> {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(&mut **self, sql, text).await
    }
}

impl Ask for &PgPool {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, text).await
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        read(&error).unwrap_or_else(|| Failed::Other(error.into()))
    }
}

/// What the error says, if it is one of those that callers tell apart.
pub(super) fn read(error: &Error) -> Option<Failed> {
    let raised = match error {
        Error::Io(_) | Error::PoolTimedOut | Error::PoolClosed => {
            return Some(Failed::Unavailable(error.to_string()));
        }
        other => other.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?,
    };
    let refused = Refused::raised(Raised {
        sqlstate: raised.code(),
        message: raised.message(),
        detail: raised.detail().unwrap_or_default(),
        hint: raised.hint().unwrap_or_default(),
    });
    match refused {
        Some(refused) => Some(Failed::Raised(refused)),
        None if is_unavailable(raised.code()) => Some(Failed::Unavailable(raised.message().to_owned())),
        None => None,
    }
}
