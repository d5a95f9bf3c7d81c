//! `towpath executor token create | list | revoke`.

use clap::Subcommand;
use jiff::Timestamp;
use towpath_db::executor_token::{Token as Row, TokenSpec};
use towpath_db::{Database, Error};
use towpath_model::id::TokenId;

use crate::moment;
use crate::output::{Output, table};

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Create a token; it is shown once and not stored
    Create {
        /// Registered executor
        executor: String,
        /// Only this job kind; repeatable
        #[arg(long, value_name = "KIND")]
        job_kind: Vec<String>,
        /// Allow it to enqueue: its own job kinds, and what `executor grant` allows
        #[arg(long)]
        may_enqueue: bool,
        /// Expiry: a time, or a duration from now (default: 90 days)
        #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
        expires: Option<Timestamp>,
        /// Notes for operators
        #[arg(long, value_name = "TEXT")]
        notes: Option<String>,
        /// Actor to record (default: user@host)
        #[arg(long, value_name = "ACTOR")]
        by: Option<String>,
    },
    /// List tokens and their state
    List {
        /// Only of this executor
        executor: Option<String>,
    },
    /// Revoke a token at once
    Revoke {
        /// Its id, as `token list` shows it
        #[arg(value_name = "TOKEN")]
        id: TokenId,
        /// Actor to record (default: user@host)
        #[arg(long, value_name = "ACTOR")]
        by: Option<String>,
    },
}

pub(crate) async fn run(token: Token, database: &Database, output: &Output) -> anyhow::Result<()> {
    match token {
        Token::Create { executor, job_kind, may_enqueue, expires, notes, by } => {
            let spec = TokenSpec {
                executor_id: &executor,
                kinds: (!job_kind.is_empty()).then_some(&job_kind),
                may_enqueue,
                expires_at: expires,
                notes: notes.as_deref(),
                actor: &by.unwrap_or_else(crate::command::actor),
            };
            let created = match database.executor_token_create(&spec).await {
                Err(Error::NotFound(_)) => return Err(super::unknown(&executor, database).await?),
                other => other?,
            };
            output.show(&created, |created| {
                format!(
                    "{}\ntoken {} of {} expires at {:.0}; save it now, it will not be shown again",
                    created.token, created.token_id, created.executor_id, created.expires_at
                )
            });
        }
        Token::List { executor } => {
            output.show(&database.executor_token_list(executor.as_deref()).await?, |rows| list(rows));
        }
        Token::Revoke { id, by } => {
            let actor = by.unwrap_or_else(crate::command::actor);
            let revoked = database.executor_token_revoke(id, &actor).await?;
            output.show(&revoked, |revoked| match revoked.changed {
                true => format!("revoked token {}", revoked.token_id),
                false => format!("token {} is already revoked", revoked.token_id),
            });
        }
    }
    Ok(())
}

fn list(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no tokens; create one with: towpath executor token create EXECUTOR".into();
    }
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            [
                row.token_id.to_string(),
                row.executor_id.clone(),
                row.kinds.as_ref().map_or_else(|| "all subscribed".into(), |kinds| kinds.join(", ")),
                if row.may_enqueue { "yes" } else { "no" }.into(),
                row.state.clone(),
                format!("{:.0}", row.expires_at),
                row.last_used_at.map_or_else(|| "never".into(), |at| format!("{at:.0}")),
            ]
        })
        .collect();
    table(["TOKEN", "EXECUTOR", "KINDS", "ENQUEUE", "STATE", "EXPIRES", "LAST USED"], &rows)
}
