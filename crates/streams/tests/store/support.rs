//! Short helpers for stores, names and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{ForkPoint, Shape};
use towpath_streams::embedded::disk::Disk;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Create, Error, Messages, Retention, Store};

use crate::memory_log::MemoryLog;
use crate::sim::SimDisk;

/// A clock that tests move.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock(Arc::new(AtomicI64::new(1_700_000_000_000)))
    }

    pub(crate) fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn millis(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A store without threads of its own besides the committer, with tiny segments.
pub(crate) fn config(clock: &Clock) -> Config {
    let clock = clock.clone();
    Config {
        segment_bytes: 4096,
        checkpoint_after_bytes: 16 << 10,
        compaction_bytes_per_second: u64::MAX,
        checkpoint_streams: 1,
        background: false,
        clock: Arc::new(move || Timestamp::from_millisecond(clock.millis()).unwrap()),
        ..Config::new("unused")
    }
}

pub(crate) fn open(disk: &SimDisk, clock: &Clock) -> Embedded {
    try_open(disk, clock).unwrap()
}

pub(crate) fn try_open(disk: &SimDisk, clock: &Clock) -> Result<Embedded, Error> {
    Embedded::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, config(clock))
}

/// A node of a log that others share.
pub(crate) fn open_shared(disk: &SimDisk, clock: &Clock, log: &MemoryLog) -> Embedded {
    try_open_shared(disk, clock, log).unwrap()
}

pub(crate) fn try_open_shared(disk: &SimDisk, clock: &Clock, log: &MemoryLog) -> Result<Embedded, Error> {
    let config = Config { log: Some(log.node()), ..config(clock) };
    Embedded::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, config)
}

pub(crate) fn name(id: &str) -> StreamName {
    StreamName::new("test", id).unwrap()
}

pub(crate) fn json() -> ContentType {
    ContentType::parse("application/json").unwrap()
}

pub(crate) fn plain() -> Create {
    let shape = Shape { content_type: None, expiry: None, closed: false, fork: None };
    Create { shape, messages: Messages::default(), retention: Retention::default() }
}

pub(crate) fn sliding(seconds: u64) -> Create {
    let mut create = plain();
    create.shape.expiry = Some(Expiry::Sliding { seconds });
    create
}

pub(crate) fn fork(origin: &str, offset: Option<u64>, sub_offset: u64) -> Create {
    let mut create = plain();
    create.shape.fork = Some(ForkPoint { origin: name(origin), offset: offset.map(Offset::new), sub_offset });
    create
}

/// Several messages in one append.
pub(crate) fn messages(all: &[&[u8]]) -> Messages {
    let mut messages = Messages::default();
    let mut data = Vec::new();
    for message in all {
        data.extend_from_slice(message);
        messages.ends.push(data.len() as u32);
    }
    messages.data = data.into();
    messages
}

pub(crate) fn bytes(data: &[u8]) -> Append {
    Append { messages: Messages::one(data.to_vec()), ..Append::default() }
}

pub(crate) fn produced(data: &[u8], id: &str, epoch: u64, seq: u64) -> Append {
    Append { producer: Some(Producer { id: id.into(), epoch, seq }), ..bytes(data) }
}

/// Everything a stream holds, message by message, read in pages of `page` bytes.
pub(crate) async fn read_all(store: &Embedded, id: &str, page: usize) -> Result<Vec<Vec<u8>>, Error> {
    let name = name(id);
    let mut from = Start::Beginning;
    let mut all = Vec::new();
    loop {
        let page = store.read(&name, from, page).await?;
        all.extend(page.batch.messages().map(|message| message.to_vec()));
        if page.is_up_to_date() {
            return Ok(all);
        }
        assert!(!page.batch.is_empty(), "a page that is not the last must move on");
        from = Start::At(page.batch.end());
    }
}
