//! `POST`: append, close, or both.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, IF_MATCH};
use hyper::{Request, Response, StatusCode};
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::json;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_streams::{Append, Appended, Messages};

use super::refusal::{self, Refusal};
use super::request::{self, header, is_true};
use super::session::describe_fan_out;
use super::{Answer, Streams, empty, headers};
use crate::body::Body;
use crate::limits::SEQ_BYTES_MAX;

impl Streams {
    /// Appends, and delivers to the sessions that follow. There is no way around the fan-out.
    pub(super) async fn publish(&self, name: StreamName, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        // An append to a stream nobody follows is answered in the protocol's own words alone.
        let is_publish = parts.uri.path().contains("/publish/");
        let append = wish(&parts.headers)?;
        let body = request::body(body, self.settings().body_bytes_max).await?;
        let append = with_body(append, header(&parts.headers, &CONTENT_TYPE)?, body)?;
        let has_data = !append.messages.is_empty();
        let published = self.fan_outs().publish(name.clone(), append).await?;
        let appended = published.appended;
        if has_data && !appended.is_duplicate {
            self.changed(&name);
        }
        let mut response = answer(appended, has_data);
        if published.subscribers > 0 || is_publish {
            describe_fan_out(response.headers_mut(), &published);
        }
        Ok(response)
    }
}

/// Everything but the body.
fn wish(headers: &HeaderMap) -> Result<Append, Refusal> {
    let producer = Producer::parse(
        header(headers, &headers::PRODUCER_ID)?,
        header(headers, &headers::PRODUCER_EPOCH)?,
        header(headers, &headers::PRODUCER_SEQ)?,
    )?;
    Ok(Append {
        close: is_true(headers, &headers::CLOSED),
        producer,
        stream_seq: header(headers, &headers::SEQ)?.map(stream_seq).transpose()?,
        expected_tail: header(headers, &IF_MATCH)?.map(expected_tail).transpose()?,
        ..Append::default()
    })
}

/// It is kept with the stream, in memory.
pub(super) fn stream_seq(text: &str) -> Result<Arc<str>, Refusal> {
    match text.len() <= SEQ_BYTES_MAX {
        true => Ok(text.into()),
        false => Err(Refusal::invalid(format!("Stream-Seq has at most {SEQ_BYTES_MAX} characters"))),
    }
}

/// `If-Match` names the tail that the writer has seen.
fn expected_tail(text: &str) -> Result<Offset, Refusal> {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Offset::parse(bare).ok_or_else(|| Refusal::invalid("If-Match takes an offset, as in Stream-Next-Offset"))
}

/// A body needs a type, except that closing needs no body and then no type either.
fn with_body(append: Append, content_type: Option<&str>, body: Bytes) -> Result<Append, Refusal> {
    if body.is_empty() {
        return match append.close {
            true => Ok(append),
            false => Err(Refusal::invalid("the body is empty; an append needs data or Stream-Closed: true")),
        };
    }
    let content_type = refusal::content_type(content_type)?;
    let messages = messages(&content_type, body)?;
    Ok(Append { messages, content_type: Some(content_type), ..append })
}

/// A body as messages: values of JSON, else one.
pub(super) fn messages(content_type: &ContentType, body: Bytes) -> Result<Messages, Refusal> {
    match content_type.mode() {
        Mode::Json => {
            let run = json::flatten(&body)?;
            Ok(Messages { data: run.data.into(), ends: run.ends })
        }
        Mode::Text | Mode::Bytes => Ok(Messages::one(body)),
    }
}

/// 204, but 200 for a producer's new data: that is how it tells new from duplicate.
fn answer(appended: Appended, has_data: bool) -> Response<Body> {
    let is_new = appended.producer.is_some() && !appended.is_duplicate && has_data;
    let mut response = empty(if is_new { StatusCode::OK } else { StatusCode::NO_CONTENT });
    let headers = response.headers_mut();
    headers.insert(headers::NEXT_OFFSET, headers::offset(appended.tail));
    if let Some(accepted) = appended.producer {
        headers.insert(headers::PRODUCER_EPOCH, headers::number(accepted.epoch));
        headers.insert(headers::PRODUCER_SEQ, headers::number(accepted.seq));
    }
    if appended.closed {
        headers.insert(headers::CLOSED, headers::TRUE);
    }
    response
}
