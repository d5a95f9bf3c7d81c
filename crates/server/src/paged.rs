//! A page of a stream on its way to a reader.
//!
//! As long as the reader takes it, the page is sent as it was read. When the reader stops, the page is let go, and
//! what is missing is read again in small pieces when the reader takes bytes again: what lies at an offset
//! never changes. So a reader that does not read holds nothing but its place.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_streams::{Error, Page, Store, StreamId};

use crate::budget::{Held, Share};
use crate::limits::PIECE_BYTES;

/// What is left of a page, and where to read it again.
pub(crate) struct Paged {
    from: Source,
    next: Offset,
    end: Offset,
    /// What begins at `next`, if it is in memory.
    here: Option<(Bytes, Held)>,
    loading: Option<Loading>,
    before: &'static [u8],
    after: &'static [u8],
}

/// Which life of which stream, and on whose account.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: StreamName,
    pub(crate) id: StreamId,
    pub(crate) share: Share,
}

type Loading = Pin<Box<dyn Future<Output = Result<(Bytes, Held), Lost>> + Send>>;

/// The rest of a page is not to be had: its stream is gone, or there was no room for it.
#[derive(Debug)]
pub(crate) struct Lost;

impl Paged {
    /// A page of plain bytes, which begins at `start`. Without room for it, it is read when it is sent.
    pub(crate) fn bytes(from: Source, start: Offset, data: Bytes, held: Option<Held>) -> Paged {
        let end = start.plus(data.len() as u64);
        let here = held.and_then(|held| from.share.keep(held)).map(|held| (data, held));
        Paged { from, next: start, end, here, loading: None, before: b"", after: b"" }
    }

    /// The array of a run of stored values, each of which ends in a comma.
    pub(crate) fn array(from: Source, start: Offset, mut data: Bytes, held: Option<Held>) -> Paged {
        data.truncate(data.len().saturating_sub(1));
        Paged { before: b"[", after: b"]", ..Paged::bytes(from, start, data, held) }
    }

    /// How many bytes are still to be sent.
    pub(crate) fn left(&self) -> u64 {
        self.before.len() as u64 + self.missing() as u64 + self.after.len() as u64
    }

    fn missing(&self) -> usize {
        (self.end.bytes() - self.next.bytes()) as usize
    }

    /// What can be sent now, in order. Empty if nothing is left or something must be [loaded](Paged::load) first.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        let here = self.here.as_ref().map_or(&b""[..], |(data, _)| data);
        let after = if here.len() == self.missing() { self.after } else { b"" };
        [self.before, here, after]
    }

    /// Counts bytes of [`Paged::parts`] as sent.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        let before = sent.min(self.before.len());
        self.before = &self.before[before..];
        sent -= before;
        if let Some((data, _)) = &mut self.here {
            let now = sent.min(data.len());
            bytes::Buf::advance(data, now);
            self.next = self.next.plus(now as u64);
            sent -= now;
            if data.is_empty() {
                self.here = None;
            }
        }
        self.after = &self.after[sent..];
    }

    /// Waits until there is something to send, if something is left.
    pub(crate) async fn load(&mut self) -> Result<(), Lost> {
        if self.missing() > 0 && self.here.is_none() {
            self.here = Some(self.loading().await?);
        }
        Ok(())
    }

    /// The reader has stopped: keeps nothing, if others need the room.
    pub(crate) fn let_go_if_tight(&mut self) {
        if self.here.is_some() && self.from.share.is_tight() {
            self.here = None;
        }
    }

    fn loading(&self) -> Loading {
        let (from, next, missing) = (self.from.clone(), self.next, self.missing());
        Box::pin(async move {
            let Source { store, name, id, share } = from;
            let wanted = missing.min(PIECE_BYTES);
            let read = read(&*store, &name, Start::At(next), wanted, (&share, wanted)).await;
            let (page, mut held) = read.map_err(|_| Lost)?;
            let data = page.batch.data();
            if page.head.id != id || data.is_empty() {
                return Err(Lost);
            }
            let data = data.slice(..data.len().min(missing));
            held.shrink(data.len());
            Ok((data, held))
        })
    }

    /// The next piece, for whoever sends it on its own. It is small and on its own in memory, because nobody tells us
    /// whether it was sent.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Lost>>> {
        if !self.before.is_empty() {
            return Poll::Ready(Some(Ok(Bytes::from_static(std::mem::take(&mut self.before)))));
        }
        if self.missing() == 0 {
            let after = std::mem::take(&mut self.after);
            return Poll::Ready((!after.is_empty()).then_some(Ok(Bytes::from_static(after))));
        }
        let (data, mut held) = match self.here.take() {
            Some(here) => here,
            None => {
                if self.loading.is_none() {
                    self.loading = Some(self.loading());
                }
                let loaded =
                    ready!(self.loading.as_mut().map_or(Poll::Ready(Err(Lost)), |it| it.as_mut().poll(cx)));
                self.loading = None;
                match loaded {
                    Ok(here) => here,
                    Err(lost) => return Poll::Ready(Some(Err(lost))),
                }
            }
        };
        let bytes = self.from.share.piece_bytes();
        let (piece, held) = match data.len() > bytes {
            false => (data, held),
            true => {
                let (piece, of_piece) = (Bytes::copy_from_slice(&data[..bytes]), held.split(bytes));
                // The rest is not kept for somebody who may never ask for it, if others need the room.
                let share = &self.from.share;
                let kept = (!share.is_tight()).then_some(held).and_then(|held| share.keep(held));
                self.here = kept.map(|held| (data.slice(bytes..), held));
                (piece, of_piece)
            }
        };
        self.next = self.next.plus(piece.len() as u64);
        Poll::Ready(Some(Ok(self.from.share.give(piece, held))))
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
