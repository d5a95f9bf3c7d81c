//! `towpath token create | list | revoke`: tokens for producers, and all tokens for the HTTP API.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use towpath_db::Database;
use towpath_db::executor_token::{ProducerTokenSpec, Produces, Token as Row, TokenCreated};
use towpath_model::id::TokenId;

use crate::command::Actor;
use crate::moment;
use crate::output::{Exit, Output, done, table_or};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Create a token for a producer; it is shown once and not stored
    Create(Create),
    /// List the tokens of producers and executors, and their state
    List,
    /// Revoke a token at once
    Revoke(Revoke),
}

#[derive(Args)]
pub(crate) struct Create {
    /// Job kind that it may enqueue, read and cancel; repeatable, `*` for all
    #[arg(long, value_name = "KIND", num_args = 1.., required_unless_present = "emit")]
    produce: Vec<String>,
    /// Domain in which it may emit events; repeatable, `*` for all
    #[arg(long, value_name = "DOMAIN", num_args = 1..)]
    emit: Vec<String>,
    /// Expiry: a time, or a duration from now (default: 90 days)
    #[arg(long, value_name = "WHEN", value_parser = moment::from_now)]
    expires: Option<Timestamp>,
    /// Notes for operators
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    by: Actor,
}

#[derive(Args)]
pub(crate) struct Revoke {
    /// Its id, as `token list` shows it
    #[arg(value_name = "TOKEN")]
    id: TokenId,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(token: Token, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match token {
            Token::Create(create) => make(create, &database, output).await?,
            Token::List => list(None, &database, output).await?,
            Token::Revoke(token) => revoke(token, &database, output).await?,
        }
        done()
    })
    .await
}

async fn make(create: Create, database: &Database, output: &Output) -> anyhow::Result<()> {
    let Create { produce, emit, expires, notes, by } = create;
    let spec = ProducerTokenSpec {
        produces: Produces {
            kinds: (!produce.is_empty()).then_some(&produce),
            domains: (!emit.is_empty()).then_some(&emit),
        },
        expires_at: expires,
        notes: notes.as_deref(),
        actor: &by.name(),
    };
    created(&database.producer_token_create(&spec).await?, output);
    Ok(())
}

/// Shows a new token, which nobody can show again.
pub(super) fn created(token: &TokenCreated, output: &Output) {
    output.show(token, |token| {
        let of = token.executor_id.as_deref().map(|executor| format!(" of {executor}")).unwrap_or_default();
        format!(
            "{}\ntoken {}{of} expires at {:.0}; save it now, it will not be shown again",
            token.token, token.token_id, token.expires_at
        )
    });
}

pub(super) async fn revoke(revoke: Revoke, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = revoke.by.name();
    let revoked = database.executor_token_revoke(revoke.id, &actor).await?;
    output.show(&revoked, |revoked| match revoked.changed {
        true => format!("revoked token {}", revoked.token_id),
        false => format!("token {} is already revoked", revoked.token_id),
    });
    Ok(())
}

pub(super) async fn list(executor: Option<&str>, database: &Database, output: &Output) -> anyhow::Result<()> {
    output.show(&database.executor_token_list(executor).await?, |rows| in_table(rows));
    Ok(())
}

fn in_table(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        [
            row.token_id.to_string(),
            row.executor_id.clone().unwrap_or_else(|| "(producer)".into()),
            rights(row),
            row.state.clone(),
            format!("{:.0}", row.expires_at),
            row.last_used_at.map_or_else(|| "never".into(), |at| format!("{at:.0}")),
        ]
    });
    table_or(
        "no tokens; create one with: towpath executor token create EXECUTOR, or towpath token create",
        ["TOKEN", "EXECUTOR", "MAY", "STATE", "EXPIRES", "LAST USED"],
        rows,
    )
}

/// What a token may do, in words.
fn rights(row: &Row) -> String {
    let named = |verb: &str, names: &Option<Vec<String>>| {
        names.as_ref().map(|names| format!("{verb} {}", names.join(" ")))
    };
    let claim = row.executor_id.as_ref().map(|_| match &row.kinds {
        Some(kinds) => format!("claim {}", kinds.join(" ")),
        None => "claim all subscribed".to_owned(),
    });
    let rights = [
        claim,
        row.may_enqueue.then(|| "enqueue".to_owned()),
        row.may_register.then(|| "register".to_owned()),
        named("produce", &row.produce),
        named("emit", &row.emit),
    ];
    rights.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
