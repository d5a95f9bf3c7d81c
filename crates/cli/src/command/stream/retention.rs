//! `retention`: which data of a stream is kept.

use anyhow::bail;
use clap::Args;
use jiff::{Span, SpanTotal, Unit};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::client::{Client, header};

#[derive(Args)]
pub(super) struct Retention {
    /// The stream
    stream: String,
    #[command(flatten)]
    limits: Limits,
}

/// Retention limits of a stream; a limit that is not given stays unchanged.
#[derive(Args, Clone)]
pub(super) struct Limits {
    /// Drop data older than this, such as 36h or 7d; none keeps it forever
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    max_age: Option<String>,
    /// Drop the oldest data beyond this size; none keeps all
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_bytes: Option<String>,
}

impl Limits {
    /// The request with the given limits.
    pub(super) fn on(self, request: RequestBuilder) -> RequestBuilder {
        let limits = [("stream-retain-seconds", self.max_age), ("stream-retain-bytes", self.max_bytes)];
        limits.into_iter().fold(request, |request, (name, limit)| match limit {
            Some(limit) => request.header(name, limit),
            None => request,
        })
    }

    fn is_empty(&self) -> bool {
        self.max_age.is_none() && self.max_bytes.is_none()
    }
}

/// Changes the given limits, or shows them if none is given.
pub(super) async fn retention(client: &Client, retention: Retention) -> anyhow::Result<Value> {
    let method = if retention.limits.is_empty() { Method::HEAD } else { Method::PATCH };
    let request = client.request(method, &retention.stream);
    let response = client.send(retention.limits.on(request)).await?;
    let limit = |name: &str| number(&response, name);
    Ok(json!({
        "stream": retention.stream,
        "max_age_seconds": limit("stream-retain-seconds"),
        "max_bytes": limit("stream-retain-bytes"),
    }))
}

fn number(response: &Response, name: &str) -> Option<u64> {
    header(response, name)?.parse().ok()
}

pub(super) fn in_words(answer: &Value) -> String {
    let limit = |key: &str, unit: &str| answer[key].as_u64().map(|limit| format!("{limit} {unit}"));
    let limits = [limit("max_age_seconds", "seconds"), limit("max_bytes", "bytes")];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let kept = if limits.is_empty() { "everything".to_owned() } else { limits.join(", ") };
    format!("{}: keeps {kept}", answer["stream"].as_str().unwrap_or_default())
}

/// A duration in whole seconds, as the server expects it.
fn seconds(text: &str) -> anyhow::Result<String> {
    if text == "none" {
        return Ok(text.to_owned());
    }
    let span = text.parse::<Span>();
    // A day has 24 hours here.
    let total = span.and_then(|span| span.total(SpanTotal::from(Unit::Second).days_are_24_hours()));
    match total {
        Ok(seconds) if seconds >= 1.0 => Ok(format!("{seconds:.0}")),
        _ => bail!("expected a duration of a second or more, such as 90s, 36h or 7d, or none"),
    }
}

fn bytes(text: &str) -> anyhow::Result<String> {
    match text.parse::<u64>() {
        _ if text == "none" => Ok(text.to_owned()),
        Ok(1..) => Ok(text.to_owned()),
        _ => bail!("expected a whole number above zero, or none"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, seconds};

    #[test]
    fn limits_are_read_as_people_type_them() {
        for (text, read) in
            [("90s", "90"), ("36h", "129600"), ("7d", "604800"), ("1w", "604800"), ("none", "none")]
        {
            assert_eq!(seconds(text).expect(text), read);
        }
        for wrong in ["", "0s", "-1h", "week", "7", "1 month"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("1000").expect("a number"), "1000");
        for wrong in ["", "0", "-1", "1k"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
