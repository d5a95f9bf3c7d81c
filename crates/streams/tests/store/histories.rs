//! S03, S05: random histories of everything the store can do, against the model, with
//! restarts, power cuts and compactions at random points.

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::Config as ProptestConfig;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::ForkPoint;
use towpath_streams::embedded::Embedded;
use towpath_streams::{Append, Create, Delivery, Error, Messages, Store, StreamId};

use crate::model::{Model, Wrong};
use crate::sim::SimDisk;
use crate::support::*;

/// Something that happens.
#[derive(Debug, Clone)]
enum Event {
    Write(Write),
    /// Writes that become one commit.
    Burst(Vec<Write>),
    Fork {
        id: u8,
        source: u8,
        part: Option<u8>,
        sub_offset: u8,
        seconds: Option<u8>,
    },
    Trim {
        id: u8,
        part: u8,
    },
    Read {
        id: u8,
        page: u16,
    },
    Wait {
        seconds: u8,
    },
    Keep,
    Maintain,
    Compact,
    Checkpoint,
    Restart,
    PowerCut,
}

#[derive(Debug, Clone)]
enum Write {
    Create { id: u8, json: bool, seconds: Option<u8>, closed: bool, data: Vec<u8> },
    Append { id: u8, sizes: Vec<u8>, close: bool, producer: Option<(u8, u8, u8)>, seq: Option<u8> },
    Delete { id: u8 },
    Deliver { source: u8, offset: u8, targets: u8, size: u8 },
}

const STREAMS: u8 = 6;

