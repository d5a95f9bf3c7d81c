//! `GET`: catch-up reads and live reads.

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::cursor;
use towpath_model::stream::etag::{self, PageTag};
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::sse::Form;
use towpath_model::token::Invalid as InvalidToken;
use towpath_streams::{Step, StreamId};

use super::live::Follow;
use super::refusal::Refusal;
use super::request::{header, query};
use super::{Answer, Streams, empty, headers, with_body};
use crate::body::Body;
use crate::budget::{Held, Share};
use crate::limits::{PIECE_BYTES, SMALL_ANSWER_BYTES};
use crate::project::{Keeping, Pass};
use crate::unsent::{self, Source, Unsent};
use crate::upload::Upload;

impl Streams {
    pub(super) async fn read(&self, name: StreamName, pass: Pass, request: Request<Upload>) -> Answer {
        let text = request.uri().query();
        let keeping = pass.keeping(&name, query(text, "reader_key")?.as_deref());
        let reader_key = pass.reader_key(&name);
        let mut response = self.read_with(name, pass, keeping, &request).await?;
        if let Some(key) = reader_key {
            response.headers_mut().insert(headers::READER_KEY, headers::text(&key));
        }
        Ok(response)
    }

    async fn read_with(
        &self,
        name: StreamName,
        pass: Pass,
        keeping: Keeping,
        request: &Request<Upload>,
    ) -> Answer {
        let text = request.uri().query();
        let offset = query(text, "offset")?;
        let start = offset.as_deref().map(start).transpose()?;
        let live = query(text, "live")?;
        match (live.as_deref(), start) {
            (None, start) => {
                let start = start.unwrap_or(Start::Beginning);
                self.catch_up(&name, start, keeping, request).await
            }
            (Some("long-poll" | "sse"), None) => Err(Refusal::invalid("a live read requires an offset")),
            (Some("long-poll"), Some(start)) => {
                let cursor = query(text, "cursor")?;
                let poll = self.long_poll(&name, start, cursor.as_deref(), keeping, request);
                tokio::select! {
                    answer = poll => answer,
                    () = pass.ended() => Err(InvalidToken::Expired.into()),
                }
            }
            (Some("sse"), Some(start)) => {
                let follow = Follow {
                    start,
                    cursor: query(text, "cursor")?,
                    last_id: header(request.headers(), &headers::LAST_EVENT_ID)?.map_or(Ok(None), last_id)?,
                    form: form(query(text, "events")?.as_deref())?,
                };
                let share = self.share(&name.project, request);
                self.events((name, share), pass, follow)
            }
            (Some(_), _) => Err(Refusal::invalid("live must be long-poll or sse")),
        }
    }

    async fn catch_up(
        &self,
        name: &StreamName,
        start: Start,
        keeping: Keeping,
        request: &Request<Upload>,
    ) -> Answer {
        let share = self.share(&name.project, request);
        let bytes_max = self.page_bytes_max(&share);
        let guess = self.store().head(name)?.bytes_behind(start).min(bytes_max);
        let (read, held) = match guess <= SMALL_ANSWER_BYTES {
            // Data appended meanwhile may make it larger; then it is counted when it is sent.
            true => (self.store().read(name, start, bytes_max).await?, None),
            false => {
                let (read, held) =
                    unsent::read(self.store(), name, start, bytes_max, (&share, guess)).await?;
                (read, Some(held))
            }
        };
        refuse_beyond(start, read.head.tail)?;
        let page = Page {
            life: read.head.id.0,
            content_type: &read.head.content_type,
            from: read.batch.start(),
            to: read.batch.end(),
            data: read.batch.data().clone(),
            up_to_date: read.is_up_to_date(),
            is_the_end: read.is_the_end(),
            kind: if start == Start::Now { Kind::Now } else { Kind::CatchUp },
            keeping,
            source: self.source(name, read.head.id, share),
            held,
        };
        page.answer(request.headers())
    }

    /// Answers when there is data or the time limit is reached.
    async fn long_poll(
        &self,
        name: &StreamName,
        start: Start,
        sent_cursor: Option<&str>,
        keeping: Keeping,
        request: &Request<Upload>,
    ) -> Answer {
        let _reader = self.0.readers.enter(&name.project)?;
        let head = self.store().head(name)?;
        refuse_beyond(start, head.tail)?;
        let mut follower = self.store().follow(name, start)?;
        let from = follower.offset();
        let step = tokio::select! {
            step = follower.next() => Some(step?),
            () = tokio::time::sleep(self.settings().long_poll) => None,
            () = self.0.shutdown.cancelled() => None,
        };
        let cursor = next_cursor(sent_cursor);
        match step {
            Some(Step::Data { batch, up_to_date, closed }) => {
                let page = Page {
                    life: head.id.0,
                    content_type: &head.content_type,
                    from,
                    to: batch.end(),
                    data: batch.data().clone(),
                    up_to_date,
                    is_the_end: closed,
                    kind: Kind::LongPoll { cursor },
                    keeping,
                    source: self.source(name, head.id, self.share(&name.project, request)),
                    held: None,
                };
                page.answer(request.headers())
            }
            Some(Step::Gone) => Err(Refusal::gone()),
            Some(Step::Closed) => Ok(nothing_new(follower.offset(), End::Closed)),
            None => Ok(nothing_new(follower.offset(), End::Open { cursor })),
        }
    }
}

impl Streams {
    /// The size of a page. While memory is tight, pages are short: a socket takes a short one at once, so that readers
    /// that do not read hold none.
    fn page_bytes_max(&self, share: &Share) -> usize {
        let most = if share.is_tight() { PIECE_BYTES } else { self.0.budget.page_bytes_max() };
        self.settings().page_bytes_max.min(most)
    }

