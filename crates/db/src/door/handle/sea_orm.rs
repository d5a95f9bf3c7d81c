//! SeaORM, on sqlx.

use ::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, RuntimeErr, Statement,
};

use super::Failed;
use super::sealed::Ask;

async fn ask(connection: &impl ConnectionTrait, sql: &'static str, text: String) -> Result<String, Failed> {
    let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, [text.into()]);
    let row = connection.query_one_raw(statement).await?;
    let answer: Option<String> = row.map(|row| row.try_get_by_index(0)).transpose()?.flatten();
    Ok(answer.unwrap_or_default())
}

impl Ask for &DatabaseTransaction {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, text).await
    }
}

impl Ask for &DatabaseConnection {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        ask(self, sql, text).await
    }
}

impl From<DbErr> for Failed {
    fn from(error: DbErr) -> Failed {
        let read = match &error {
            DbErr::Query(RuntimeErr::SqlxError(error))
            | DbErr::Exec(RuntimeErr::SqlxError(error))
            | DbErr::Conn(RuntimeErr::SqlxError(error)) => super::sqlx::read(error),
            DbErr::ConnectionAcquire(_) => Some(Failed::Unavailable(error.to_string())),
            _ => None,
        };
        read.unwrap_or_else(|| Failed::Other(error.into()))
    }
}
