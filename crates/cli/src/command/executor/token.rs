//! `towpath executor token create | list | revoke`.

use clap::Subcommand;
use jiff::Timestamp;
use towpath_db::executor_token::{Produces, TokenSpec};
use towpath_db::{Database, Error};

use crate::command::Actor;
use crate::command::token::{Revoke, created, list, revoke};
use crate::moment;
use crate::output::Output;

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Create a token; it is shown once and not stored
    Create {
        /// Registered executor
        executor: String,
        /// Only this job kind; repeatable
        #[arg(long, value_name = "KIND")]
        kind: Vec<String>,
        /// Allow it to enqueue: its own job kinds, and what `executor grant` allows
        #[arg(long)]
        may_enqueue: bool,
        /// Allow it to subscribe its executor to the kinds that its worker handles
        #[arg(long)]
        register: bool,
        /// Allow it to enqueue this job kind for any executor; repeatable, `*` for all
        #[arg(long, value_name = "KIND")]
        produce: Vec<String>,
        /// Allow it to emit events in this domain; repeatable, `*` for all
        #[arg(long, value_name = "DOMAIN")]
        emit: Vec<String>,
        /// Expiry: a time, or a duration from now (default: 90 days)
        #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
        expires: Option<Timestamp>,
        /// Notes for operators
        #[arg(long, value_name = "TEXT")]
        notes: Option<String>,
        #[command(flatten)]
        by: Actor,
    },
    /// List tokens and their state
    List {
        /// Only of this executor
        executor: Option<String>,
    },
    /// Revoke a token at once
    Revoke(Revoke),
}

pub(crate) async fn run(token: Token, database: &Database, output: &Output) -> anyhow::Result<()> {
    match token {
        Token::Create { executor, kind, may_enqueue, register, produce, emit, expires, notes, by } => {
            let spec = TokenSpec {
                executor_id: &executor,
                kinds: (!kind.is_empty()).then_some(&kind),
                may_enqueue,
                may_register: register,
                produces: Produces {
                    kinds: (!produce.is_empty()).then_some(&produce),
                    domains: (!emit.is_empty()).then_some(&emit),
                },
                expires_at: expires,
                notes: notes.as_deref(),
                actor: &by.name(),
            };
            let token = match database.executor_token_create(&spec).await {
                Err(Error::NotFound(_)) => return Err(super::unknown(&executor, database).await?),
                other => other?,
            };
            created(&token, output);
        }
        Token::List { executor } => list(executor.as_deref(), database, output).await?,
        Token::Revoke(token) => revoke(token, database, output).await?,
    }
    Ok(())
}
