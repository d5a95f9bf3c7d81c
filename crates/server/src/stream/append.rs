//! `POST`: append, close, or both.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH};
use hyper::{Request, Response, StatusCode};
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::json;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_streams::{Append, Appended, Messages};

use super::headers::Cors;
use super::refusal::{self, Refusal};
use super::request::{self, Fields, header, is_true};
use super::{Answer, Streams, empty, headers};
use crate::body::Body;
use crate::limits::SEQ_BYTES_MAX;
use crate::upload::Upload;

/// An append as it was asked for, ready to be made or refused.
pub(crate) struct Wish {
    name: StreamName,
    append: Result<Append, Refusal>,
    cors: Cors,
}

/// An append that was made.
pub(crate) struct Done {
    appended: Appended,
    has_data: bool,
    cors: Cors,
}

/// What a field of its answer says.
pub(crate) enum Value {
    Text(&'static str),
    Offset(Offset),
    Number(u64),
}

impl Streams {
    pub(super) async fn append(&self, name: StreamName, request: Request<Upload>) -> Answer {
        let (parts, body) = request.into_parts();
        // A wish that is wrong is refused before its body is waited for.
        wish(&parts.headers)?;
        let body = request::body(body, self.settings().body_bytes_max).await?;
        let Wish { name, append, cors } = self.wish(name, &parts.headers, body);
        Ok(self.make(name, append?, cors).await?.answer())
    }

    /// Reads an append whose body is here.
    pub(crate) fn wish(&self, name: StreamName, fields: &impl Fields, body: Bytes) -> Wish {
        let append = wish(fields).and_then(|append| with_body(append, header(fields, &CONTENT_TYPE)?, body));
        Wish { name, append, cors: Cors::of_write(fields) }
    }

    /// Makes it, or answers why not.
    pub(crate) async fn commit(&self, Wish { name, append, cors }: Wish) -> Result<Done, Response<Body>> {
        let done = match append {
            Ok(append) => self.make(name, append, cors).await,
            Err(refusal) => Err(refusal),
        };
        done.map_err(|refusal| {
            let mut response = refusal.into_response();
            cors.add_to(response.headers_mut());
            response
        })
    }

    async fn make(&self, name: StreamName, append: Append, cors: Cors) -> Result<Done, Refusal> {
        let has_data = !append.messages.is_empty();
        let appended = self.store().append(name.clone(), append).await?;
        if has_data && !appended.is_duplicate {
            self.changed(&name);
        }
        Ok(Done { appended, has_data, cors })
    }
}

impl Done {
    /// 204, but 200 for a producer's new data: that is how it tells new from duplicate.
    pub(crate) fn status(&self) -> StatusCode {
        let is_new = self.appended.producer.is_some() && !self.appended.is_duplicate && self.has_data;
        if is_new { StatusCode::OK } else { StatusCode::NO_CONTENT }
    }

    /// Every field of its answer.
    pub(crate) fn fields(&self, mut put: impl FnMut(HeaderName, Value)) {
        put(headers::NEXT_OFFSET, Value::Offset(self.appended.tail));
        if let Some(accepted) = self.appended.producer {
            put(headers::PRODUCER_EPOCH, Value::Number(accepted.epoch));
            put(headers::PRODUCER_SEQ, Value::Number(accepted.seq));
        }
        if self.appended.closed {
            put(headers::CLOSED, Value::Text("true"));
        }
        self.cors.fields(|name, value| put(name, Value::Text(value)));
    }

    fn answer(&self) -> Response<Body> {
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

/// Everything but the body.
fn wish(fields: &impl Fields) -> Result<Append, Refusal> {
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
