//! `PUT`: create a stream, or fork one.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Request, StatusCode};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::{Expiry, decimal};
use towpath_model::stream::json;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state::{ForkPoint, Shape};
use towpath_model::token::Action;
use towpath_streams::{Create, Created, Messages, Retention};

use super::append::messages;
use super::refusal::Refusal;
use super::request::{self, header, is_true};
use super::{Answer, Streams, empty, headers, retention};
use crate::project::Pass;
use crate::upload::Upload;

impl Streams {
    pub(super) async fn create(&self, name: StreamName, pass: &Pass, request: Request<Upload>) -> Answer {
        let (parts, body) = request.into_parts();
        // Another server that keeps its sessions' streams here sends a header; see `fanout::remote`.
        if name.is_sessions() && !is_true(&parts.headers, &headers::SESSION_HOST) {
            return Err(Refusal::sessions_name(&name));
        }
        let shape = shape(&name, &parts.headers)?;
        if let Some(fork) = &shape.fork {
            pass.check(Action::Read(&fork.origin.id))?;
        }
        let retention = Retention::default().with(retention::change(&parts.headers)?);
        let body = request::body(body, self.settings().body_bytes_max).await?;
        let messages = self.first_messages(&shape, body)?;
        let url = request::base_url(&parts, &self.0.base_url) + &name.path();
        self.refuse_one_more(&name)?;
        let created = self.store().create(name, Create { shape, messages, retention }).await?;
        let mut response = empty(if created.is_new { StatusCode::CREATED } else { StatusCode::OK });
        describe(response.headers_mut(), &created, &url);
        Ok(response)
    }

    /// Refuses a new stream in a project that has reached its limit. Creating an existing one again is fine.
    pub(super) fn refuse_one_more(&self, name: &StreamName) -> Result<(), Refusal> {
        let max = self.settings().streams_max;
        match self.store().count(&name.project) >= max && self.store().head(name).is_err() {
            true => Err(Refusal::too_many("streams", max)),
            false => Ok(()),
        }
    }

    /// The body of a fork has the content type of its origin by default. `[]` is a valid first body
    /// of a JSON stream.
    fn first_messages(&self, shape: &Shape, body: Bytes) -> Result<Messages, Refusal> {
        if body.is_empty() {
            return Ok(Messages::default());
        }
        let content_type = match (&shape.content_type, &shape.fork) {
            (Some(named), _) => named.clone(),
            (None, Some(fork)) => self.store().head(&fork.origin)?.content_type,
            (None, None) => ContentType::default(),
        };
        match messages(&content_type, body) {
            Err(refusal) if refusal.is(json::Invalid::Empty) => Ok(Messages::default()),
            other => other,
        }
    }
}

fn shape(name: &StreamName, headers: &HeaderMap) -> Result<Shape, Refusal> {
    let content_type = match header(headers, &CONTENT_TYPE)?.map(str::trim) {
        None | Some("") => None,
        Some(text) => Some(super::refusal::content_type(Some(text))?),
    };
    let expiry = Expiry::parse(header(headers, &headers::TTL)?, header(headers, &headers::EXPIRES_AT)?)?;
    let closed = is_true(headers, &headers::CLOSED);
    Ok(Shape { content_type, expiry, closed, fork: fork(name, headers)? })
}

fn fork(name: &StreamName, headers: &HeaderMap) -> Result<Option<ForkPoint>, Refusal> {
    let from = header(headers, &headers::FORKED_FROM)?;
    let offset = header(headers, &headers::FORK_OFFSET)?;
    let sub_offset = header(headers, &headers::FORK_SUB_OFFSET)?;
    let Some(from) = from else {
        return match offset.or(sub_offset) {
            None => Ok(None),
            Some(_) => Err(Refusal::invalid("a fork requires Stream-Forked-From")),
        };
    };
    let origin = StreamName::parse_reference(from)
        .ok_or_else(|| Refusal::invalid("Stream-Forked-From must be the path of a stream on this server"))?;
    if origin.project != name.project {
        return Err(Refusal::invalid("a fork must be in the project of its origin"));
    }
    let parse =
        |text| Offset::parse(text).ok_or_else(|| Refusal::invalid("Stream-Fork-Offset is not an offset"));
    let offset = offset.map(parse).transpose()?;
    let sub_offset = match sub_offset {
        None => 0,
        Some(text) => {
            decimal(text).ok_or_else(|| Refusal::invalid("Stream-Fork-Sub-Offset must be a whole number"))?
        }
    };
    Ok(Some(ForkPoint { origin, offset, sub_offset }))
}

fn describe(headers: &mut HeaderMap, created: &Created, url: &str) {
    headers.insert(CONTENT_TYPE, headers::text(created.head.content_type.as_str()));
    headers.insert(headers::NEXT_OFFSET, headers::offset(created.head.tail));
    if created.head.closed {
        headers.insert(headers::CLOSED, headers::TRUE);
    }
    if created.is_new {
        headers.insert(LOCATION, headers::text(url));
    }
}
