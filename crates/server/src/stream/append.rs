//! `POST`: append, close, or both.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH};
use hyper::{Request, Response, StatusCode};
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::json;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::token::Action;
use towpath_streams::{Append, Messages};

use super::fanout::{Endpoint, PublishOutcome};
use super::headers;
use super::refusal::{self, Refusal};
use super::request::{self, Fields, header, is_true};
use super::{Answer, Asked, Streams, empty};
use crate::body::Body;
use crate::limits::SEQ_BYTES_MAX;
use crate::metrics;
use crate::upload::Upload;

/// An append that was parsed and authorised, or its refusal.
pub(crate) struct AppendRequest {
    name: StreamName,
    append: Result<Append, Refusal>,
}

/// The reply to an append that was made.
pub(crate) struct AppendReply {
    published: PublishOutcome,
    has_data: bool,
    /// Whether the reply has the headers of the fan-out.
    tells_fan_out: bool,
}

/// The value of a header of the reply.
pub(crate) enum Value {
    Text(&'static str),
    Offset(Offset),
    Number(u64),
}

impl Streams {
    /// Appends, and delivers to the sessions that follow: every append to a source fans out.
    pub(super) async fn publish(&self, name: StreamName, request: Request<Upload>) -> Answer {
        let (parts, body) = request.into_parts();
        // Invalid headers are refused before the body is read.
        fields_of(&parts.headers)?;
        let body = request::body(body, self.settings().body_bytes_max).await?;
        let append = read(&parts.headers, body)?;
        let endpoint = match parts.uri.path().contains("/publish/") {
            true => Endpoint::Publish,
            false => Endpoint::Append,
        };
        let mut reply = self.make(name, append, endpoint).await?;
        reply.tells_fan_out |= endpoint == Endpoint::Publish;
        Ok(reply.response())
    }

    /// Parses an append whose body has been read, and authorises it.
    pub(crate) fn append_request(
        &self,
        name: StreamName,
        fields: &impl Fields,
        body: Bytes,
    ) -> AppendRequest {
        let append = self.admit(&name.project, fields).and_then(|pass| {
            pass.check(Action::Write(&name.id))?;
            read(fields, body)
        });
        AppendRequest { name, append }
    }

    /// Makes an append, or refuses it.
    pub(crate) async fn append(&self, request: AppendRequest) -> Result<AppendReply, Box<Response<Body>>> {
        let asked = Asked::new(metrics::Request { endpoint: "stream", method: "POST" }, headers::Cors::Quiet);
        let AppendRequest { name, append } = request;
        let reply = match append {
            Ok(append) => self.make(name, append, Endpoint::Append).await,
            Err(refusal) => Err(refusal),
        };
        self.finish(&asked, reply, AppendReply::status)
    }

    async fn make(
        &self,
        name: StreamName,
        append: Append,
        endpoint: Endpoint,
    ) -> Result<AppendReply, Refusal> {
        let has_data = !append.messages.is_empty();
        let began = Instant::now();
        let published = self.fan_outs().publish(name, append, endpoint).await?;
        self.0.metrics.http().append_seconds.observe(began.elapsed().as_secs_f64());
        // An append to a stream without sessions gets the headers of the protocol only.
        Ok(AppendReply { published, has_data, tells_fan_out: published.subscribers > 0 })
    }
}

impl AppendReply {
    /// 204, but 200 for new data of a producer: 204 tells it that the data was a duplicate.
    pub(crate) fn status(&self) -> StatusCode {
        let appended = &self.published.appended;
        let is_new = appended.producer.is_some() && !appended.is_duplicate && self.has_data;
        if is_new { StatusCode::OK } else { StatusCode::NO_CONTENT }
    }

    /// Every header of the reply.
    pub(crate) fn fields(&self, mut put: impl FnMut(HeaderName, Value)) {
        let appended = &self.published.appended;
        put(headers::NEXT_OFFSET, Value::Offset(appended.tail));
        if let Some(accepted) = appended.producer {
            put(headers::PRODUCER_EPOCH, Value::Number(accepted.epoch));
            put(headers::PRODUCER_SEQ, Value::Number(accepted.seq));
        }
        if appended.closed {
            put(headers::CLOSED, Value::Text("true"));
        }
        if self.tells_fan_out {
            let published = &self.published;
            put(headers::FANOUT_COUNT, Value::Number(published.subscribers as u64));
            put(headers::FANOUT_SUCCESSES, Value::Number(published.successes as u64));
            put(headers::FANOUT_FAILURES, Value::Number(published.failures as u64));
            put(headers::FANOUT_MODE, Value::Text(published.mode.word()));
        }
        headers::fixed(|name, value| put(name, Value::Text(value)));
    }

    fn response(&self) -> Response<Body> {
        let mut response = empty(self.status());
        let out = response.headers_mut();
        self.fields(|name, value| {
            out.insert(
                name,
                match value {
                    Value::Text(text) => HeaderValue::from_static(text),
                    Value::Offset(offset) => headers::offset(offset),
                    Value::Number(number) => headers::number(number),
                },
            );
        });
        response
    }
}

/// Parses an append from its headers and its body.
pub(super) fn read(fields: &impl Fields, body: Bytes) -> Result<Append, Refusal> {
    with_body(fields_of(fields)?, header(fields, &CONTENT_TYPE)?, body)
}

/// Everything but the body.
fn fields_of(fields: &impl Fields) -> Result<Append, Refusal> {
    let producer = Producer::parse(
        header(fields, &headers::PRODUCER_ID)?,
        header(fields, &headers::PRODUCER_EPOCH)?,
        header(fields, &headers::PRODUCER_SEQ)?,
    )?;
    Ok(Append {
        close: is_true(fields, &headers::CLOSED),
        producer,
        stream_seq: header(fields, &headers::SEQ)?.map(stream_seq).transpose()?,
        expected_tail: header(fields, &IF_MATCH)?.map(expected_tail).transpose()?,
        ..Append::default()
    })
}

/// Checks the length: every stream keeps its last one in memory.
pub(super) fn stream_seq(text: &str) -> Result<Arc<str>, Refusal> {
    match text.len() <= SEQ_BYTES_MAX {
        true => Ok(text.into()),
        false => Err(Refusal::invalid(format!("Stream-Seq may have at most {SEQ_BYTES_MAX} characters"))),
    }
}

/// `If-Match` names the tail that the writer has seen.
fn expected_tail(text: &str) -> Result<Offset, Refusal> {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Offset::parse(bare)
        .ok_or_else(|| Refusal::invalid("If-Match must be an offset, as in Stream-Next-Offset"))
}

/// A body needs a content type. Only a close may have no body.
fn with_body(append: Append, content_type: Option<&str>, body: Bytes) -> Result<Append, Refusal> {
    if body.is_empty() {
        return match append.close {
            true => Ok(append),
            false => Err(Refusal::invalid("the body is empty; send data, or Stream-Closed: true")),
        };
    }
    let content_type = refusal::content_type(content_type)?;
    let messages = messages(&content_type, body)?;
    Ok(Append { messages, content_type: Some(content_type), ..append })
}

/// Splits a body into messages: one for each JSON value, else one.
pub(super) fn messages(content_type: &ContentType, body: Bytes) -> Result<Messages, Refusal> {
    match content_type.mode() {
        Mode::Json => {
            let run = json::flatten(&body)?;
            Ok(Messages { data: run.data.into(), ends: run.ends })
        }
        Mode::Text | Mode::Bytes => Ok(Messages::one(body)),
    }
}
