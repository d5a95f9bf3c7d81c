//! Takes messages that SQL transactions left for streams into the store, in order and exactly once (S07).
//!
//! One round: read what the store has noted as taken in; delete those rows and read the next ones, in one transaction;
//! append these in one commit, which notes their ids. The commit is refused unless the note is still the one that was
//! read first. So rows that are read were never appended, wherever a round was broken off and however many nodes of
//! one store do this.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use towpath_db::job::Listener;
use towpath_db::retry::Retry;
use towpath_db::stream_intake::{IntakeRow, Refused, Routes};
use towpath_db::{Database, Error};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::json;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::state::Shape;
use towpath_streams::{
    Append, Create, FanOut, INTAKE, IntakeBatch, IntakeMessage, Messages, Retention, Store,
};
use uuid::Uuid;

use crate::limits;

/// The small value with the store's identity.
const STORE: &str = "store";

/// The loop that takes messages in.
pub struct Intake {
    database: Database,
    store: Arc<dyn Store>,
    fan_out: FanOut,
    /// Where this node is, for operators.
    address: String,
    routes: Routes,
}

/// What one round found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Messages were taken in or refused: there may be more.
    Some(usize),
    /// There was nothing.
    Nothing,
    /// Another store takes the intake of this database in.
    NotOurs,
}

/// Why a round failed.
#[derive(Debug)]
enum Failure {
    Database(Error),
    Store(towpath_streams::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Database(error)
    }
}

impl From<towpath_streams::Error> for Failure {
    fn from(error: towpath_streams::Error) -> Failure {
        Failure::Store(error)
    }
}

impl Intake {
    /// The intake of a database, for a store. `fan_out` says when sessions get the messages.
    pub fn new(database: Database, store: Arc<dyn Store>, fan_out: FanOut, address: &str) -> Intake {
        Intake { database, store, fan_out, address: address.to_owned(), routes: Routes::Elsewhere }
    }

    /// Also takes the events in that routes have for streams.
    pub fn with_routes(mut self) -> Intake {
        self.routes = Routes::Here;
        self
    }

