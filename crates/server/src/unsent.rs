//! What a reader has not taken yet: the rest of a page or of an event.
//!
//! While the reader takes bytes, they are sent from memory. When it stops and others need the memory, the bytes are
//! dropped, and read again when the reader continues: the bytes at an offset never change. So a reader that does not
//! read holds only its position.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_streams::{Error, Page, Store, StreamId};

use crate::body::Chunk;
use crate::budget::{Held, Outstanding, Share};
use crate::limits::{PIECE_BYTES, SMALL_ANSWER_BYTES};
use crate::stream::Event;

/// The rest of a page or of an event, and how to read it again.
pub(crate) struct Unsent {
    source: Source,
    content: Content,
    /// Bytes of the content that are still to be sent.
    left: usize,
    /// The first of them, if they are in memory. Without a [`Held`] they are few, and never dropped.
    loaded: Option<(Bytes, Option<Held>)>,
    loading: Option<Loading>,
    before: &'static [u8],
    after: &'static [u8],
    outstanding: Outstanding,
}

/// The stream, and the budget that pays. The id distinguishes it from a later stream of the same name.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: StreamName,
    pub(crate) id: StreamId,
    pub(crate) share: Share,
}

#[derive(Clone)]
enum Content {
    /// Stored bytes, of which `next` is the first unsent one. They are read again in pieces.
    Page { next: Offset },
    /// An event, with or without the framing of a chunk. It is made again whole.
    Event { event: Event, form: fn(Chunk) -> Bytes },
}

type Loading = Pin<Box<dyn Future<Output = Result<(Bytes, Held), Lost>> + Send>>;

/// The rest cannot be read: its stream was deleted, or there was no room for it.
#[derive(Debug)]
pub(crate) struct Lost;

impl Unsent {
    /// A page of plain bytes, which begins at `start`. Without room for it, it is read when it is sent.
    pub(crate) fn bytes(source: Source, start: Offset, data: Bytes, held: Option<Held>) -> Unsent {
        let left = data.len();
        let loaded = held.and_then(|held| source.share.keep(held).ok()).map(|held| (data, Some(held)));
        Unsent {
            source,
            content: Content::Page { next: start },
            left,
            loaded,
            loading: None,
            before: b"",
            after: b"",
            outstanding: Outstanding::default(),
        }
    }

    /// The array of a run of stored values, each of which ends in a comma.
    pub(crate) fn array(source: Source, start: Offset, mut data: Bytes, held: Option<Held>) -> Unsent {
        data.truncate(data.len().saturating_sub(1));
        Unsent { before: b"[", after: b"]", ..Unsent::bytes(source, start, data, held) }
    }

    /// The `rest` of an event in this form.
    pub(crate) fn event(source: Source, event: Event, form: fn(Chunk) -> Bytes, rest: &Bytes) -> Unsent {
        let loaded = match rest.len() <= SMALL_ANSWER_BYTES {
            // A slice would keep all of the event in memory.
            true => Some((Bytes::copy_from_slice(rest), None)),
            false => {
                let held = source.share.try_hold(rest.len().max(event.data_bytes()));
                let kept = held.and_then(|held| source.share.keep(held).ok());
                kept.map(|held| (rest.clone(), Some(held)))
            }
        };
        let left = rest.len();
        Unsent { content: Content::Event { event, form }, left, loaded, ..Unsent::nothing(source) }
    }

    fn nothing(source: Source) -> Unsent {
        Unsent::bytes(source, Offset::ZERO, Bytes::new(), None)
    }

    /// How many bytes are still to be sent.
    pub(crate) fn left(&self) -> u64 {
        (self.before.len() + self.left + self.after.len()) as u64
    }

