//! The store as callers hold it.

mod fanout;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use tokio::sync::oneshot;
use towpath_model::stream::content_type::Mode;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::state::{Accepted, ForkPoint};

use super::Config;
use super::committer::Committer;
use super::disk::{Directory, Disk};
use super::index::Index;
use super::pages::{Key, PageCache};
use super::plan::usable;
use super::queue::{Change, Reply};
use super::reader::ReadPlan;
use super::record::Fork;
use super::recover::{Opened, Recovery};
use super::shared::Shared;
use super::stream::Stream;
use crate::follow::{Live, LiveState, Pages};
use crate::intake::NOTED;
use crate::limits::APPEND_BYTES_MAX;
use crate::{
    Answer, Append, Appended, Create, Created, Error, FanOut, FanOutMode, FanOutState, FannedOut, Follower,
    Head, INTAKE, IntakeBatch, List, Messages, Noted, Page, Published, Retention, RetentionChange, Session,
    SessionCounts, Store, StreamId, Subscribe, Subscribed, Subscription, Watch,
};

/// Streams in a directory of this machine. Cheap to clone; shut down when the last clone is
/// dropped, or by [`Embedded::shut_down`].
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    recovery: Recovery,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How many streams there are.
    pub streams: usize,
    /// Files of the log.
    pub segments: usize,
    /// Why the store takes no more writes.
    pub poisoned: Option<String>,
    /// Whether the last write found no room.
    pub disk_full: bool,
}

/// Where a page comes from.
enum PageLookup {
    /// The cache of pages.
    Cached(Head, Arc<crate::Batch>),
    /// The log.
    Log { head: Head, key: Key, plan: ReadPlan, active: u32 },
}

impl Embedded {
    /// Opens the store in the configured directory, or makes one there. Blocks while the
    /// log is replayed.
    pub fn open(config: Config) -> Result<Embedded, Error> {
        let directory = Directory::take(&config.directory)?;
        Embedded::open_on(Arc::new(directory), config)
    }

    /// The same on any disk.
    pub fn open_on(disk: Arc<dyn Disk>, config: Config) -> Result<Embedded, Error> {
        let Opened { index, log, numbers, recovery, spares } = super::recover::open(&disk, &config)?;
        let position = index.position;
        let mut shared = Shared::new(config, disk, 0, index);
        shared.numbers = numbers;
        shared.spares = spares;
        let shared = Arc::new(shared);
        let committer = Committer::new(shared.clone(), log, position);
        let inner = Inner { shared: shared.clone(), recovery, threads: Mutex::default() };
        inner.spawn("stream-committer", move || committer.run())?;
        if shared.config.log.is_some() {
            super::keeper::submit(&shared, |reply| Change::Refresh { reply })?;
        }
        if shared.config.background {
            let (spares, maintainer, keeper) = (shared.clone(), shared.clone(), shared);
            inner.spawn("stream-spares", move || spares.spares.run(&*spares.disk, &spares.numbers))?;
            inner.spawn("stream-maintainer", move || super::maintain::run(&maintainer))?;
            inner.spawn("stream-keeper", move || super::keeper::run(&keeper))?;
        }
        Ok(Embedded { inner: Arc::new(inner) })
    }

    /// What opening found.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// Its state now.
    pub fn status(&self) -> Status {
        let shared = &self.inner.shared;
        let index = shared.index();
        Status {
            streams: index.count,
            segments: index.segments.len(),
            poisoned: shared.poisoned(),
            disk_full: shared.is_full(),
        }
    }

    /// Seals, gathers and checkpoints what is due, now.
    pub fn maintain(&self) -> Result<(), Error> {
        super::maintain::run_once(&self.inner.shared)
    }

    /// Writes a checkpoint, due or not.
    pub fn checkpoint(&self) -> Result<(), Error> {
        super::maintain::checkpoint(&self.inner.shared)
    }

    /// Writes a backup into a new directory, while the store works. What was acknowledged before is in it. Blocks.
    pub fn backup(&self, directory: &std::path::Path) -> Result<super::Backup, Error> {
        super::backup::write(&self.inner.shared, directory)
    }

    /// Gathers all sealed segments into one, due or not.
    pub fn compact(&self) -> Result<(), Error> {
        super::maintain::compact_all(&self.inner.shared)
    }

