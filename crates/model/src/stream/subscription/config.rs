//! The configuration of a subscription.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The configuration; two equal ones are the same subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// How it is woken.
    pub kind: Kind,
    /// Streams that match it are followed.
    pub pattern: Option<String>,
    /// Streams followed by name.
    pub streams: BTreeSet<String>,
    /// How long a wake is leased without a heartbeat.
    pub lease_ms: u64,
    /// A description.
    pub description: Option<String>,
}

/// How a subscription is woken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A request to a URL.
    Webhook {
        /// The URL.
        url: String,
    },
    /// A message in a stream that workers follow; one of them claims the wake.
    PullWake {
        /// The stream.
        wake_stream: String,
    },
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

const LEASE_MS: u64 = 30_000;
const LEASE_MS_MIN: u64 = 1_000;
const LEASE_MS_MAX: u64 = 600_000;
/// Named streams are stored with every subscription.
const STREAMS_MAX: usize = 10_000;

impl Config {
    /// Parses the body of a request.
    pub fn parse(body: &Value) -> Result<Config, Invalid> {
        let pattern = text(&body["pattern"]).map(path);
        let streams = match &body["streams"] {
            Value::Null => BTreeSet::new(),
            named => paths(named).ok_or(Invalid("streams must be a list of names"))?,
        };
        if pattern.is_none() && streams.is_empty() {
            return Err(Invalid("a pattern or streams are required"));
        }
        let lease_ms = match &body["lease_ttl_ms"] {
            Value::Null => LEASE_MS,
            given => given
                .as_u64()
                .filter(|ms| (LEASE_MS_MIN..=LEASE_MS_MAX).contains(ms))
                .ok_or(Invalid("lease_ttl_ms must be a whole number from 1000 to 600000"))?,
        };
        let description = text(&body["description"]).map(str::to_owned);
        Ok(Config { kind: Kind::parse(body)?, pattern, streams, lease_ms, description })
    }
}

impl Kind {
    fn parse(body: &Value) -> Result<Kind, Invalid> {
        match body["type"].as_str() {
            Some("webhook") => {
                let url = text(&body["webhook"]["url"]).ok_or(Invalid("a webhook requires webhook.url"))?;
                Ok(Kind::Webhook { url: url.to_owned() })
            }
            Some("pull-wake") => {
                let stream = text(&body["wake_stream"]).ok_or(Invalid("pull-wake requires wake_stream"))?;
                Ok(Kind::PullWake { wake_stream: path(stream) })
            }
            _ => Err(Invalid("type must be webhook or pull-wake")),
        }
    }

    /// Its name in the protocol.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Webhook { .. } => "webhook",
            Kind::PullWake { .. } => "pull-wake",
        }
    }
}

/// A list of stream names, if the value is one.
pub(super) fn paths(list: &Value) -> Option<BTreeSet<String>> {
    let list = list.as_array().filter(|list| list.len() <= STREAMS_MAX)?;
    list.iter().map(|name| text(name).map(path)).collect()
}

/// Names may have slashes around them.
pub(super) fn path(text: &str) -> String {
    text.trim_matches('/').to_owned()
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.trim_matches('/').is_empty())
}