    /// What can be sent now, in order. Empty if nothing is left or something must be [loaded](Unsent::load) first.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        let loaded = self.loaded.as_ref().map_or(&b""[..], |(data, _)| data);
        let after = if loaded.len() == self.left { self.after } else { b"" };
        [self.before, loaded, after]
    }

    /// Counts bytes of [`Unsent::parts`] as sent.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        let before = sent.min(self.before.len());
        self.before = &self.before[before..];
        sent -= before;
        if let Some((data, _)) = &mut self.loaded {
            let now = sent.min(data.len());
            bytes::Buf::advance(data, now);
            let is_sent = data.is_empty();
            self.pass(now);
            sent -= now;
            if is_sent {
                self.loaded = None;
            }
        }
        self.after = &self.after[sent..];
    }

    /// Goes on behind so many bytes of the content.
    fn pass(&mut self, bytes: usize) {
        self.left -= bytes;
        if let Content::Page { next } = &mut self.content {
            *next = next.plus(bytes as u64);
        }
    }

    /// Waits until there is something to send, if something is left.
    pub(crate) async fn load(&mut self) -> Result<(), Lost> {
        if self.left > 0 && self.loaded.is_none() {
            let (data, held) = self.loading().await?;
            self.loaded = Some((data, Some(held)));
        }
        Ok(())
    }

    /// The reader has stopped: waits until others need the memory, then drops the bytes.
    pub(crate) async fn let_go_when_tight(&mut self) {
        match &self.loaded {
            Some((_, Some(_))) => {
                self.source.share.becomes_tight().await;
                self.loaded = None;
            }
            _ => std::future::pending().await,
        }
    }

    fn loading(&self) -> Loading {
        let (source, content, left) = (self.source.clone(), self.content.clone(), self.left);
        match content {
            Content::Page { next } => Box::pin(async move {
                let wanted = left.min(PIECE_BYTES);
                let (data, mut held) = source.read(next, wanted, wanted).await?;
                let data = data.slice(..data.len().min(left));
                held.shrink(data.len());
                Ok((data, held))
            }),
            Content::Event { event, form } => Box::pin(async move {
                let (data, held) = source.read_event(&event).await?;
                let whole = form(event.render(&data));
                Ok((whole.slice(whole.len() - left..), held))
            }),
        }
    }

    /// The next piece, for hyper. It is a copy, because a slice would keep all of the page in memory until hyper has
    /// sent it.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Lost>>> {
        if !self.before.is_empty() {
            return Poll::Ready(Some(Ok(Bytes::from_static(std::mem::take(&mut self.before)))));
        }
        if self.left == 0 {
            let after = std::mem::take(&mut self.after);
            return Poll::Ready((!after.is_empty()).then_some(Ok(Bytes::from_static(after))));
        }
        let piece_bytes = ready!(self.outstanding.poll_piece_bytes(cx, &self.source.share));
        let (data, held) = match self.loaded.take() {
            Some(loaded) => loaded,
            None => match ready!(self.poll_loading(cx)) {
                Ok((data, held)) => (data, Some(held)),
                Err(lost) => return Poll::Ready(Some(Err(lost))),
            },
        };
        let Some(held) = held else {
            self.pass(data.len());
            return Poll::Ready(Some(Ok(data)));
        };
        let share = &self.source.share;
        let (mut held, bytes, keeps_rest) = match share.keep(held) {
            Ok(held) => (held, piece_bytes, !share.is_tight()),
            Err(held) => (held, share.piece_bytes(), false),
        };
        let (piece, held) = match data.len() > bytes {
            false => (data, held),
            true => {
                let (piece, of_piece) = (Bytes::copy_from_slice(&data[..bytes]), held.split(bytes));
                // The rest is not kept for a reader that may never ask for it, if others need the room.
                self.loaded = keeps_rest.then(|| (data.slice(bytes..), Some(held)));
                (piece, of_piece)
            }
        };
        let given = self.outstanding.give(share, piece, held);
        self.pass(given.len());
        Poll::Ready(Some(Ok(given)))
    }

    fn poll_loading(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Bytes, Held), Lost>> {
        if self.loading.is_none() {
            self.loading = Some(self.loading());
        }
        let loaded = ready!(self.loading.as_mut().map_or(Poll::Ready(Err(Lost)), |it| it.as_mut().poll(cx)));
        self.loading = None;
        Poll::Ready(loaded)
    }
}

impl Source {
    /// Reads about `bytes_max` from `start` on, when there is room for `guess`.
    async fn read(&self, start: Offset, bytes_max: usize, guess: usize) -> Result<(Bytes, Held), Lost> {
        let place = (&self.share, guess);
        let read = read(&*self.store, &self.name, Start::At(start), bytes_max, place).await;
        let (page, held) = read.map_err(|_| Lost)?;
        match page.head.id == self.id && !page.batch.is_empty() && page.batch.start() == start {
            true => Ok((page.batch.data().clone(), held)),
            false => Err(Lost),
        }
    }

    /// Reads the data of an event, with room for all of the event.
    async fn read_event(&self, event: &Event) -> Result<(Bytes, Held), Lost> {
        let bytes = event.data_bytes();
        let (data, held) = self.read(event.from, bytes, event.bytes_guess()).await?;
        if data.len() < bytes {
            return Err(Lost);
        }
        Ok((data.slice(..bytes), held))
    }
}

/// Why nothing was read.
pub(crate) enum Unread {
    Store(Error),
    /// Readers hold all the room there is.
    NoRoom,
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Store(error)
    }
}

/// Reads what is there, up to about `bytes_max`, when there is room for it. The guess is how much that will be.
pub(crate) async fn read(
    store: &dyn Store,
    name: &StreamName,
    start: Start,
    bytes_max: usize,
    (share, guess): (&Share, usize),
) -> Result<(Page, Held), Unread> {
    let mut room = guess;
    loop {
        let mut held = share.hold(room).await.ok_or(Unread::NoRoom)?;
        let page = store.read(name, start, bytes_max).await?;
        // One message may be larger than a page: then it is read again, when there is room for all of it.
        if page.batch.data().len() <= held.bytes() {
            held.shrink(page.batch.data().len());
            return Ok((page, held));
        }
        room = page.batch.data().len();
    }
}