    /// Ends what has expired, writes renewed lives to the log and applies retention, now. Answers
    /// how many streams it ended.
    pub fn keep(&self) -> Result<usize, Error> {
        super::keeper::run_once(&self.inner.shared)
    }

    /// Answers what waits, writes renewed lives and a checkpoint, and stops. Blocks.
    pub fn shut_down(&self) {
        self.inner.shut_down();
    }

    /// Hands a change to the committer; the future waits for its answer.
    fn submit<T: Send + 'static>(&self, change: impl FnOnce(Reply<T>) -> Change) -> Answer<'_, T> {
        let (reply, answer) = oneshot::channel();
        let pushed = self.inner.shared.push(change(reply));
        Box::pin(answered(pushed, answer))
    }

    /// The same for an append, which has two kinds of answers.
    fn push_append(
        &self,
        name: StreamName,
        append: Append,
        fan_out: FanOut,
    ) -> (Result<(), Error>, Waiting<Published>) {
        let (reply, answer) = oneshot::channel();
        let pushed = check(&append.messages).and_then(|()| {
            let append = Box::new(append);
            self.inner.shared.push(Change::Append { name, append, fan_out, reply })
        });
        (pushed, answer)
    }

    /// Finds a usable stream and renews its life.
    fn used<T>(&self, name: &StreamName, look: impl FnOnce(&Index, &Stream) -> T) -> Result<T, Error> {
        let shared = &self.inner.shared;
        let now = shared.now();
        let mut index = shared.index();
        let mut stream = usable(&index, name, now)?;
        if index.pending(stream) > 0 {
            let id = stream.id;
            drop(index);
            shared.pull(id);
            index = shared.index();
            stream = usable(&index, name, now)?;
        }
        if stream.touch(now) {
            shared.used.lock().unwrap_or_else(PoisonError::into_inner).push(stream.id);
        }
        Ok(look(&index, stream))
    }

    /// Finds a page in the cache, or plans how to read it.
    fn look_up(
        index: &Index,
        pages: &PageCache,
        stream: &Stream,
        from: u64,
        bytes_max: usize,
    ) -> Result<PageLookup, Error> {
        let (head, key) = (index.head(stream), Key { id: stream.id, from, bytes_max });
        if let Some(batch) = pages.get(key, head.tail.bytes()) {
            return Ok(PageLookup::Cached(head, batch));
        }
        let plan = ReadPlan::new(index, stream, from, bytes_max)?;
        Ok(PageLookup::Log { head, key, plan, active: index.position.segment })
    }

    async fn page_of(self, lookup: PageLookup) -> Result<Page, Error> {
        let (head, key, plan, active) = match lookup {
            PageLookup::Cached(head, batch) => return Ok(Page { head, batch }),
            PageLookup::Log { head, key, plan, active } => (head, key, plan, active),
        };
        let batch = Arc::new(self.read_planned(plan, active, key.bytes_max).await?);
        self.inner.shared.pages.put(key, &batch, head.tail.bytes());
        Ok(Page { head, batch })
    }

    /// Reads from the log: on a thread that may block, unless the file's pages are in memory.
    async fn read_planned(
        &self,
        plan: ReadPlan,
        active: u32,
        bytes_max: usize,
    ) -> Result<crate::Batch, Error> {
        if plan.is_recent(active) {
            return plan.read(bytes_max);
        }
        match tokio::task::spawn_blocking(move || plan.read(bytes_max)).await {
            Ok(batch) => batch,
            Err(_) => Err(Error::ShutDown),
        }
    }