fn write() -> impl Strategy<Value = Write> {
    let id = 0..STREAMS;
    let producer = prop::option::of((0..2u8, 0..3u8, 0..4u8));
    prop_oneof![
        3 => (id.clone(), any::<bool>(), prop::option::of(1..20u8), prop::bool::weighted(0.1), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(id, json, seconds, closed, data)| Write::Create { id, json, seconds, closed, data }),
        8 => (id.clone(), prop::collection::vec(1..60u8, 1..4), prop::bool::weighted(0.05), producer, prop::option::weighted(0.2, 0..9u8))
            .prop_map(|(id, sizes, close, producer, seq)| Write::Append { id, sizes, close, producer, seq }),
        1 => id.prop_map(|id| Write::Delete { id }),
        2 => (0..2u8, 0..20u8, any::<u8>(), 1..80u8)
            .prop_map(|(source, offset, targets, size)| Write::Deliver { source, offset, targets, size }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..STREAMS;
    prop_oneof![
        12 => write().prop_map(Event::Write),
        3 => prop::collection::vec(write(), 2..8).prop_map(Event::Burst),
        3 => (id.clone(), 0..STREAMS, prop::option::of(any::<u8>()), 0..4u8, prop::option::of(1..20u8))
            .prop_map(|(id, source, part, sub_offset, seconds)| Event::Fork { id, source, part, sub_offset, seconds }),
        1 => (id.clone(), any::<u8>()).prop_map(|(id, part)| Event::Trim { id, part }),
        3 => (id, 1..300u16).prop_map(|(id, page)| Event::Read { id, page }),
        1 => (1..8u8).prop_map(|seconds| Event::Wait { seconds }),
        1 => Just(Event::Keep),
        2 => Just(Event::Maintain),
        1 => Just(Event::Compact),
        1 => Just(Event::Checkpoint),
        1 => Just(Event::Restart),
        1 => Just(Event::PowerCut),
    ]
}

fn id(number: u8) -> String {
    format!("s{number}")
}

/// The store and the model, side by side.
struct Pair {
    disk: SimDisk,
    clock: Clock,
    store: Embedded,
    model: Model,
}

/// A write as both sides understand it.
enum Call {
    Create(String, Create),
    Append(String, Append),
    Delete(String),
    Deliver(Delivery, Vec<String>),
}

/// What the store answered, as far as the model knows it too.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Created(bool),
    Appended(u64, bool),
    Deleted,
    Delivered(usize),
}

impl Pair {
    fn new() -> Pair {
        let (disk, clock) = (SimDisk::default(), Clock::new());
        let store = open(&disk, &clock);
        let model = Model { now: clock.millis(), ..Model::default() };
        Pair { disk, clock, store, model }
    }

    fn call(&self, write: &Write) -> Call {
        match write {
            Write::Create { id: number, json: is_json, seconds, closed, data } => {
                let mut create = plain();
                create.shape.content_type = is_json.then(json);
                create.shape.expiry = seconds.map(|seconds| Expiry::Sliding { seconds: seconds.into() });
                create.shape.closed = *closed;
                create.messages = Messages::one(data.clone());
                Call::Create(id(*number), create)
            }
            Write::Append { id: number, sizes, close, producer, seq } => {
                let parts: Vec<Vec<u8>> = sizes.iter().map(|size| vec![*size; *size as usize]).collect();
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                let producer = producer.map(|(who, epoch, seq)| Producer {
                    id: format!("p{who}").into(),
                    epoch: epoch.into(),
                    seq: seq.into(),
                });
                let stream_seq = seq.map(|seq| seq.to_string().into());
                let append = Append {
                    messages: messages(&parts),
                    close: *close,
                    producer,
                    stream_seq,
                    ..Append::default()
                };
                Call::Append(id(*number), append)
            }
            Write::Delete { id: number } => Call::Delete(id(*number)),
            Write::Deliver { source, offset, targets, size } => {
                let names: Vec<String> =
                    (0..STREAMS).filter(|number| targets & (1 << number) != 0).map(id).collect();
                let known = names.iter().filter_map(|name| self.model.streams.get(name));
                let targets: Vec<StreamId> = known.map(|stream| StreamId(stream.id)).collect();
                let delivery = Delivery {
                    source: StreamId((*source).into()),
                    source_offset: Offset::new((*offset).into()),
                    messages: Messages::one(vec![*size; *size as usize]),
                    targets: targets.into(),
                };
                Call::Deliver(delivery, names)
            }
        }
    }

    async fn ask(store: &Embedded, call: &Call) -> Result<(Said, Option<u64>), Error> {
        Ok(match call {
            Call::Create(id, create) => {
                let created = store.create(name(id), create.clone()).await?;
                (Said::Created(created.is_new), Some(created.head.id.0))
            }
            Call::Append(id, append) => {
                let appended = store.append(name(id), append.clone()).await?;
                (Said::Appended(appended.tail.bytes(), appended.is_duplicate), None)
            }
            Call::Delete(id) => {
                store.delete(name(id)).await?;
                (Said::Deleted, None)
            }
            Call::Deliver(delivery, _) => {
                (Said::Delivered(store.deliver(delivery.clone()).await?.written), None)
            }
        })
    }

    fn expect(&mut self, call: &Call) -> Result<Said, Wrong> {
        let model = &mut self.model;
        Ok(match call {
            Call::Create(id, create) => Said::Created(model.create(id, create)?),
            Call::Append(id, append) => {
                let (tail, duplicate) = model.append(id, append)?;
                Said::Appended(tail, duplicate)
            }
            Call::Delete(id) => {
                model.delete(id)?;
                Said::Deleted
            }
            Call::Deliver(delivery, names) => {
                let (source, offset) = (delivery.source.0, delivery.source_offset.bytes());
                // A name may have a new stream by now; the delivery means the old one.
                let same = |name: &&String| {
                    let stream = model.streams.get(*name);
                    stream.is_some_and(|stream| delivery.targets.contains(&StreamId(stream.id)))
                };
                let names: Vec<String> = names.iter().filter(same).cloned().collect();
                Said::Delivered(model.deliver(source, offset, &delivery.messages, &names))
            }
        })
    }

    fn compare(&mut self, call: &Call, said: Result<(Said, Option<u64>), Error>) {
        let expected = self.expect(call);
        let said = match said {
            Ok((said, new_id)) => {
                if let (Call::Create(id, _), Some(new_id)) = (call, new_id)
                    && let Some(stream) = self.model.streams.get_mut(id)
                {
                    stream.id = new_id;
                }
                Ok(said)
            }
            Err(error) => Err(Wrong::of(&error)),
        };
        assert_eq!(said, expected);
    }

    async fn write(&mut self, write: &Write) {
        let call = self.call(write);
        let said = Pair::ask(&self.store, &call).await;
        self.compare(&call, said);
    }

    /// Holds a sync so that everything asked meanwhile is one commit.
    async fn burst(&mut self, writes: &[Write]) {
        let calls: Vec<Call> = writes.iter().map(|write| self.call(write)).collect();
        let _ = self.store.create(name("plug"), plain()).await;
        self.disk.switch(|switches| switches.hold_sync = true);
        let (plug, disk) = (self.store.append(name("plug"), bytes(b".")), self.disk.clone());
        disk.wait_for_sync();
        let asked = join_all(calls.iter().map(|call| Pair::ask(&self.store, call)));
        let release = async { disk.switch(|switches| switches.hold_sync = false) };
        let (plug, said, ()) = tokio::join!(plug, asked, release);
        plug.unwrap();
        for (call, said) in calls.iter().zip(said) {
            self.compare(call, said);
        }
    }

    async fn fork(&mut self, number: u8, source: u8, part: Option<u8>, sub_offset: u8, seconds: Option<u8>) {
        let mut create = plain();
        // Somewhere between the start and a little beyond the tail.
        let offset = part.map(|part| {
            let (start, tail) =
                self.model.streams.get(&id(source)).map_or((0, 0), |it| (it.start, it.tail()));
            Offset::new(start + (tail - start) * u64::from(part) / 250)
        });
        let source = name(&id(source));
        create.shape.fork = Some(ForkPoint { source, offset, sub_offset: sub_offset.into() });
        create.shape.expiry = seconds.map(|seconds| Expiry::Sliding { seconds: seconds.into() });
        let call = Call::Create(id(number), create);
        let said = Pair::ask(&self.store, &call).await;
        self.compare(&call, said);
    }

    async fn trim(&mut self, number: u8, part: u8) {
        let before = self.model.streams.get(&id(number)).map_or(0, |it| it.tail() * u64::from(part) / 250);
        let said = self.store.trim(name(&id(number)), Offset::new(before)).await;
        let expected = self.model.trim(&id(number), before);
        assert_eq!(said.map(Offset::bytes).map_err(|error| Wrong::of(&error)), expected);
    }

    async fn read(&mut self, number: u8, page: usize) {
        let said = read_all(&self.store, &id(number), page).await;
        let now = self.model.now;
        let expected = self.model.usable_mut(&id(number)).map(|stream| {
            stream.used_at = now;
            stream.messages.clone()
        });
        match (said, expected) {
            // The first message of a fork's own may follow one that the fork cut in two.
            (Ok(said), Ok(expected)) => assert_eq!(said, expected, "stream {number}"),
            (said, expected) => assert_eq!(said.map_err(|error| Wrong::of(&error)), expected),
        }
    }

    /// Everything the store says about every stream is what the model says.
    async fn agree(&mut self) {
        for number in 0..STREAMS {
            let said = self.store.head(&name(&id(number)));
            let expected = self.model.usable(&id(number));
            match (said, expected) {
                (Ok(said), Ok(expected)) => {
                    assert_eq!(said.tail.bytes(), expected.tail(), "stream {number}");
                    assert_eq!(said.start.bytes(), expected.start, "stream {number}");
                    assert_eq!((said.closed, said.id.0), (expected.closed, expected.id));
                    assert_eq!(said.expiry, expected.expiry);
                }
                (said, expected) => {
                    assert_eq!(said.map(|_| ()).map_err(|error| Wrong::of(&error)), expected.map(|_| ()));
                }
            }
            self.read(number, 64).await;
        }
    }

    /// Opens again. A crash may forget that a stream was read, never that it was written.
    fn reopen(&mut self, disk: SimDisk) {
        self.store.shut_down();
        self.disk = disk;
        self.store = open(&self.disk, &self.clock);
        for (id, stream) in &mut self.model.streams {
            let Expiry::Sliding { seconds } = stream.expiry else { continue };
            let window = seconds as i64 * 1000;
            match self.store.head(&name(id)) {
                Ok(head) => stream.used_at = head.ends_at.unwrap().as_millisecond() - window,
                Err(_) => stream.used_at = stream.used_at.min(stream.written_at.max(self.model.now - window)),
            }
        }
    }

    async fn live_through(&mut self, event: &Event) {
        match event {
            Event::Write(write) => self.write(write).await,
            Event::Burst(writes) => self.burst(writes).await,
            Event::Fork { id, source, part, sub_offset, seconds } => {
                self.fork(*id, *source, *part, *sub_offset, *seconds).await;
            }
            Event::Trim { id, part } => self.trim(*id, *part).await,
            Event::Read { id, page } => self.read(*id, *page as usize).await,
            Event::Wait { seconds } => {
                self.clock.advance_millis(i64::from(*seconds) * 1000);
                self.model.now = self.clock.millis();
            }
            Event::Keep => assert_eq!(self.store.keep().unwrap(), self.model.keep()),
            Event::Maintain => self.store.maintain().unwrap(),
            Event::Compact => self.store.compact().unwrap(),
            Event::Checkpoint => self.store.checkpoint().unwrap(),
            Event::Restart => {
                let disk = self.disk.clone();
                self.reopen(disk);
            }
            Event::PowerCut => {
                let disk = self.disk.image().after_power_cut(0, |_, byte| byte);
                self.reopen(disk);
                assert_eq!(self.store.recovery().damage, None);
                self.agree().await;
            }
        }
    }
}

fn play(events: &[Event]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut pair = Pair::new();
        for event in events {
            pair.live_through(event).await;
        }
        pair.agree().await;
        let disk = pair.disk.image().after_power_cut(0, |_, byte| byte);
        pair.reopen(disk);
        pair.agree().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_the_model(events in prop::collection::vec(event(), 1..80)) {
        play(&events);
    }
}

/// As many as a minute allows; a night allows more.
fn cases() -> u32 {
    std::env::var("TOWPATH_STREAM_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

/// Pages smaller than the lists of tiny blocks they are read from once left holes.
#[test]
fn small_pages_over_many_tiny_blocks() {
    let append =
        |id| Event::Write(Write::Append { id, sizes: vec![1], close: false, producer: None, seq: None });
    let create =
        |id| Event::Write(Write::Create { id, json: false, seconds: None, closed: false, data: Vec::new() });
    let mut events = vec![create(0), create(1)];
    events.extend((0..=254).map(|number| append(number % 2)));
    events.push(Event::Maintain);
    events.extend([1, 3, 64, 100].map(|page| Event::Read { id: 0, page }));
    events.extend([Event::Compact, Event::Read { id: 1, page: 7 }, Event::PowerCut]);
    play(&events);
}
