//! `towpath executor list | add | enable | disable | remove | token … | grant …`.

mod grant;
mod list;
mod token;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use towpath_db::Database;
use towpath_db::subscription::{Subscription, SubscriptionSpec};
use towpath_model::nearest::nearest;

use crate::command::Actor;
use crate::output::{Exit, Output, done};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Executor {
    /// List executors: registration, subscriptions, heartbeats
    List {
        /// Only this executor
        name: Option<String>,
    },
    /// Register an executor and what it may claim
    Add(Add),
    /// Enable an executor's subscriptions
    Enable(Named),
    /// Disable an executor's subscriptions; it may finish the jobs it has
    Disable(Named),
    /// Remove an executor with its subscriptions; its tokens are revoked
    Remove {
        /// Its name
        name: String,
    },
    /// Manage tokens for executors that work over HTTP
    #[command(subcommand)]
    Token(token::Token),
    /// Manage what producers may enqueue
    #[command(subcommand)]
    Grant(grant::Grant),
}

#[derive(Args)]
pub(crate) struct Add {
    /// Its name
    name: String,
    /// Its executor kind: PG_worker, external_worker, Agent …
    #[arg(long, value_name = "KIND")]
    executor: String,
    /// Job kind it claims; repeatable
    #[arg(long, value_name = "KIND", required_unless_present_any = ["any_kind", "no_kind"])]
    job_kind: Vec<String>,
    /// Claim every job kind meant for its executor kind
    #[arg(long, conflicts_with_all = ["job_kind", "no_kind"])]
    any_kind: bool,
    /// Claim nothing yet, or only enqueue
    #[arg(long, conflicts_with = "job_kind")]
    no_kind: bool,
    /// Only jobs of this event domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Claim only jobs with at least this priority
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = crate::input::number)]
    priority_floor: i32,
    /// Maximum concurrent jobs per kind: a number or `unlimited`
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = parallel)]
    max_parallel: Parallel,
    /// Enable it at once
    #[arg(long)]
    enable: bool,
    /// Only this database login may claim as this executor
    #[arg(long, value_name = "ROLE")]
    login_role: Option<String>,
    /// Notes for operators
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    #[command(flatten)]
    by: Actor,
}

#[derive(Args)]
pub(crate) struct Named {
    /// Its name
    name: String,
    /// Only its subscription for this kind
    #[arg(long, value_name = "KIND")]
    job_kind: Option<String>,
    #[command(flatten)]
    by: Actor,
}

/// A number, or none for no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parallel(Option<i32>);

fn parallel(text: &str) -> Result<Parallel, String> {
    match (text, text.parse()) {
        ("unlimited", _) => Ok(Parallel(None)),
        (_, Ok(number)) if number >= 1 => Ok(Parallel(Some(number))),
        _ => Err("expected a number of 1 or more, or `unlimited`".into()),
    }
}

pub(crate) async fn run(executor: Executor, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match executor {
            Executor::List { name } => list::run(name.as_deref(), &database, output).await?,
            Executor::Add(add) => register(add, &database, output).await?,
            Executor::Enable(named) => switch(&named, Switch::On, &database, output).await?,
            Executor::Disable(named) => switch(&named, Switch::Off, &database, output).await?,
            Executor::Remove { name } => remove(&name, &database, output).await?,
            Executor::Token(token) => token::run(token, &database, output).await?,
            Executor::Grant(grant) => grant::run(grant, &database, output).await?,
        }
        done()
    })
    .await
}

async fn register(add: Add, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = add.by.name();
    // Adding again changes what is given and keeps the rest, above all restrictions.
    let known = database.consumer_list().await?.into_iter().find(|row| row.executor_id == add.name);
    let login = add.login_role.clone().or_else(|| known?.login_role);
    let notes = add.notes.as_deref();
    database.consumer_put(&add.name, &add.executor, login.as_deref(), notes, &actor).await?;
    let before = database.subscription_list(Some(&add.name)).await?;
    let kinds: Vec<Option<&str>> = match (add.any_kind, add.no_kind) {
        (true, _) => vec![None],
        (_, true) => vec![],
        _ => add.job_kind.iter().map(|kind| Some(kind.as_str())).collect(),
    };
    for kind in &kinds {
        let spec = SubscriptionSpec {
            executor_id: &add.name,
            executor_kind: &add.executor,
            job_kind: *kind,
            event_domain: add.domain.as_deref(),
            priority_floor: add.priority_floor,
            max_parallel: add.max_parallel.0,
            enabled: add.enable
                || before.iter().any(|row| row.enabled && is_same(row, *kind, add.domain.as_deref())),
            notes,
            actor: &actor,
        };
        database.subscription_put(&spec).await?;
    }
    let now = database.subscription_list(Some(&add.name)).await?;
    output.show(&json!({ "executor_id": add.name, "subscriptions": now }), |_| {
        let next = match (now.is_empty(), now.iter().all(|row| row.enabled)) {
            (true, _) => "it has no subscription and claims nothing".to_owned(),
            (false, true) => "it can claim jobs".to_owned(),
            (false, false) => format!("it is disabled; enable it with: towpath executor enable {}", add.name),
        };
        format!("registered executor {}; {next}", add.name)
    });
    Ok(())
}