    /// Finds where a fork leaves its origin. The bytes that are read for that never change, so the
    /// commit only has to check that the origin still exists.
    async fn resolve(&self, point: &ForkPoint) -> Result<Box<Fork>, Error> {
        let wrong = |why| Error::ForkPoint { origin: point.origin.clone(), why };
        let gone = |error| match error {
            Error::Deleted(name) => Error::Conflict { name, what: "life: the origin was deleted" },
            error => error,
        };
        let (head, mode) = {
            let shared = &self.inner.shared;
            let index = shared.index();
            let origin = usable(&index, &point.origin, shared.now()).map_err(gone)?;
            if origin.session().is_some() {
                return Err(wrong("it is a session's stream; fork one of its sources"));
            }
            (origin.head(), origin.content_type.mode())
        };
        let offset = point.offset.unwrap_or(head.tail);
        if offset > head.tail {
            return Err(wrong("the offset is beyond its tail"));
        }
        if offset < head.start {
            return Err(wrong("the offset is before the oldest data"));
        }
        if mode == Mode::Json && offset < head.tail {
            let (plan, active) = self.plan_read(head.id, offset, 1)?;
            if self.boundary(plan, active).await? != offset.bytes() {
                return Err(wrong("the offset is inside a message"));
            }
        }
        let position = match point.sub_offset {
            0 => Some(offset.bytes()),
            sub_offset => self.sub_position(&head, offset, mode, sub_offset).await?,
        };
        let position = position.ok_or_else(|| wrong("the sub-offset is beyond its data"))?;
        let (origin, start) = (head.id.0, head.start.bytes());
        let point = ForkPoint { offset: Some(offset), ..point.clone() };
        Ok(Box::new(Fork { origin, start, position, point }))
    }

    /// The offset so many messages, or bytes of the next message, behind another.
    async fn sub_position(
        &self,
        head: &Head,
        mut offset: Offset,
        mode: Mode,
        mut sub_offset: u64,
    ) -> Result<Option<u64>, Error> {
        while offset < head.tail {
            let batch = self.page(head.id, offset, crate::limits::FOLLOW_PAGE_BYTES).await?.batch;
            let ends = batch.ends();
            let Some(first) = ends.first().copied().map(u64::from) else { return Ok(None) };
            if mode != Mode::Json {
                return Ok((sub_offset <= first).then(|| offset.bytes() + sub_offset));
            }
            let count = ends.len() as u64;
            if sub_offset <= count {
                return Ok(Some(offset.bytes() + u64::from(ends[sub_offset as usize - 1])));
            }
            sub_offset -= count;
            offset = batch.end();
        }
        Ok(None)
    }

    fn plan_read(&self, id: StreamId, from: Offset, bytes_max: usize) -> Result<(ReadPlan, u32), Error> {
        let index = self.inner.shared.index();
        let stream = index.get(id.0).ok_or(Error::ShutDown)?;
        Ok((ReadPlan::new(&index, stream, from.bytes(), bytes_max)?, index.position.segment))
    }

    async fn boundary(&self, plan: ReadPlan, active: u32) -> Result<u64, Error> {
        if plan.is_recent(active) {
            return plan.boundary_before();
        }
        let found = tokio::task::spawn_blocking(move || plan.boundary_before()).await;
        found.unwrap_or(Err(Error::ShutDown))
    }
}

