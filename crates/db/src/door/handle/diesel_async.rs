//! diesel-async.

use ::diesel::QueryableByName;
use ::diesel::result::{DatabaseErrorKind, Error};
use ::diesel::sql_types::{Nullable, Text};
use ::diesel_async::{AsyncPgConnection, RunQueryDsl};
use towpath_model::refusal::Refusal;

use super::sealed::Ask;
use super::{Failed, Refused};
use crate::Raised;

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Nullable<Text>)]
    answer: Option<String>,
}

impl Ask for &mut AsyncPgConnection {
    async fn ask(self, sql: &'static str, text: String) -> Result<String, Failed> {
        // Diesel reads columns by name.
        let sql = format!("select x.answer from ({sql}) as x(answer)");
        let query = ::diesel::sql_query(sql).bind::<Text, _>(text);
        let row: Answer = query.get_result(self).await?;
        Ok(row.answer.unwrap_or_default())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let Error::DatabaseError(kind, raised) = &error else { return Failed::Other(error.into()) };
        if let DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand = kind {
            return Failed::Unavailable(raised.message().to_owned());
        }
        // Diesel does not show the SQLSTATE; the doors say their word as the name of a constraint.
        let refusal = raised.constraint_name().and_then(Refusal::from_word);
        let refused = refusal.and_then(|refusal| {
            Refused::raised(Raised {
                sqlstate: refusal.sqlstate(),
                message: raised.message(),
                detail: raised.details().unwrap_or_default(),
                hint: raised.hint().unwrap_or_default(),
            })
        });
        refused.map_or_else(|| Failed::Other(error.into()), Failed::Raised)
    }
}