fn is_same(row: &Subscription, kind: Option<&str>, domain: Option<&str>) -> bool {
    row.job_kind.as_deref() == kind && row.event_domain.as_deref() == domain
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

async fn switch(named: &Named, to: Switch, database: &Database, output: &Output) -> anyhow::Result<()> {
    let all = database.subscription_list(Some(&named.name)).await?;
    if all.is_empty() {
        return Err(unknown(&named.name, database).await?);
    }
    let wanted: Vec<&Subscription> =
        all.iter().filter(|row| named.job_kind.is_none() || row.job_kind == named.job_kind).collect();
    if let (true, Some(kind)) = (wanted.is_empty(), &named.job_kind) {
        let kinds = all.iter().filter_map(|row| row.job_kind.as_deref());
        match nearest(kind, kinds) {
            Some(near) => bail!("{} has no subscription for {kind}; did you mean {near}?", named.name),
            None => {
                bail!("{} has no subscription for {kind}; list them with: towpath executor list", named.name)
            }
        }
    }
    let actor = named.by.name();
    let mut changed = 0;
    for row in wanted.iter().filter(|row| row.enabled != (to == Switch::On)) {
        database.subscription_put(&switched(row, to, &actor)).await?;
        changed += 1;
    }
    let state = if to == Switch::On { "enabled" } else { "disabled" };
    output.show(
        &json!({ "executor_id": named.name, "changed": changed, "enabled": to == Switch::On }),
        |_| match changed {
            0 => format!("{} is already {state}", named.name),
            _ => format!("{} is {state} ({changed} of {} subscriptions changed)", named.name, all.len()),
        },
    );
    Ok(())
}

fn switched<'a>(row: &'a Subscription, to: Switch, actor: &'a str) -> SubscriptionSpec<'a> {
    SubscriptionSpec {
        executor_id: &row.executor_id,
        executor_kind: &row.executor_kind,
        job_kind: row.job_kind.as_deref(),
        event_domain: row.event_domain.as_deref(),
        priority_floor: row.priority_floor,
        max_parallel: row.max_parallel,
        enabled: to == Switch::On,
        notes: None,
        actor,
    }
}

/// Subscriptions go first: one with leased jobs is refused, and everything else stays.
async fn remove(name: &str, database: &Database, output: &Output) -> anyhow::Result<()> {
    let subscriptions = database.subscription_list(Some(name)).await?;
    let registered = database.consumer_list().await?.iter().any(|row| row.executor_id == name);
    if subscriptions.is_empty() && !registered {
        return Err(unknown(name, database).await?);
    }
    for row in &subscriptions {
        database.subscription_delete(row.subscription_id).await?;
    }
    let tokens = database.executor_token_list(Some(name)).await?;
    let live = tokens.iter().filter(|token| token.revoked_at.is_none());
    for token in live.clone() {
        database.executor_token_revoke(token.token_id, &super::actor()).await?;
    }
    if registered {
        database.consumer_delete(name).await?;
    }
    // A heartbeat without renewals would look like a failing executor.
    if database.queue_heartbeats().await?.iter().any(|row| row.executor_name == name) {
        database.queue_heartbeat_forget(name).await?;
    }
    let revoked = live.count();
    output.show(&json!({ "removed": name, "tokens_revoked": revoked }), |_| {
        format!("removed executor {name}; revoked {revoked} tokens")
    });
    Ok(())
}

/// The error for an unknown name, with a similar one if there is one.
async fn unknown(name: &str, database: &Database) -> anyhow::Result<anyhow::Error> {
    let mut names: Vec<String> =
        database.consumer_list().await?.into_iter().map(|row| row.executor_id).collect();
    names.extend(database.subscription_list(None).await?.into_iter().map(|row| row.executor_id));
    Ok(match nearest(name, names.iter().map(String::as_str)) {
        Some(near) if near != name => anyhow!("there is no executor {name}; did you mean {near}?"),
        Some(_) => anyhow!("{name} has no subscription; add one with: towpath executor add {name} …"),
        None => anyhow!("there is no executor {name}; list them with: towpath executor list"),
    })
}