impl Store for Embedded {
    fn create(&self, name: StreamName, create: Create) -> Answer<'_, Created> {
        Box::pin(async move {
            check(&create.messages)?;
            let fork = match &create.shape.fork {
                Some(point) => {
                    self.fresh().await?;
                    Some(self.resolve(point).await?)
                }
                None => None,
            };
            let create = Box::new(create);
            self.submit(|reply| Change::Create { name, create, fork, reply }).await
        })
    }

    fn append(&self, name: StreamName, append: Append) -> Answer<'_, Appended> {
        let (pushed, answer) = self.push_append(name, append, FanOut::LATER);
        Box::pin(async move { answered(pushed, answer).await.map(|published| published.appended) })
    }

    fn append_all(&self, appends: Vec<(StreamName, Append)>) -> Answer<'_, Vec<Result<Appended, Error>>> {
        if let Some(error) = appends.iter().find_map(|(_, append)| check(&append.messages).err()) {
            return Box::pin(async move { Err(error) });
        }
        self.submit(|reply| Change::AppendAll { appends, reply })
    }

    fn delete(&self, name: StreamName) -> Answer<'_, ()> {
        self.after_deliveries(name.clone(), move || {
            self.submit(|reply| Change::Delete { name: name.clone(), reply })
        })
    }

    fn trim(&self, name: StreamName, before: Offset) -> Answer<'_, Offset> {
        Box::pin(async move {
            self.fresh().await?;
            let head = self.head(&name)?;
            let before = before.min(head.tail);
            self.inner.shared.pull(head.id.0);
            let (plan, active) = self.plan_read(head.id, before, 1)?;
            let start = match before == head.tail {
                true => before.bytes(),
                false => self.boundary(plan, active).await?,
            };
            let id = head.id.0;
            self.submit(|reply| Change::Trim { id, name, start, reply }).await
        })
    }

    fn retain(&self, name: StreamName, change: RetentionChange) -> Answer<'_, Retention> {
        self.submit(|reply| Change::Retain { name, change, reply })
    }

    fn head(&self, name: &StreamName) -> Result<Head, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        usable(&index, name, shared.now()).map(|stream| index.head(stream))
    }

    fn producers(&self, name: &StreamName, limit: usize) -> Result<Vec<(Arc<str>, Accepted)>, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        let stream = usable(&index, name, shared.now())?;
        let all = stream.more.iter().flat_map(|more| &more.producers);
        Ok(all.take(limit).map(|(id, accepted)| (id.clone(), *accepted)).collect())
    }

    fn touch(&self, name: &StreamName) -> Result<Head, Error> {
        self.used(name, Index::head)
    }

    fn read(&self, name: &StreamName, from: Start, bytes_max: usize) -> Answer<'_, Page> {
        let pages = &self.inner.shared.pages;
        let lookup = self.used(name, |index, stream| {
            Embedded::look_up(index, pages, stream, from_in(stream, from)?, bytes_max)
        });
        let store = self.clone();
        Box::pin(async move { store.page_of(lookup.and_then(|lookup| lookup)?).await })
    }

    fn follow(&self, name: &StreamName, from: Start) -> Result<Follower, Error> {
        let shared = &self.inner.shared;
        self.touch(name)?;
        let mut index = shared.index_mut();
        let stream = usable(&index, name, shared.now())?;
        let id = stream.id;
        index.pull(id);
        let stream = index.get_mut(id).expect("the stream was just found under the same lock");
        let from = from_in(stream, from)?;
        let live = match stream.live.upgrade() {
            Some(live) => live,
            None => {
                let tail = Offset::new(stream.tail);
                let state = LiveState { tail, closed: stream.closed, gone: stream.deleted };
                let live = Arc::new(Live::new(state, shared.recent.clone()));
                stream.live = Arc::downgrade(&live);
                index.follow_session(id);
                live
            }
        };
        Ok(Follower::new(StreamId(id), Offset::new(from), Arc::new(self.clone()), live))
    }

    fn list(&self, list: List) -> Answer<'_, Vec<(StreamName, Head)>> {
        let store = self.clone();
        Box::pin(async move {
            let listed = tokio::task::spawn_blocking(move || super::keeper::list(&store.inner.shared, &list));
            listed.await.map_err(|_| Error::ShutDown)
        })
    }

    fn count(&self, project: &str) -> usize {
        self.inner.shared.index().count_of(project)
    }

    fn subscribe(&self, subscribe: Subscribe) -> Answer<'_, Subscribed> {
        self.submit(|reply| Change::Subscribe { subscribe: Box::new(subscribe), reply })
    }

    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool> {
        self.after_deliveries(source.clone(), move || {
            let (session, source) = (session.clone(), source.clone());
            self.submit(|reply| Change::Unsubscribe { session, source, deliver: true, reply })
        })
    }

    fn leave(&self, session: StreamName, source: StreamName) -> Answer<'_, bool> {
        self.submit(|reply| Change::Unsubscribe { session, source, deliver: false, reply })
    }

    fn session(&self, session: &StreamName) -> Result<Session, Error> {
        self.look_at_session(session)
    }

    fn publish(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, Published> {
        let (pushed, answer) = self.push_append(source, append, fan_out);
        Box::pin(answered(pushed, answer))
    }

    fn fan_out(&self, source: StreamName) -> Answer<'_, FannedOut> {
        Box::pin(self.fan_out_step(source, None))
    }

    fn fan_out_until(&self, source: StreamName, until: Offset) -> Answer<'_, FannedOut> {
        Box::pin(self.fan_out_step(source, Some(until)))
    }

    fn fan_out_state(&self, source: &StreamName) -> Result<FanOutState, Error> {
        let shared = &self.inner.shared;
        let index = shared.index();
        usable(&index, source, shared.now()).map(|source| index.fan_out_state(source))
    }

    fn lagging(&self, limit: usize) -> Vec<(StreamName, FanOutState)> {
        self.inner.shared.index().lagging_sources(limit)
    }

    fn sources(&self, project: &str, after: Option<&str>, limit: usize) -> Vec<(StreamName, FanOutState)> {
        self.list_sources(project, after, limit)
    }

    fn subscribers(
        &self,
        source: &StreamName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(StreamName, Subscription)>, Error> {
        self.list_subscribers(source, after, limit)
    }

    fn session_counts(&self) -> SessionCounts {
        self.inner.shared.index().sessions
    }

    fn put_meta(&self, namespace: &str, key: &str, value: Option<Bytes>) -> Answer<'_, ()> {
        self.set_meta(namespace, key, value)
    }

    fn list_meta(&self, namespace: &str) -> Vec<(String, Bytes)> {
        let index = self.inner.shared.index();
        let from = index.metas.range((namespace.to_owned(), String::new())..);
        let of_it = from.take_while(|((of, _), _)| of == namespace);
        of_it.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    fn take_in(&self, batch: IntakeBatch) -> Answer<'_, Vec<Result<FanOutMode, Error>>> {
        if let Some(error) = batch.messages.iter().find_map(|it| check(&it.append.messages).err()) {
            return Box::pin(async move { Err(error) });
        }
        self.submit(|reply| Change::TakeIn { batch: Box::new(batch), reply })
    }

    fn noted(&self) -> Noted {
        let index = self.inner.shared.index();
        let noted = index.metas.get(&(INTAKE.to_owned(), NOTED.to_owned()));
        noted.map_or_else(Noted::default, |bytes| Noted::decode(bytes))
    }

    fn fresh(&self) -> Answer<'_, ()> {
        match self.inner.shared.config.log {
            Some(_) => self.submit(|reply| Change::Refresh { reply }),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn watch(&self, watcher: Weak<dyn Watch>) {
        let _ = self.inner.shared.watch.set(watcher);
    }
}