    /// Takes messages in until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let taking = async {
            let mut retry = Retry::of("taking messages into streams");
            let mut listener = None;
            let mut state = State::default();
            // Rounds that found nothing since the last message or notification.
            let mut quiet = 0;
            loop {
                let wait = match self.round(&mut state).await {
                    Ok(Round::Some(_)) => {
                        retry.succeeded();
                        quiet = 0;
                        continue;
                    }
                    Ok(Round::NotOurs) => limits::INTAKE_OTHERS_POLL,
                    Ok(Round::Nothing) => {
                        retry.succeeded();
                        quiet = self.sleep(&mut listener, quiet).await;
                        continue;
                    }
                    Err(Failure::Database(error)) => retry.failed(&error),
                    Err(Failure::Store(error)) => retry.failed(&Error::Unreachable(error.to_string())),
                };
                tokio::time::sleep(wait).await;
            }
        };
        tokio::select! {
            () = taking => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// One round, for tests and programs that have a loop of their own.
    pub async fn run_once(&self) -> Result<Round, Error> {
        self.round(&mut State::default()).await.map_err(|failure| match failure {
            Failure::Database(error) => error,
            Failure::Store(error) => Error::Unreachable(error.to_string()),
        })
    }

    async fn round(&self, state: &mut State) -> Result<Round, Failure> {
        let store_id = self.hold(state).await?;
        let Some(store_id) = store_id else { return Ok(Round::NotOurs) };
        self.store.fresh().await?;
        let noted = self.store.noted();
        let refused = std::mem::take(&mut state.refused);
        let rows =
            self.database.stream_intake_read(store_id, &noted.ids, &refused, limits::INTAKE_ROWS).await;
        let rows = rows.inspect_err(|_| state.refused = refused)?;
        if rows.is_empty() {
            return Ok(Round::Nothing);
        }
        let count = rows.len();
        let messages = self.messages(rows, state).await?;
        if messages.is_empty() {
            return Ok(Round::Some(count));
        }
        let ids: Vec<i64> = messages.iter().map(|message| message.id).collect();
        let batch = IntakeBatch { before: noted.batch, messages, fan_out: self.fan_out };
        match self.store.take_in(batch).await {
            Ok(answers) => {
                let refusals = ids.into_iter().zip(answers).filter_map(|(intake_id, answer)| {
                    let error = answer.err()?;
                    // It was deleted meanwhile: the next round creates it again.
                    let is_missing = matches!(error, towpath_streams::Error::NotFound(_));
                    (!is_missing || state.bytes.contains(&intake_id))
                        .then(|| Refused { intake_id, error: error.to_string() })
                });
                let refusals: Vec<Refused> = refusals.collect();
                state.refused.extend(refusals);
                Ok(Round::Some(count))
            }
            // Another node of this store was faster, or too much waits.
            Err(towpath_streams::Error::Busy(_)) => {
                tokio::time::sleep(limits::INTAKE_BUSY_WAIT).await;
                Ok(Round::Some(0))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The rows as messages. Streams for JSON are created; what can be in no stream is refused.
    async fn messages(&self, rows: Vec<IntakeRow>, state: &mut State) -> Result<Vec<IntakeMessage>, Failure> {
        let mut messages = Vec::with_capacity(rows.len());
        let mut seen = HashSet::new();
        state.bytes.clear();
        for row in rows {
            let (id, is_json) = (row.intake_id, row.is_json);
            let name = StreamName::new(&row.project, &row.stream).filter(|name| !name.is_sessions());
            let Some(name) = name else {
                let error =
                    format!("{}/{} is not the name of a stream for messages", row.project, row.stream);
                state.refused.push(Refused { intake_id: id, error });
                continue;
            };
            let append = match append(&row) {
                Ok(append) => append,
                Err(invalid) => {
                    let error = format!("the message is not JSON for a stream: {invalid:?}");
                    state.refused.push(Refused { intake_id: id, error });
                    continue;
                }
            };
            if !is_json {
                state.bytes.insert(id);
            }
            if is_json
                && seen.insert(name.clone())
                && matches!(self.store.head(&name), Err(towpath_streams::Error::NotFound(_)))
            {
                match self.store.create(name.clone(), json_stream()).await {
                    // Somebody else created it, in another way: the append says what is wrong with it.
                    Ok(_) | Err(towpath_streams::Error::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            messages.push(IntakeMessage { id, name, append });
        }
        Ok(messages)
    }

    /// The identity of the store, if it may take the intake in.
    async fn hold(&self, state: &mut State) -> Result<Option<Uuid>, Failure> {
        let store_id = match state.store_id {
            Some(store_id) => store_id,
            None => self.identity().await?,
        };
        state.store_id = Some(store_id);
        if state.held_at.is_some_and(|at| at.elapsed() < limits::INTAKE_RENEW) {
            return Ok(Some(store_id));
        }
        let seconds = limits::INTAKE_HOLD_SECONDS;
        let hold = self.database.stream_intake_hold(store_id, &self.address, seconds, self.routes).await?;
        if !hold.held && state.other.as_ref() != Some(&hold.address) {
            tracing::error!(
                "messages of SQL transactions go to another stream store, at {}; stop it, or use its data directory",
                hold.address
            );
        }
        state.held_at = hold.held.then(Instant::now);
        state.other = (!hold.held).then_some(hold.address);
        Ok(hold.held.then_some(store_id))
    }

    async fn identity(&self) -> Result<Uuid, towpath_streams::Error> {
        self.store.fresh().await?;
        let of = |store: &dyn Store| {
            let found = store.list_meta(INTAKE).into_iter().find(|(key, _)| key == STORE);
            found.and_then(|(_, value)| Uuid::from_slice(&value).ok())
        };
        if let Some(store_id) = of(&*self.store) {
            return Ok(store_id);
        }
        self.store.put_meta(INTAKE, STORE, Some(Uuid::now_v7().as_bytes().to_vec().into())).await?;
        // Two nodes may have done so at once: the last one counts.
        self.store.fresh().await?;
        Ok(of(&*self.store).unwrap_or_default())
    }

    /// Asks for a notification, so that the next round finds what was committed before; then waits for it. A
    /// transaction that looked for the request before it was there does not notify, however late it commits. Hence a
    /// look from time to time, at first soon. Answers how many rounds have found nothing.
    async fn sleep(&self, listener: &mut Option<Listener>, quiet: u32) -> u32 {
        if quiet == 0 {
            if listener.as_ref().is_none_or(Listener::is_broken) {
                *listener = Listener::open_for_intake(&self.database).await.ok();
            }
            // Without it, polling finds the messages.
            let _ = self.database.stream_intake_arm().await;
            return 1;
        }
        let woken = async {
            match listener {
                Some(listener) => listener.woken().await,
                None => std::future::pending().await,
            }
        };
        let wait = limits::INTAKE_POLL_FIRST * 2_u32.saturating_pow(quiet - 1);
        match tokio::time::timeout(wait.min(limits::INTAKE_POLL), woken).await {
            Ok(()) => 0,
            Err(_) => (quiet + 1).min(16),
        }
    }
}

/// What the loop knows between rounds. A new one finds out again.
#[derive(Default)]
struct State {
    store_id: Option<Uuid>,
    held_at: Option<Instant>,
    other: Option<String>,
    /// Messages to mark as refused with the next read.
    refused: Vec<Refused>,
    /// Messages of this round that are no JSON: their stream must exist.
    bytes: HashSet<i64>,
}

fn append(row: &IntakeRow) -> Result<Append, json::Invalid> {
    if !row.is_json {
        return Ok(Append { messages: Messages::one(row.body.clone()), ..Append::default() });
    }
    let run = json::flatten(&row.body)?;
    let messages = Messages { data: run.data.into(), ends: run.ends };
    Ok(Append { messages, content_type: Some(json_type()), ..Append::default() })
}

fn json_stream() -> Create {
    let shape = Shape { content_type: Some(json_type()), expiry: None, closed: false, fork: None };
    Create { shape, messages: Messages::default(), retention: Retention::default() }
}

fn json_type() -> ContentType {
    ContentType::parse("application/json").expect("a constant type is a type")
}
