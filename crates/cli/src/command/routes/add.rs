//! `towpath routes add`.

use anyhow::bail;
use clap::Args;
use serde_json::{Map, Value, json};
use towpath_db::Database;
use towpath_db::event::RouteSpec;

use super::key_in_words;
use crate::input;
use crate::output::Output;

#[derive(Args)]
#[command(group = clap::ArgGroup::new("to").required(true).args(["to_job", "to_webhook", "to_stream"]))]
pub(crate) struct Add {
    /// Its name, for ever: small letters, digits, and . - _
    route: String,
    /// Make a job of this kind from each event
    #[arg(long, value_name = "KIND")]
    to_job: Option<String>,
    /// Send each event, signed, to this address
    #[arg(long, value_name = "URL")]
    to_webhook: Option<String>,
    /// Append each event to this stream
    #[arg(long, value_name = "STREAM")]
    to_stream: Option<String>,
    /// Only of this domain [default: any]
    #[arg(long)]
    domain: Option<String>,
    /// Only of this type [default: any]
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of this stream of the domain [default: any]
    #[arg(long)]
    stream: Option<String>,
    /// Only what this recipient hears; role:* is every role [default: whoever hears it]
    #[arg(long, value_name = "RECIPIENT")]
    recipient: Option<String>,
    /// Only with this in the payload, a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// One at a time and in order for each ordering key
    #[arg(long)]
    ordered: bool,
    /// Jobs: for this kind of executor [default: the one that the kind's subscriptions name, else PG_worker]
    #[arg(long, value_name = "NAME", requires = "to_job")]
    executor: Option<String>,
    /// Jobs: with this priority
    #[arg(long, value_name = "NUMBER", requires = "to_job")]
    priority: Option<i32>,
    /// Jobs: a field taken from the payload, such as priority=urgency; may be given several times
    #[arg(long, value_name = "FIELD=KEY", requires = "to_job", value_parser = pair)]
    from_payload: Vec<(String, String)>,
    /// Webhooks: a header to send, such as X-Shop=7; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "to_webhook", value_parser = pair)]
    header: Vec<(String, String)>,
    /// Webhooks: how long the receiver may take [default: 15]
    #[arg(long, value_name = "SECONDS", requires = "to_webhook")]
    timeout: Option<u32>,
    /// Webhooks: the waits between attempts in seconds, such as 5,300,3600 [default: nine over a day]
    #[arg(long, value_name = "SECONDS", requires = "to_webhook", value_delimiter = ',')]
    retry: Vec<i32>,
    /// Webhooks: at most this many a second
    #[arg(long, value_name = "NUMBER", requires = "to_webhook")]
    rate: Option<f64>,
    /// Webhooks: a signing key of one's own [default: a random one]
    #[arg(long, value_name = "KEY", requires = "to_webhook")]
    signing_key: Option<String>,
    /// The route worker it belongs to
    #[arg(long, default_value = "default")]
    worker: String,
    /// What people should know
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    /// Change the route of this name; its mode and its key stay
    #[arg(long)]
    replace: bool,
    /// Who, for the record; user@host if not given
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("two words with = between them".into()),
    }
}

pub(crate) async fn run(add: Add, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = add.by.clone().unwrap_or_else(crate::command::actor);
    if !add.replace && database.route_list().await?.iter().any(|row| row.route_name == add.route) {
        bail!("there is a route {} already; change it with --replace, see: towpath routes list", add.route);
    }
    let (target_kind, target) = add.target();
    let spec = RouteSpec {
        route_name: &add.route,
        target_kind,
        target,
        event_domain: add.domain.as_deref(),
        event_type: add.event_type.as_deref(),
        event_stream: add.stream.as_deref(),
        recipient_filter: add.recipient.as_deref(),
        payload_filter: input::object(add.payload.as_deref(), "payload")?,
        ordering: if add.ordered { "key" } else { "none" },
        retry_seconds: (!add.retry.is_empty()).then_some(&add.retry),
        rate_limit_per_second: add.rate,
        worker_name: &add.worker,
        notes: add.notes.as_deref(),
        actor: &actor,
    };
    let put = database.route_put(&spec).await?;
    let key = match put.created && add.to_webhook.is_some() {
        true => Some(database.route_secret_rotate(&add.route, add.signing_key.as_deref(), 0, &actor).await?),
        false => None,
    };
    let data = json!({
        "route_name": put.route_name, "mode": put.mode, "created": put.created,
        "signing_key": key.as_ref().map(|key| &key.signing_key),
    });
    output.show(&data, |_| {
        let done = if put.created { "is made" } else { "is changed" };
        let mut words = format!("{} {done}, {}", put.route_name, put.mode);
        if let Some(key) = &key {
            words += &format!("\n{}", key_in_words(key));
        }
        match put.created {
            true => format!("{words}\nnext: towpath routes dry-run {} --why …", put.route_name),
            false => words,
        }
    });
    Ok(())
}

impl Add {
    /// The kind of target and what it needs.
    fn target(&self) -> (&'static str, Value) {
        let map = |pairs: &[(String, String)]| -> Value {
            pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>().into()
        };
        let mut target = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            target.extend(value.map(|value| (name.to_owned(), value)));
        };
        let kind = match (&self.to_job, &self.to_webhook) {
            (Some(kind), _) => {
                set("job_kind", Some(json!(kind)));
                set("executor", self.executor.as_ref().map(|executor| json!(executor)));
                set("priority", self.priority.map(|priority| json!(priority)));
                set("from_payload", (!self.from_payload.is_empty()).then(|| map(&self.from_payload)));
                "job"
            }
            (_, Some(url)) => {
                set("url", Some(json!(url)));
                set("headers", (!self.header.is_empty()).then(|| map(&self.header)));
                set("timeout_seconds", self.timeout.map(|seconds| json!(seconds)));
                "webhook"
            }
            _ => {
                set("stream", self.to_stream.as_ref().map(|stream| json!(stream)));
                "stream"
            }
        };
        (kind, target.into())
    }
}