impl Pages for Embedded {
    fn page(&self, id: StreamId, from: Offset, bytes_max: usize) -> Answer<'static, Page> {
        let shared = &self.inner.shared;
        shared.pull(id.0);
        let index = shared.index();
        let lookup = index.get(id.0).filter(|stream| !stream.deleted).map(|stream| {
            Embedded::look_up(&index, &shared.pages, stream, from_in(stream, Start::At(from))?, bytes_max)
        });
        drop(index);
        let store = self.clone();
        Box::pin(async move {
            let missing = || Error::NotFound(StreamName { project: "".into(), id: id.0.to_string().into() });
            store.page_of(lookup.ok_or_else(missing)??).await
        })
    }
}

type Waiting<T> = oneshot::Receiver<Result<T, Error>>;

/// The answer to a change, if the queue has taken it.
async fn answered<T>(pushed: Result<(), Error>, answer: Waiting<T>) -> Result<T, Error> {
    pushed?;
    answer.await.unwrap_or(Err(Error::ShutDown))
}

/// The offset a reader begins at.
fn from_in(stream: &Stream, from: Start) -> Result<u64, Error> {
    match from {
        Start::Beginning => Ok(stream.start),
        Start::Now => Ok(stream.tail),
        Start::At(offset) if offset.bytes() < stream.start => {
            Err(Error::Trimmed { name: stream.name.clone(), start: Offset::new(stream.start) })
        }
        Start::At(offset) => Ok(offset.bytes()),
    }
}

fn check(messages: &Messages) -> Result<(), Error> {
    if messages.data.len() > APPEND_BYTES_MAX {
        return Err(Error::TooLarge(format!("an append can have at most {APPEND_BYTES_MAX} bytes")));
    }
    let end = messages.ends.last().copied().unwrap_or(0) as usize;
    assert!(
        messages.ends.is_sorted() && end == messages.data.len(),
        "message ends must rise to the data's end"
    );
    Ok(())
}

impl Inner {
    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::io(format!("cannot start {name}"), &error))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn shut_down(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        self.shared.shut();
        if self.shared.config.background {
            super::keeper::save_uses(&self.shared);
        }
        self.shared.queue.shut();
        for thread in threads {
            // A thread that drops the last handle itself must not wait for itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the stream store panicked");
            }
        }
        if self.shared.config.background
            && self.shared.poisoned().is_none()
            && let Err(error) = super::maintain::checkpoint(&self.shared)
        {
            tracing::warn!(%error, "cannot write a checkpoint at shutdown; the next start replays the log");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shut_down();
    }
}
