//! A store with a history: its disk at the end, and what it held after every record.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{ForkPoint, Shape};

use super::disk::Memory;
use crate::embedded::disk::Disk;
use crate::embedded::record::Record;
use crate::embedded::recover::{self, Opened};
use crate::embedded::segment::HEADER_BYTES;
use crate::embedded::{Config, Embedded, Recovery, checkpoint};
use crate::{Append, Beyond, Create, Error, FanOut, Messages, Retention, RetentionChange, Store, Subscribe};

/// What a store holds: every stream as a checkpoint would write it, and the small values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    streams: BTreeMap<u64, Vec<u8>>,
    values: BTreeMap<(String, String), Bytes>,
}

/// A disk, and its past.
pub(super) struct Image {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// What the store held after each record, the last one at the end.
    pub(super) past: Vec<Moment>,
}

/// What the store held after a record, and the record's commit.
pub(super) struct Moment {
    pub(super) commit: u64,
    pub(super) held: Held,
}

/// An opened store.
pub(super) struct OpenedStore {
    pub(super) held: Held,
    pub(super) recovery: Recovery,
    /// Where blocks lie: segment, position, length.
    pub(super) blocks: Vec<(u32, u32, u32)>,
}

fn config(segment_bytes: u64) -> Config {
    let now = Timestamp::from_second(1_800_000_000).expect("a time in range");
    let clock = Arc::new(move || now);
    Config { segment_bytes, background: false, clock, ..Config::new("nowhere") }
}

/// Opens a store and looks at everything in it.
pub(super) fn open(disk: &Arc<Memory>) -> Result<OpenedStore, Error> {
    let disk: Arc<dyn Disk> = disk.clone();
    let Opened { index, recovery, .. } = recover::open(&disk, &config(1 << 20))?;
    let (mut streams, mut blocks) = (BTreeMap::new(), Vec::new());
    let mut next = Some(0);
    while let Some(from) = next {
        let (found, after) = index.visit(from, usize::MAX >> 1);
        for stream in found {
            let mut bytes = Vec::new();
            checkpoint::put_stream(&mut bytes, stream);
            streams.insert(stream.id, bytes);
            blocks.extend(stream.pieces.iter().map(|piece| (piece.segment, piece.at, piece.bytes)));
        }
        next = after;
    }
    Ok(OpenedStore { held: Held { streams, values: index.metas.clone() }, recovery, blocks })
}

impl Image {
    /// Plays a history in segments of this size, with a checkpoint after so many commits.
    pub(super) fn new(segment_bytes: u64, checkpoint_after: Option<usize>) -> Image {
        let disk = Arc::new(Memory::default());
        let store =
            Embedded::open_on(disk.clone(), config(segment_bytes)).expect("an empty disk can be opened");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for step in 0.. {
            if checkpoint_after == Some(step) {
                store.checkpoint().expect("a checkpoint is written");
            }
            if !runtime.block_on(live(&store, step)) {
                break;
            }
        }
        let files = disk.files();
        Image { past: past(&files), files }
    }
}

/// Opens the disk as it was after each record. A checkpoint that needs more than there was cannot be opened.
fn past(files: &BTreeMap<String, Vec<u8>>) -> Vec<Moment> {
    let mut past = vec![];
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".log")) {
        let bytes = Bytes::copy_from_slice(bytes);
        let (mut at, mut commit) = (HEADER_BYTES as usize, 0);
        loop {
            let mut before = files.clone();
            before.retain(|other, _| !other.ends_with(".log") || other <= name);
            before.insert(name.clone(), [&bytes[..at], &vec![0; bytes.len() - at]].concat());
            if let Ok(found) = open(&Arc::new(Memory::of(&before))) {
                past.push(Moment { commit, held: found.held });
            }
            let Some(found) = Record::take(&bytes.slice(at..)) else { break };
            (at, commit) = (at + found.length as usize, found.commit);
        }
        assert_eq!(at, bytes.len(), "a segment is full of records");
    }
    past
}

/// One commit of the history; false when it is over.
async fn live(store: &Embedded, step: usize) -> bool {
    let name = |id: &str| StreamName::new("p", id).expect("a name");
    let session = StreamName::session("p", "s").expect("a name");
    let json = ContentType::parse("application/json").expect("a type");
    let shape = |fork| Shape { content_type: Some(json.clone()), expiry: None, closed: false, fork };
    let text = |text: &str| Messages::one(Bytes::copy_from_slice(text.as_bytes()));
    let append = |number: &str| Append { messages: text(&format!("{number},")), ..Append::default() };
    let by = |seq| Some(Producer { id: "w".into(), epoch: 1, seq });
    let create = |fork, messages| Create { shape: shape(fork), messages, retention: Retention::default() };
    let fan_out = FanOut { inline_max: 10, beyond: Beyond::Queue };
    let done = match step {
        0 => store.create(name("a"), create(None, text("1,"))).await.map(drop),
        1 => store.append(name("a"), Append { producer: by(0), ..append("2") }).await.map(drop),
        2 => {
            let life = Shape { expiry: Some(Expiry::Sliding { seconds: 900 }), ..shape(None) };
            let create =
                Create { shape: life, messages: Messages::default(), retention: Retention::default() };
            store.create(name("b"), create).await.map(drop)
        }
        3 => {
            let both = vec![(name("a"), append("3")), (name("b"), append("1"))];
            store.append_all(both).await.map(drop)
        }
        4 => {
            let point = ForkPoint { origin: name("a"), offset: None, sub_offset: 0 };
            store.create(name("f"), create(Some(point), text("4,"))).await.map(drop)
        }
        5 => store.append(name("b"), Append { stream_seq: Some("x".into()), ..append("2") }).await.map(drop),
        6 => {
            let subscribe = Subscribe { session, source: name("b"), ttl_seconds: 60, envelope: true };
            store.subscribe(subscribe).await.map(drop)
        }
        7 => store.publish(name("b"), append("3"), fan_out).await.map(drop),
        8 => store.put_meta("m", "k", Some(Bytes::from_static(b"v"))).await,
        9 => store.delete(name("a")).await,
        10 => {
            let keep = RetentionChange { bytes: Some(Some(4)), ..RetentionChange::default() };
            store.retain(name("f"), keep).await.map(drop)
        }
        11 => store.append(name("f"), Append { producer: by(0), close: true, ..append("5") }).await.map(drop),
        12 => store.unsubscribe(session, name("b")).await.map(drop),
        13 => store.create(name("z"), create(None, text("\"the last one\","))).await.map(drop),
        _ => return false,
    };
    done.expect("the history is one that can be lived");
    true
}
