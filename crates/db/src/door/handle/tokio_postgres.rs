//! tokio-postgres and its pool, deadpool-postgres.

use ::tokio_postgres::types::Type;
use ::tokio_postgres::{Client, Error, GenericClient};

use super::sealed::Ask;
use super::{Failed, Refused, is_unavailable};
use crate::{Database, Raised};

/// One round trip and no named statement, so that it works behind a transaction pooler.
async fn ask(client: &impl GenericClient, sql: &str, text: &str) -> Result<String, Failed> {
    let rows = client.query_typed(sql, &[(&text, Type::TEXT)]).await?;
    let answer = rows.first().map(|row| row.get::<_, Option<String>>(0));
    Ok(answer.flatten().unwrap_or_default())
}

#[cfg(feature = "tokio-postgres")]
impl Ask for &Client {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, &text).await
    }
}

#[cfg(feature = "tokio-postgres")]
impl Ask for &::tokio_postgres::Transaction<'_> {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, &text).await
    }
}

#[cfg(feature = "tokio-postgres")]
impl Ask for &deadpool_postgres::Client {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        let client: &Client = self;
        ask(client, sql, &text).await
    }
}

#[cfg(feature = "tokio-postgres")]
impl Ask for &deadpool_postgres::Transaction<'_> {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        let transaction: &::tokio_postgres::Transaction<'_> = self;
        ask(transaction, sql, &text).await
    }
}

impl Ask for &Database {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        let client = self.client().await.map_err(|error| Failed::Unavailable(error.to_string()))?;
        let client: &Client = &client;
        ask(client, sql, &text).await
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let Some(raised) = error.as_db_error() else {
            let cause = std::error::Error::source(&error);
            let broken = cause.is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
            return match error.is_closed() || broken {
                true => Failed::Unavailable(crate::Error::Postgres(error).to_string()),
                false => Failed::Other(error.into()),
            };
        };
        let refused = Refused::raised(Raised {
            sqlstate: raised.code().code(),
            message: raised.message(),
            detail: raised.detail().unwrap_or_default(),
            hint: raised.hint().unwrap_or_default(),
        });
        match refused {
            Some(refused) => Failed::Raised(refused),
            None if is_unavailable(raised.code().code()) => Failed::Unavailable(raised.message().to_owned()),
            None => Failed::Other(error.into()),
        }
    }
}