    fn source(&self, name: &StreamName, id: StreamId, share: Share) -> Source {
        Source { store: self.0.store.clone(), name: name.clone(), id, share }
    }
}

fn start(text: &str) -> Result<Start, Refusal> {
    Start::parse(text)
        .ok_or_else(|| Refusal::invalid("offset must be -1, now, or an offset from Stream-Next-Offset"))
}

/// The offset that an `EventSource` sends when it reconnects. None if it has got no event yet.
fn last_id(text: &str) -> Result<Option<Offset>, Refusal> {
    match text {
        "" => Ok(None),
        text => Offset::parse(text)
            .map(Some)
            .ok_or_else(|| Refusal::invalid("Last-Event-ID must be the id of an event of this stream")),
    }
}

fn form(events: Option<&str>) -> Result<Form, Refusal> {
    match events {
        None => Ok(Form::Batches),
        Some("messages") => Ok(Form::Messages),
        Some(_) => Err(Refusal::invalid("events must be messages, or be left out")),
    }
}

/// Refuses an offset beyond the tail: it is from a deleted stream of the same name. Answering with
/// the tail would send the reader back without an error.
pub(super) fn refuse_beyond(start: Start, tail: Offset) -> Result<(), Refusal> {
    match start {
        Start::At(offset) if offset > tail => Err(Refusal::beyond(tail)),
        _ => Ok(()),
    }
}

/// The cursor for a response to a client that sent `sent`.
pub(super) fn next_cursor(sent: Option<&str>) -> u64 {
    cursor::next(Timestamp::now(), sent, fastrand::u64(..))
}

#[derive(Clone, Copy)]
pub(super) enum End {
    Open { cursor: u64 },
    Closed,
}

/// 204: the reader is up to date.
pub(super) fn nothing_new(at: Offset, end: End) -> hyper::Response<Body> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    out.insert(CACHE_CONTROL, headers::NO_STORE);
    out.insert(headers::NEXT_OFFSET, headers::offset(at));
    out.insert(headers::UP_TO_DATE, headers::TRUE);
    match end {
        End::Open { cursor } => out.insert(headers::CURSOR, headers::number(cursor)),
        End::Closed => out.insert(headers::CLOSED, headers::TRUE),
    };
    response
}

/// A page to send.
struct Page<'a> {
    life: u64,
    content_type: &'a ContentType,
    from: Offset,
    to: Offset,
    data: Bytes,
    up_to_date: bool,
    is_the_end: bool,
    kind: Kind,
    keeping: Keeping,
    source: Source,
    /// The memory that was reserved for the data, if it was.
    held: Option<Held>,
}

enum Kind {
    CatchUp,
    /// `offset=now`: only the offset of the tail.
    Now,
    LongPoll {
        cursor: u64,
    },
}

impl Page<'_> {
    fn answer(mut self, asked: &HeaderMap) -> Answer {
        let tag = PageTag { life: self.life, from: self.from, to: self.to, is_the_end: self.is_the_end };
        let tag = tag.to_string();
        let known = header(asked, &IF_NONE_MATCH)?.is_some_and(|known| etag::names(known, &tag));
        let has_tag = !matches!(self.kind, Kind::Now);
        let body = if known && has_tag { Body::Empty } else { self.body() };
        let status = if known && has_tag { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let mut response = with_body(status, body);
        let out = response.headers_mut();
        out.insert(CACHE_CONTROL, self.caching());
        out.insert(CONTENT_TYPE, headers::text(self.content_type.as_str()));
        out.insert(headers::NEXT_OFFSET, headers::offset(self.to));
        if has_tag {
            out.insert(ETAG, headers::text(&tag));
        }
        if self.up_to_date {
            out.insert(headers::UP_TO_DATE, headers::TRUE);
        }
        if self.is_the_end {
            out.insert(headers::CLOSED, headers::TRUE);
        } else if let Kind::LongPoll { cursor } = self.kind {
            out.insert(headers::CURSOR, headers::number(cursor));
        }
        Ok(response)
    }

    /// The body. A large one can be dropped and read again.
    fn body(&mut self) -> Body {
        let data = std::mem::take(&mut self.data);
        let mode = self.content_type.mode();
        if data.len() <= SMALL_ANSWER_BYTES {
            return if mode == Mode::Json { Body::array(data) } else { Body::from(data) };
        }
        let held = self.held.take().or_else(|| self.source.share.try_hold(data.len()));
        let page = if mode == Mode::Json { Unsent::array } else { Unsent::bytes };
        Body::Page(Box::new(page(self.source.clone(), self.from, data, held)))
    }

    /// A final page may be cached. The last page must be revalidated, which is cheap with its ETag. The
    /// response to a long poll is cached for the interval of its cursor. With a token, pages are private
    /// and must be revalidated, unless the URL has the reader key: then only clients that know the key
    /// find them in a cache.
    fn caching(&self) -> HeaderValue {
        let is_final = !self.up_to_date || self.is_the_end;
        HeaderValue::from_static(match (&self.kind, self.keeping) {
            (Kind::Now, _) => "no-store",
            (_, Keeping::Own) => "private, no-cache",
            (Kind::LongPoll { .. }, _) => "public, max-age=20",
            (Kind::CatchUp, _) if is_final => "public, max-age=60, stale-while-revalidate=300",
            (Kind::CatchUp, _) => "no-cache",
        })
    }
}
