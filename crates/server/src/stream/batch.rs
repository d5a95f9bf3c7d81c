//! `POST /v1/{project}/streams`: appends to many streams in one commit.
//!
//! Every append has its own result, in the order of the request: a refused one does not
//! undo the others. All that are accepted become durable with one sync.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::token::Action;
use towpath_streams::{Append, Appended, Error};

use super::append::{messages, stream_seq};
use super::refusal::Refusal;
use super::{Answer, Streams, request, with_body};
use crate::body::Body;
use crate::limits::BATCH_MAX;
use crate::project::Pass;
use crate::upload::Upload;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    appends: Vec<Item<'a>>,
}

/// One append. The data is one of `json`, `text` and `base64`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item<'a> {
    stream: String,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    text: Option<String>,
    base64: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    close: bool,
    producer: Option<By>,
    stream_seq: Option<String>,
    if_match: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct By {
    id: String,
    epoch: u64,
    seq: u64,
}

impl Streams {
    pub(super) async fn append_batch(
        &self,
        project: Arc<str>,
        pass: &Pass,
        request: Request<Upload>,
    ) -> Answer {
        let body = request::body(request.into_body(), self.settings().body_bytes_max).await?;
        let batch: Batch<'_> = serde_json::from_slice(&body)
            .map_err(|error| Refusal::invalid(format!("invalid batch: {error}")))?;
        if batch.appends.len() > BATCH_MAX {
            return Err(Refusal::invalid(format!("a batch may have at most {BATCH_MAX} appends")));
        }
        let mut appends = Vec::with_capacity(batch.appends.len());
        for (index, item) in batch.appends.into_iter().enumerate() {
            let append = append(&project, item);
            appends.push(
                append.map_err(|refusal| Refusal::invalid(format!("append {index}: {}", refusal.detail)))?,
            );
        }
        for (name, _) in &appends {
            pass.check(Action::Write(&name.id))?;
        }
        let names: Vec<StreamName> = appends.iter().map(|(name, _)| name.clone()).collect();
        let results = self.store().append_all(appends).await?;
        for (name, _) in names.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            self.fan_outs().appended(name);
        }
        let results: Vec<Value> = results.into_iter().map(describe).collect();
        let mut response = with_body(StatusCode::OK, Body::from(json!({ "results": results }).to_string()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

fn append(project: &str, item: Item<'_>) -> Result<(StreamName, Append), Refusal> {
    let name = StreamName::new(project, &item.stream);
    let name = name.ok_or_else(|| Refusal::invalid("stream is not a valid stream id"))?;
    let (default_type, data) = match (item.json, item.text, item.base64) {
        (Some(json), None, None) => ("application/json", Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(text), None) => ("text/plain", text.into()),
        (None, None, Some(text)) => {
            let bytes = STANDARD.decode(text).map_err(|_| Refusal::invalid("base64 is not valid base64"))?;
            ("application/octet-stream", bytes.into())
        }
        (None, None, None) if item.close => ("", Bytes::new()),
        _ => return Err(Refusal::invalid("send one of json, text and base64")),
    };
    let content_type = item.content_type.as_deref().unwrap_or(default_type);
    let content_type = ContentType::parse(content_type);
    let expected = item.if_match.as_deref().map(|text| Offset::parse(text).ok_or(()));
    let mut append = Append {
        close: item.close,
        producer: item.producer.map(|by| Producer::new(&by.id, by.epoch, by.seq)).transpose()?,
        stream_seq: item.stream_seq.as_deref().map(stream_seq).transpose()?,
        expected_tail: expected.transpose().map_err(|()| Refusal::invalid("if_match is not an offset"))?,
        ..Append::default()
    };
    if !data.is_empty() {
        let content_type =
            content_type.ok_or_else(|| Refusal::invalid("content_type is not a media type"))?;
        append.messages = messages(&content_type, data)?;
        append.content_type = Some(content_type);
    }
    Ok((name, append))
}

fn describe(result: Result<Appended, Error>) -> Value {
    match result {
        Ok(appended) => json!({
            "ok": true,
            "next_offset": appended.tail.to_string(),
            "closed": appended.closed,
            "duplicate": appended.is_duplicate,
        }),
        Err(error) => {
            let refusal = Refusal::from(error);
            json!({ "ok": false, "status": refusal.status.as_u16(), "error": refusal.error, "detail": refusal.detail })
        }
    }
}
