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
use towpath_streams::{Append, Beyond, Create, Error, FanOut, FanOutMode, List, Messages, Store, Subscribe};

use crate::memory_log::MemoryLog;
use crate::model::{Model, Wrong};
use crate::sim::SimDisk;
use crate::support::*;

/// An event of a history.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Write(Write),
    /// Writes that become one commit.
    Burst(Vec<Write>),
    Fork {
        id: u8,
        origin: u8,
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
    FanOut {
        id: u8,
    },
    Wait {
        seconds: u8,
    },
    Keep,
    Maintain,
    Compact,
    Checkpoint,
    /// A checkpoint, and what happens while it is being written.
    CheckpointBeside(Vec<Beside>),
    Restart,
    PowerCut,
}

#[derive(Debug, Clone)]
pub(crate) enum Beside {
    Write(Write),
    FanOut { id: u8 },
    Trim { id: u8, part: u8 },
    Keep,
}

#[derive(Debug, Clone)]
pub(crate) enum Write {
    Create { id: u8, json: bool, seconds: Option<u8>, closed: bool, data: Vec<u8> },
    Append { id: u8, body: Body, seq: Option<u8> },
    Publish { id: u8, body: Body, inline_max: u8, skip: bool },
    Delete { id: u8 },
    Subscribe { session: u8, source: u8, seconds: u8, envelope: bool },
    Unsubscribe { session: u8, source: u8 },
    Meta { key: u8, value: Option<u8> },
}

#[derive(Debug, Clone)]
pub(crate) struct Body {
    sizes: Vec<u8>,
    close: bool,
    producer: Option<(u8, u8, u8)>,
}

/// Streams, of which the last ones have names of sessions.
const STREAMS: u8 = 8;
const SESSIONS: u8 = 3;

fn body() -> impl Strategy<Value = Body> {
    let producer = prop::option::of((0..2u8, 0..3u8, 0..4u8));
    (prop::collection::vec(1..60u8, 1..4), prop::bool::weighted(0.05), producer)
        .prop_map(|(sizes, close, producer)| Body { sizes, close, producer })
}

fn write() -> impl Strategy<Value = Write> {
    let id = 0..STREAMS;
    let source = 0..STREAMS - SESSIONS;
    // Mostly sessions, sometimes streams that cannot be one.
    let session = prop_oneof![9 => STREAMS - SESSIONS..STREAMS, 1 => 0..STREAMS];
    prop_oneof![
        3 => (id.clone(), any::<bool>(), prop::option::of(1..20u8), prop::bool::weighted(0.1), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(id, json, seconds, closed, data)| Write::Create { id, json, seconds, closed, data }),
        6 => (id.clone(), body(), prop::option::weighted(0.2, 0..9u8))
            .prop_map(|(id, body, seq)| Write::Append { id, body, seq }),
        6 => (source.clone(), body(), 0..4u8, any::<bool>())
            .prop_map(|(id, body, inline_max, skip)| Write::Publish { id, body, inline_max, skip }),
        1 => id.clone().prop_map(|id| Write::Delete { id }),
        5 => (session.clone(), id, 5..30u8, any::<bool>())
            .prop_map(|(session, source, seconds, envelope)| Write::Subscribe { session, source, seconds, envelope }),
        3 => (session, source).prop_map(|(session, source)| Write::Unsubscribe { session, source }),
        1 => (0..3u8, prop::option::of(0..3u8)).prop_map(|(key, value)| Write::Meta { key, value }),
    ]
}

