//! `towpath routes add`.

use anyhow::bail;
use clap::Args;
use serde_json::{Map, Value, json};
use towpath_db::Database;
use towpath_db::event::RouteSpec;

use super::key_in_words;
use crate::command::Actor;
use crate::input;
use crate::output::Output;

#[derive(Args)]
#[command(group = clap::ArgGroup::new("to").required(true).args(["to_job", "to_webhook", "to_stream", "to_process"]))]
pub(crate) struct Add {
    /// Name, which cannot change: lower-case letters, digits, and . - _
    route: String,
    /// Enqueue a job of this kind for each event
    #[arg(long, value_name = "KIND")]
    to_job: Option<String>,
    /// Send each event as a signed webhook to this URL
    #[arg(long, value_name = "URL")]
    to_webhook: Option<String>,
    /// Append each event to this stream
    #[arg(long, value_name = "STREAM")]
    to_stream: Option<String>,
    /// Streams: append changes of the State Protocol instead of events
    #[arg(long = "as", value_name = "FORM", value_parser = ["state"], requires_all = ["to_stream", "entity", "key"])]
    form: Option<String>,
    /// State: the type of the entity that the events change, such as order
    #[arg(long, value_name = "TYPE", requires = "form")]
    entity: Option<String>,
    /// State: where the event has the entity's key, such as payload.order_id
    #[arg(long, value_name = "PATH", requires = "form")]
    key: Option<String>,
    /// State: events of this type delete the entity; repeatable
    #[arg(long, value_name = "TYPE", requires = "form")]
    delete_on: Vec<String>,
    /// Signal the process of this kind whose ref is in the payload
    #[arg(long, value_name = "KIND", requires_all = ["ref_key", "signal"])]
    to_process: Option<String>,
    /// Processes: the key of the payload that holds the ref
    #[arg(long, value_name = "KEY", requires = "to_process")]
    ref_key: Option<String>,
    /// Processes: the name of the signal
    #[arg(long, value_name = "NAME", requires = "to_process")]
    signal: Option<String>,
    /// Only of this domain (default: any)
    #[arg(long)]
    domain: Option<String>,
    /// Only of this type (default: any)
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of this stream within the domain (default: any)
    #[arg(long)]
    stream: Option<String>,
    /// Only events for this recipient; role:* is every role (default: any recipient)
    #[arg(long, value_name = "RECIPIENT")]
    recipient: Option<String>,
    /// Only if the payload contains this JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Deliver in order, one at a time per ordering key
    #[arg(long)]
    ordered: bool,
    /// Jobs: executor kind (default: the one named by the kind's subscriptions, else PG_worker)
    #[arg(long, value_name = "NAME", requires = "to_job")]
    executor: Option<String>,
    /// Jobs: priority
    #[arg(long, value_name = "NUMBER", requires = "to_job", value_parser = crate::input::number)]
    priority: Option<i32>,
    /// Jobs: a field taken from the payload, such as priority=urgency; repeatable
    #[arg(long, value_name = "FIELD=KEY", requires = "to_job", value_parser = pair)]
    from_payload: Vec<(String, String)>,
    /// Webhooks: a header to send, such as X-Shop=7; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "to_webhook", value_parser = pair)]
    header: Vec<(String, String)>,
    /// Webhooks: timeout (default: 15)
    #[arg(long, value_name = "SECONDS", requires = "to_webhook")]
    timeout: Option<u32>,
    /// Webhooks: retry delays in seconds, such as 5,300,3600 (default: nine over a day)
    #[arg(long, value_name = "SECONDS", requires = "to_webhook", value_delimiter = ',')]
    retry: Vec<i32>,
    /// Webhooks: rate limit per second
    #[arg(long, value_name = "NUMBER", requires = "to_webhook")]
    rate: Option<f64>,
    /// Webhooks: your own signing key (default: a random one)
    #[arg(long, value_name = "KEY", requires = "to_webhook")]
    signing_key: Option<String>,
    /// Route worker
    #[arg(long, default_value = "default")]
    worker: String,
    /// Notes for operators
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    /// Replace an existing route; its mode and signing key stay
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    by: Actor,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

pub(crate) async fn run(add: Add, database: &Database, output: &Output) -> anyhow::Result<()> {
    let actor = add.by.name();
    if !add.replace && database.route_list().await?.iter().any(|row| row.route_name == add.route) {
        bail!("route {} already exists; change it with --replace", add.route);
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
        let done = if put.created { "created" } else { "changed" };
        let mut words = format!("{done} route {} ({})", put.route_name, put.mode);
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
    /// The target kind and its parameters.
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
            _ if self.to_process.is_some() => {
                set("process_kind", self.to_process.as_ref().map(|kind| json!(kind)));
                set("ref_key", self.ref_key.as_ref().map(|key| json!(key)));
                set("signal", self.signal.as_ref().map(|signal| json!(signal)));
                "process"
            }
            _ => {
                set("stream", self.to_stream.as_ref().map(|stream| json!(stream)));
                set("entity", self.entity.as_ref().map(|entity| json!(entity)));
                set("key", self.key.as_ref().map(|key| json!(key)));
                set("delete_on", (!self.delete_on.is_empty()).then(|| json!(self.delete_on)));
                "stream"
            }
        };
        (kind, target.into())
    }
}
