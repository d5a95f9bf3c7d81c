//! `GET /v1/{project}/streams?prefix=`: lists streams.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use towpath_model::stream::name::StreamName;
use towpath_streams::{Head, List};

use super::refusal::Refusal;
use super::request::query;
use super::{Answer, Streams, headers, with_body};
use crate::body::Body;
use crate::limits::LIST_MAX;
use crate::upload::Upload;

impl Streams {
    pub(super) async fn list_streams(&self, project: Arc<str>, request: &Request<Upload>) -> Answer {
        let text = request.uri().query();
        let limit = match query(text, "limit")? {
            None => LIST_MAX,
            Some(text) => match text.parse() {
                Ok(limit @ 1..=LIST_MAX) => limit,
                _ => return Err(Refusal::invalid(format!("limit must be a number from 1 to {LIST_MAX}"))),
            },
        };
        let prefix = query(text, "prefix")?.unwrap_or_default();
        let after = query(text, "after")?;
        let found = self.store().list(List { project, prefix, after, limit }).await?;
        let next =
            (found.len() == limit).then(|| found.last().map(|(name, _)| name.id.to_string())).flatten();
        let streams: Vec<Value> =
            found.iter().filter(|(name, _)| !name.is_reserved()).map(describe).collect();
        let body = json!({ "streams": streams, "next": next }).to_string();
        let mut response = with_body(StatusCode::OK, Body::from(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(CACHE_CONTROL, headers::NO_STORE);
        Ok(response)
    }
}

fn describe((name, head): &(StreamName, Head)) -> Value {
    json!({
        "id": &*name.id,
        "path": name.path(),
        "content_type": head.content_type.as_str(),
        "first_offset": head.start.to_string(),
        "next_offset": head.tail.to_string(),
        "closed": head.closed,
        "created_at": head.created_at,
        "expires_at": head.ends_at,
        "retain_seconds": head.retention.age_seconds,
        "retain_bytes": head.retention.bytes,
    })
}