fn beside() -> impl Strategy<Value = Beside> {
    let id = 0..STREAMS;
    prop_oneof![
        12 => write().prop_map(Beside::Write),
        2 => id.clone().prop_map(|id| Beside::FanOut { id }),
        1 => (id, any::<u8>()).prop_map(|(id, part)| Beside::Trim { id, part }),
        1 => Just(Beside::Keep),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..STREAMS;
    prop_oneof![
        2 => prop::collection::vec(beside(), 1..20).prop_map(Event::CheckpointBeside),
        12 => write().prop_map(Event::Write),
        3 => prop::collection::vec(write(), 2..8).prop_map(Event::Burst),
        3 => (id.clone(), 0..STREAMS, prop::option::of(any::<u8>()), 0..4u8, prop::option::of(1..20u8))
            .prop_map(|(id, origin, part, sub_offset, seconds)| Event::Fork { id, origin, part, sub_offset, seconds }),
        1 => (id.clone(), any::<u8>()).prop_map(|(id, part)| Event::Trim { id, part }),
        2 => id.clone().prop_map(|id| Event::FanOut { id }),
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

impl Event {
    /// Whether a node decides it in a commit, so that it needs no barrier.
    pub(crate) fn is_a_change(&self) -> bool {
        matches!(self, Event::Write(_) | Event::Fork { .. } | Event::Trim { .. })
    }
}

/// What a node of several can do without time passing: lives that readers renew are not in the log at once.
pub(crate) fn shared_event() -> impl Strategy<Value = Event> {
    let id = 0..STREAMS;
    prop_oneof![
        1 => prop::collection::vec(write().prop_map(Beside::Write), 1..10).prop_map(Event::CheckpointBeside),
        16 => write().prop_map(Event::Write),
        3 => (id.clone(), 0..STREAMS, prop::option::of(any::<u8>()), 0..4u8, prop::option::of(1..20u8))
            .prop_map(|(id, origin, part, sub_offset, seconds)| Event::Fork { id, origin, part, sub_offset, seconds }),
        1 => (id.clone(), any::<u8>()).prop_map(|(id, part)| Event::Trim { id, part }),
        2 => id.clone().prop_map(|id| Event::FanOut { id }),
        3 => (id, 1..300u16).prop_map(|(id, page)| Event::Read { id, page }),
        1 => Just(Event::Keep),
        1 => Just(Event::Maintain),
        1 => Just(Event::Compact),
        1 => Just(Event::Checkpoint),
    ]
}

fn id(number: u8) -> String {
    match number < STREAMS - SESSIONS {
        true => format!("s{number}"),
        false => format!("session:{number}"),
    }
}

/// The store and the model, side by side.
pub(crate) struct Pair {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Clock,
    pub(crate) store: Embedded,
    model: Model,
}

/// A write as both sides understand it.
enum Call {
    Create(String, Create),
    Append(String, Append),
    Publish(String, Append, FanOut),
    Delete(String),
    Subscribe(Subscribe),
    Unsubscribe(String, String),
    Meta(String, Option<u8>),
}

/// What the store answered, as far as the model knows it too.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Created(bool),
    Appended(u64, bool),
    Published(u64, bool, usize, FanOutMode),
    Deleted,
    Subscribed(bool, bool),
    Unsubscribed(bool),
    Set,
}

fn append_of(body: &Body) -> Append {
    let parts: Vec<Vec<u8>> = body.sizes.iter().map(|size| vec![*size; *size as usize]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let producer = body.producer.map(|(who, epoch, seq)| Producer {
        id: format!("p{who}").into(),
        epoch: epoch.into(),
        seq: seq.into(),
    });
    Append { messages: messages(&parts), close: body.close, producer, ..Append::default() }
}

fn value(number: u8) -> Vec<u8> {
    vec![number; number.into()]
}

impl Pair {
    fn new() -> Pair {
        let (disk, clock) = (SimDisk::default(), Clock::new());
        let store = open(&disk, &clock);
        let model = Model { now: clock.millis(), ..Model::default() };
        Pair { disk, clock, store, model }
    }

    /// The same on a log that others share.
    pub(crate) fn shared(log: &MemoryLog) -> Pair {
        let (disk, clock) = (SimDisk::default(), Clock::new());
        let store = open_shared(&disk, &clock, log);
        let model = Model { now: clock.millis(), ..Model::default() };
        Pair { disk, clock, store, model }
    }

    fn call(write: &Write) -> Call {
        match write {
            Write::Create { id: number, json: is_json, seconds, closed, data } => {
                let mut create = plain();
                create.shape.content_type = is_json.then(json);
                create.shape.expiry = seconds.map(|seconds| Expiry::Sliding { seconds: seconds.into() });
                create.shape.closed = *closed;
                create.messages = Messages::one(data.clone());
                Call::Create(id(*number), create)
            }
            Write::Append { id: number, body, seq } => {
                let stream_seq = seq.map(|seq| seq.to_string().into());
                Call::Append(id(*number), Append { stream_seq, ..append_of(body) })
            }
            Write::Publish { id: number, body, inline_max, skip } => {
                let beyond = if *skip { Beyond::Skip } else { Beyond::Queue };
                let fan_out = FanOut { inline_max: (*inline_max).into(), beyond };
                Call::Publish(id(*number), append_of(body), fan_out)
            }
            Write::Delete { id: number } => Call::Delete(id(*number)),
            Write::Subscribe { session, source, seconds, envelope } => Call::Subscribe(Subscribe {
                session: name(&id(*session)),
                source: name(&id(*source)),
                ttl_seconds: (*seconds).into(),
                envelope: *envelope,
            }),
            Write::Unsubscribe { session, source } => Call::Unsubscribe(id(*session), id(*source)),
            Write::Meta { key, value } => Call::Meta(key.to_string(), *value),
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
            Call::Publish(id, append, fan_out) => {
                let published = store.publish(name(id), append.clone(), *fan_out).await?;
                let appended = published.appended;
                let (tail, is_duplicate) = (appended.tail.bytes(), appended.is_duplicate);
                (Said::Published(tail, is_duplicate, published.subscribers, published.mode), None)
            }
            Call::Subscribe(subscribe) => {
                let subscribed = store.subscribe(subscribe.clone()).await?;
                let said = Said::Subscribed(subscribed.is_new_session, subscribed.is_new);
                (said, Some(subscribed.head.id.0))
            }
            Call::Unsubscribe(session, source) => {
                (Said::Unsubscribed(store.unsubscribe(name(session), name(source)).await?), None)
            }
            Call::Meta(key, to) => {
                store.put_meta("test", key, to.map(|number| value(number).into())).await?;
                (Said::Set, None)
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
            Call::Publish(id, append, fan_out) => {
                let (tail, is_duplicate, subscribers, mode) = model.publish(id, append, *fan_out)?;
                Said::Published(tail, is_duplicate, subscribers, mode)
            }
            Call::Subscribe(Subscribe { session, source, ttl_seconds, envelope }) => {
                let (is_new_session, is_new) =
                    model.subscribe(&session.id, &source.id, *ttl_seconds, *envelope)?;
                Said::Subscribed(is_new_session, is_new)
            }
            Call::Unsubscribe(session, source) => Said::Unsubscribed(model.unsubscribe(session, source)?),
            Call::Meta(key, to) => {
                match to {
                    Some(number) => drop(model.metas.insert(key.clone(), value(*number))),
                    None => drop(model.metas.remove(key)),
                }
                Said::Set
            }
        })
    }

    fn compare(&mut self, call: &Call, said: Result<(Said, Option<u64>), Error>) {
        let expected = self.expect(call);
        let said = match said {
            Ok((said, new_id)) => {
                let id = match call {
                    Call::Create(id, _) => id,
                    Call::Subscribe(subscribe) => &*subscribe.session.id,
                    _ => "",
                };
                if let (Some(stream), Some(new_id)) = (self.model.streams.get_mut(id), new_id) {
                    stream.id = new_id;
                }
                Ok(said)
            }
            Err(error) => Err(Wrong::of(&error)),
        };
        assert_eq!(said, expected);
    }

    async fn write(&mut self, write: &Write) {
        let call = Pair::call(write);
        let said = Pair::ask(&self.store, &call).await;
        self.compare(&call, said);
    }

    /// Holds a sync so that everything asked meanwhile is one commit.
    async fn burst(&mut self, writes: &[Write]) {
        let calls: Vec<Call> = writes.iter().map(Pair::call).collect();
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

    async fn fork(&mut self, number: u8, origin: u8, part: Option<u8>, sub_offset: u8, seconds: Option<u8>) {
        let mut create = plain();
        // Somewhere between the start and a little beyond the tail.
        let offset = part.map(|part| {
            let (start, tail) =
                self.model.streams.get(&id(origin)).map_or((0, 0), |it| (it.start, it.tail()));
            Offset::new(start + (tail - start) * u64::from(part) / 250)
        });
        let origin = name(&id(origin));
        create.shape.fork = Some(ForkPoint { origin, offset, sub_offset: sub_offset.into() });
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

    async fn fan_out(&mut self, number: u8) {
        let source = name(&id(number));
        let expected = self.model.clone().fan_out(&id(number));
        loop {
            match self.store.fan_out(source.clone()).await {
                Ok(step) if step.lag_bytes > 0 => {
                    assert!(step.bytes > 0, "a step that is not the last moves on");
                }
                Ok(_) => break assert_eq!(expected, Ok(())),
                Err(error) => break assert_eq!(Err(Wrong::of(&error)), expected),
            }
        }
        let _ = self.model.fan_out(&id(number));
    }

    /// Sessions, cursors and small values are what the model says.
    fn agree_on_sessions(&self, number: u8) {
        let Ok(expected) = self.model.usable(&id(number)) else { return };
        let stream = name(&id(number));
        let due: u64 = expected.due.iter().map(|(_, message)| message.len() as u64).sum();
        let state = self.store.fan_out_state(&stream).unwrap();
        let subscribers = self.model.subscribers(expected.life);
        assert_eq!((state.subscribers, state.lag_bytes()), (subscribers.len(), due), "stream {number}");
        let lags = self.store.lagging(99).iter().any(|(lagging, _)| *lagging == stream);
        assert_eq!(lags, due > 0, "stream {number}");
        let said = self.store.subscribers(&stream, None, 99).unwrap();
        let said: Vec<_> =
            said.iter().map(|(session, sub)| (session.id.to_string(), sub.start, sub.envelope)).collect();
        let expected_subscribers: Vec<_> = subscribers
            .into_iter()
            .map(|(session, sub)| (session, Offset::new(sub.start), sub.envelope))
            .collect();
        assert_eq!(said, expected_subscribers, "stream {number}");
        match (self.store.session(&stream), &expected.subs) {
            (Ok(said), Some(expected)) => {
                let said: Vec<_> = said
                    .subscriptions
                    .iter()
                    .map(|it| (it.source.id.to_string(), it.start.bytes(), it.envelope))
                    .collect();
                let expected: Vec<_> =
                    expected.iter().map(|it| (it.source.clone(), it.start, it.envelope)).collect();
                assert_eq!(said, expected, "session {number}");
            }
            (Err(error), None) => assert_eq!(Wrong::of(&error), Wrong::NotFound),
            (said, expected) => panic!("session {number}: {said:?} {expected:?}"),
        }
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
    pub(crate) async fn agree(&mut self) {
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
            self.agree_on_sessions(number);
            self.read(number, 64).await;
        }
        for (prefix, after) in [("s", None), ("s", Some("s2")), ("session:", None), ("session:", Some("s"))] {
            let after = after.map(str::to_owned);
            let list =
                List { project: "test".into(), prefix: prefix.to_owned(), after: after.clone(), limit: 4 };
            let said = self.store.list(list).await.unwrap();
            let said: Vec<String> = said.iter().map(|(name, _)| name.id.to_string()).collect();
            let expected = self.model.streams.keys().filter(|id| {
                let is_usable = self.model.usable(id).is_ok();
                is_usable && id.starts_with(prefix) && after.as_ref().is_none_or(|after| *id > after)
            });
            assert_eq!(said, expected.take(4).cloned().collect::<Vec<_>>(), "{prefix}");
        }
        let said: Vec<_> =
            self.store.list_meta("test").into_iter().map(|(key, value)| (key, value.to_vec())).collect();
        assert_eq!(said, self.model.metas.clone().into_iter().collect::<Vec<_>>());
    }

    /// Lets a checkpoint continue write by write, with other events in between.
    async fn checkpoint_beside(&mut self, besides: &[Beside]) {
        self.disk.switch(|switches| switches.checkpoint_writes = Some(0));
        let store = self.store.clone();
        let checkpoint = std::thread::spawn(move || store.checkpoint());
        for beside in besides {
            self.disk.wait_for_checkpoint(|| checkpoint.is_finished());
            match beside {
                Beside::Write(write) => self.write(write).await,
                Beside::FanOut { id } => self.fan_out(*id).await,
                Beside::Trim { id, part } => self.trim(*id, *part).await,
                Beside::Keep => assert_eq!(self.store.keep().unwrap(), self.model.keep()),
            }
            self.disk.switch(|switches| switches.checkpoint_writes = Some(1));
        }
        self.disk.switch(|switches| switches.checkpoint_writes = None);
        checkpoint.join().unwrap().unwrap();
    }

    /// Opens the store again. A crash may lose that a stream was read, never that it was written.
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

    pub(crate) async fn live_through(&mut self, event: &Event) {
        match event {
            Event::Write(write) => self.write(write).await,
            Event::Burst(writes) => self.burst(writes).await,
            Event::Fork { id, origin, part, sub_offset, seconds } => {
                self.fork(*id, *origin, *part, *sub_offset, *seconds).await;
            }
            Event::Trim { id, part } => self.trim(*id, *part).await,
            Event::FanOut { id } => self.fan_out(*id).await,
            Event::Read { id, page } => self.read(*id, *page as usize).await,
            Event::Wait { seconds } => {
                self.clock.advance_millis(i64::from(*seconds) * 1000);
                self.model.now = self.clock.millis();
            }
            Event::Keep => assert_eq!(self.store.keep().unwrap(), self.model.keep()),
            Event::Maintain => self.store.maintain().unwrap(),
            Event::Compact => self.store.compact().unwrap(),
            Event::Checkpoint => self.store.checkpoint().unwrap(),
            Event::CheckpointBeside(besides) => self.checkpoint_beside(besides).await,
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

/// As many as fit into a minute by default.
fn cases() -> u32 {
    std::env::var("TOWPATH_STREAM_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

/// Small pages over long lists of tiny blocks once had holes.
#[test]
fn small_pages_over_many_tiny_blocks() {
    let append = |id| {
        let body = Body { sizes: vec![1], close: false, producer: None };
        Event::Write(Write::Append { id, body, seq: None })
    };
    let create =
        |id| Event::Write(Write::Create { id, json: false, seconds: None, closed: false, data: Vec::new() });
    let mut events = vec![create(0), create(1)];
    events.extend((0..=254).map(|number| append(number % 2)));
    events.push(Event::Maintain);
    events.extend([1, 3, 64, 100].map(|page| Event::Read { id: 0, page }));
    events.extend([Event::Compact, Event::Read { id: 1, page: 7 }, Event::PowerCut]);
    play(&events);
}
