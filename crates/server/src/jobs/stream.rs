//! The stream of a job, `/v1/jobs/stream/job/{job_id}`: its progress, what its handler appends, and its end.
//!
//! JSON messages of the State Protocol: `job` is the job as it is now, `chunk` what a handler appended. The stream is
//! created when a worker over HTTP reports or appends something, or when somebody wants to follow the job. From then
//! on a task copies into it what the database knows: the job's changes and what handlers with a database connection
//! append. The attempt is the producer's epoch, so a worker that lost its lease to another one is refused. The end
//! of the job closes the stream; after a restart, the streams that are still open are found in the store.
//! docs/decisions/0020-job-streams-are-copied.md says why.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job_stream::{JobChunk, JobStatus, JobTokenKey};
use towpath_model::job::{Attempt, JobId};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{Accepted, Refusal, Shape};
use towpath_model::token::{Invalid, Material, Secret};
use towpath_streams::{Append, Create, Error as StoreError, List, Messages, Retention, Store};

use super::watch::Watches;
use crate::limits;
use crate::project::{Change, ChangeError, JOBS_PROJECT, Mint, NewKey, Origins, Projects};

/// The prefix of the streams' ids.
const PREFIX: &str = "job/";
/// The ids of the producers, whose epochs are attempts: of states; of what workers over HTTP append; and of what workers
/// with a database connection append. The numbers of the last are the database's, so that a copy that is repeated
/// after a crash adds nothing.
const STATES: &str = "state";
const CHUNKS: &str = "chunk";
const COPIES: &str = "database";
/// How the names of the database's keys begin.
const DATABASE_KEY: &str = "database-";
/// How many appends to different streams may wait for the store at once.
const LOCKS: usize = 64;

impl From<Error> for super::Error {
    fn from(error: Error) -> super::Error {
        match error {
            Error::LeaseLost => towpath_db::Error::LeaseLost("this job".into()).into(),
            Error::Closed => super::Error::Ended("the job has ended, and its stream is closed".into()),
            Error::Full(max) => super::Error::Streams(format!("there are {max} streams of jobs already")),
            Error::Registry(error) => super::Error::Streams(error.to_string()),
            Error::Store(error) => super::Error::Streams(error.to_string()),
            Error::Database(error) => error.into(),
        }
    }
}

/// The streams of jobs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct JobStreams(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    projects: Projects,
    database: Database,
    watches: Watches,
    streams_max: usize,
    /// Jobs whose stream is open, each with a task that copies and closes, and the job as it was appended last.
    open: Mutex<HashMap<JobId, Value>>,
    /// One append at a time to a stream: each takes the next number of its attempt. Jobs share the locks by their hash.
    appending: [tokio::sync::Mutex<()>; LOCKS],
    shutdown: CancellationToken,
}

/// The message of an appended value.
#[derive(Serialize)]
struct Chunk<'a> {
    r#type: &'static str,
    key: &'a str,
    /// Passed on unparsed: numbers keep all their digits.
    value: &'a RawValue,
    headers: Value,
}

/// Why nothing was appended.
#[derive(Debug)]
pub(crate) enum Error {
    /// A later attempt writes to the stream.
    LeaseLost,
    /// The job has ended.
    Closed,
    /// There are too many streams.
    Full(usize),
    /// The registry of projects failed.
    Registry(ChangeError),
    /// The store failed.
    Store(StoreError),
    /// The database failed.
    Database(towpath_db::Error),
}

impl JobStreams {
    /// Copies and closes from now on, the streams of earlier runs too.
    pub(crate) fn start(
        (store, projects, streams_max): (Arc<dyn Store>, Projects, usize),
        database: Database,
        watches: Watches,
        shutdown: CancellationToken,
    ) -> JobStreams {
        let streams = JobStreams(Arc::new(Inner {
            store,
            projects,
            database,
            watches,
            streams_max,
            open: Mutex::default(),
            appending: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            shutdown,
        }));
        let finding = streams.clone();
        tokio::spawn(async move { finding.find_open().await });
        let keeping = streams.clone();
        tokio::spawn(async move { keeping.0.shutdown.run_until_cancelled(keeping.keep_key()).await });
        streams
    }

    /// Drops the key for tokens of jobs soon after it was replaced.
    async fn keep_key(&self) {
        loop {
            tokio::time::sleep(limits::JOB_TOKEN_KEY_EVERY).await;
            if self.0.projects.get(JOBS_PROJECT).is_some()
                && let Err(error) = self.register().await
            {
                tracing::warn!(?error, "cannot read the key for tokens of jobs");
            }
        }
    }

    /// The job that a token is for, if it is for one. The database may have signed it with a key that this server has
    /// not seen yet.
    pub(crate) async fn job_of(&self, token: &str) -> Result<Option<JobId>, Invalid> {
        if let Ok(Some(job_id)) = self.0.projects.job_of(token) {
            return Ok(Some(job_id));
        }
        if let Err(error) = self.register().await {
            tracing::warn!(?error, "cannot read the key for tokens of jobs");
        }
        self.0.projects.job_of(token)
    }

    /// Which pages may call with the token of a job.
    pub(crate) fn origins(&self, headers: &HeaderMap) -> Origins {
        self.0.projects.origins(JOBS_PROJECT, headers)
    }

    /// The path of a job's stream, if it exists.
    pub(crate) fn path(&self, job_id: JobId) -> Option<String> {
        let name = name(job_id);
        self.0.store.head(&name).is_ok().then(|| name.path())
    }

    async fn appending(&self, job_id: JobId) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(job_id);
        self.0.appending[hash as usize % LOCKS].lock().await
    }

    /// Appends what a handler wants its readers to have. Answers the key of the message.
    pub(crate) async fn chunk(
        &self,
        (job_id, attempt): (JobId, Attempt),
        data: &RawValue,
    ) -> Result<String, Error> {
        self.ensure(job_id).await?;
        let _one_at_a_time = self.appending(job_id).await;
        let producer = self.next(job_id, CHUNKS, epoch(attempt))?;
        let key = format!("{attempt}.{}", producer.seq);
        self.append(job_id, &chunk(&key, data), Some(producer)).await?;
        Ok(key)
    }

    /// Appends the job as it is now, if that is new. Read under the lock: what is older never follows what is newer.
    pub(crate) async fn publish(&self, job_id: JobId) -> Result<(), Error> {
        self.ensure(job_id).await?;
        let _one_at_a_time = self.appending(job_id).await;
        let status = self.0.database.job_status(job_id).await.map_err(Error::Database)?;
        let message = upsert(&status);
        // The last message comes with the end of the stream.
        if status.state.ended() || self.lock_open().get(&job_id) == Some(&message) {
            return Ok(());
        }
        // The database's own word is not fenced: attempts that were given back make its number smaller.
        let last = self.last(job_id, None)?.map_or(0, |last| last.epoch);
        let producer = self.next(job_id, STATES, last.max(u64::try_from(status.attempt).unwrap_or(0)))?;
        self.append(job_id, &message, Some(producer)).await?;
        if let Some(last) = self.lock_open().get_mut(&job_id) {
            *last = message;
        }
        Ok(())
    }

    /// Creates the stream, if it does not exist, with the job as it is now. Answers its path.
    pub(crate) async fn open(&self, job_id: JobId) -> Result<String, Error> {
        match self.publish(job_id).await {
            Ok(()) | Err(Error::Closed) => Ok(name(job_id).path()),
            Err(error) => Err(error),
        }
    }

    /// A token to read a job and its stream, and to cancel it.
    pub(crate) async fn mint(&self, job_id: JobId, seconds: u64) -> Result<String, Error> {
        self.register().await?;
        let mint = Mint {
            scope: "read".to_owned(),
            seconds,
            streams: vec![name(job_id).id.to_string()],
            session: None,
            job: Some(job_id.to_string()),
            kid: None,
        };
        self.0.projects.mint(JOBS_PROJECT, &mint).map_err(Error::Registry)
    }

    /// Registers the project with the database's key, so that its streams need a token. Pages of any origin may use
    /// one: a browser sends it only if the page has it. Earlier keys of the database go; an operator's own stay.
    async fn register(&self) -> Result<(), Error> {
        let key = self.0.database.job_token_key().await.map_err(Error::Database)?;
        let (current, others): (Vec<_>, Vec<_>) = self.kids().into_iter().partition(|kid| *kid == key.kid);
        if current.is_empty() {
            self.add_key(key).await?;
        }
        for kid in others.into_iter().filter(|kid| kid.starts_with(DATABASE_KEY)) {
            match self.0.projects.change(JOBS_PROJECT, Change::Revoke { kid }).await {
                Ok(_) | Err(ChangeError::UnknownKey { .. }) => {}
                Err(error) => return Err(Error::Registry(error)),
            }
        }
        Ok(())
    }

    async fn add_key(&self, key: JobTokenKey) -> Result<(), Error> {
        let material = Secret::parse(&key.secret)
            .and_then(Material::hs256)
            .map_err(|bad| Error::Registry(ChangeError::Invalid(format!("the database's key: {bad}"))))?;
        let kid = key.kid.clone();
        let key = NewKey { kid: key.kid, material };
        let change = match self.0.projects.get(JOBS_PROJECT).is_some() {
            true => Change::AddKey { key },
            false => Change::Add { key, origins: vec!["*".to_owned()] },
        };
        match self.0.projects.change(JOBS_PROJECT, change).await {
            Ok(_) => Ok(()),
            // Another call has added it meanwhile.
            Err(_) if self.kids().contains(&kid) => Ok(()),
            Err(error) => Err(Error::Registry(error)),
        }
    }

    /// The names of the keys that tokens of jobs may be signed with.
    fn kids(&self) -> Vec<String> {
        let project = self.0.projects.get(JOBS_PROJECT);
        project.iter().flat_map(|project| &project.record.keys).map(|key| key.kid.clone()).collect()
    }

    /// Creates the stream unless it exists.
    async fn ensure(&self, job_id: JobId) -> Result<(), Error> {
        let name = name(job_id);
        if self.0.store.head(&name).is_ok() {
            return Ok(());
        }
        if self.0.projects.get(JOBS_PROJECT).is_none() {
            self.register().await?;
        }
        if self.0.store.count(JOBS_PROJECT) >= self.0.streams_max {
            return Err(Error::Full(self.0.streams_max));
        }
        let shape = Shape {
            content_type: Some(content_type()),
            expiry: Some(Expiry::Sliding { seconds: limits::JOB_STREAM_SECONDS }),
            closed: false,
            fork: None,
        };
        let create = Create { shape, messages: Messages::default(), retention: Retention::default() };
        self.0.store.create(name, create).await.map_err(Error::Store)?;
        self.keep_up(job_id);
        Ok(())
    }

    /// The newest request of a producer, or of the one with the newest epoch.
    fn last(&self, job_id: JobId, producer: Option<&str>) -> Result<Option<Accepted>, Error> {
        let producers = self.0.store.producers(&name(job_id), 3).map_err(Error::Store)?;
        let these = producers.into_iter().filter(|(id, _)| producer.is_none_or(|producer| &**id == producer));
        Ok(these.map(|(_, last)| last).max_by_key(|last| last.epoch))
    }

    /// The next number of an attempt; refused if a later attempt has written.
    fn next(&self, job_id: JobId, producer: &str, epoch: u64) -> Result<Producer, Error> {
        if self.last(job_id, None)?.is_some_and(|last| last.epoch > epoch) {
            return Err(Error::LeaseLost);
        }
        let seq = match self.last(job_id, Some(producer))? {
            Some(last) if last.epoch == epoch => last.seq + 1,
            _ => 0,
        };
        Ok(Producer { id: producer.into(), epoch, seq })
    }

    async fn append(
        &self,
        job_id: JobId,
        message: &impl Serialize,
        producer: Option<Producer>,
    ) -> Result<(), Error> {
        let append = Append {
            messages: messages(message),
            content_type: Some(content_type()),
            close: producer.is_none(),
            producer,
            ..Append::default()
        };
        match self.0.store.append(name(job_id), append).await {
            Ok(_) => Ok(()),
            Err(StoreError::Refused { refusal: Refusal::StaleEpoch { .. }, .. }) => Err(Error::LeaseLost),
            Err(StoreError::Refused { refusal: Refusal::Closed, .. }) => Err(Error::Closed),
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// Copies into the stream what happens to its job, and closes it when the job has ended.
    fn keep_up(&self, job_id: JobId) {
        match self.lock_open().entry(job_id) {
            Entry::Occupied(_) => return,
            Entry::Vacant(place) => place.insert(Value::Null),
        };
        let streams = self.clone();
        tokio::spawn(async move {
            streams.0.shutdown.run_until_cancelled(streams.copy_until_ended(job_id)).await;
            streams.lock_open().remove(&job_id);
        });
    }

    async fn copy_until_ended(&self, job_id: JobId) {
        let mut seen = self.0.watches.follow(job_id);
        loop {
            let ended = seen.borrow_and_update().ended;
            let copied = async {
                self.copy_chunks(job_id).await?;
                if ended { self.close(job_id).await } else { self.publish(job_id).await }
            };
            match copied.await {
                Err(Error::Closed | Error::Store(StoreError::NotFound(_) | StoreError::Deleted(_))) => return,
                Ok(()) if ended => return,
                Ok(()) => {
                    // The look that saw the end was the last one, and its sender is gone.
                    if seen.changed().await.is_err() && !seen.borrow().ended {
                        seen = self.0.watches.follow(job_id);
                    }
                }
                Err(error) => {
                    tracing::warn!(%job_id, ?error, "cannot write the stream of a job; trying again");
                    tokio::time::sleep(limits::JOB_LOOK_MAX).await;
                }
            }
        }
    }

    /// Copies what the database has and the stream has not. The database numbers it, so that nothing is copied twice.
    async fn copy_chunks(&self, job_id: JobId) -> Result<(), Error> {
        let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        loop {
            let last = self.last(job_id, Some(COPIES))?.map(|last| (number(last.epoch), number(last.seq)));
            let chunks = self.0.database.job_chunks(job_id, last).await.map_err(Error::Database)?;
            if chunks.is_empty() {
                return Ok(());
            }
            for JobChunk { attempt, no, data } in chunks {
                let key = format!("{attempt}.{no}");
                let producer = Producer { id: COPIES.into(), epoch: epoch(attempt), seq: no };
                match self.append(job_id, &chunk(&key, &data), Some(producer)).await {
                    // Retention has deleted what came before it: the rest will go too.
                    Err(Error::Store(StoreError::Refused { .. })) => return Ok(()),
                    done => done?,
                }
            }
        }
    }

    /// The last message and the end, in one commit. A stream that is closed or gone needs neither.
    async fn close(&self, job_id: JobId) -> Result<(), Error> {
        let end = match self.0.database.job_status(job_id).await {
            Ok(status) => upsert(&status),
            Err(towpath_db::Error::NotFound(_)) => {
                json!({ "type": "job", "key": job_id, "headers": { "operation": "delete" } })
            }
            Err(error) => return Err(Error::Database(error)),
        };
        self.append(job_id, &end, None).await
    }

    /// Streams that an earlier run left open.
    async fn find_open(&self) {
        let mut after = None;
        loop {
            let list = List {
                project: JOBS_PROJECT.into(),
                prefix: PREFIX.to_owned(),
                after,
                limit: limits::LIST_MAX,
            };
            let page = match self.0.store.list(list).await {
                Ok(page) => page,
                Err(error) => return tracing::error!(%error, "cannot list the streams of jobs"),
            };
            for (name, head) in &page {
                let job_id = name.id.strip_prefix(PREFIX).and_then(|id| id.parse().ok());
                if let (Some(job_id), false) = (job_id, head.closed) {
                    self.keep_up(job_id);
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == limits::LIST_MAX => after = Some(name.id.to_string()),
                _ => return,
            }
        }
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<JobId, Value>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(job_id: JobId) -> StreamName {
    StreamName::new(JOBS_PROJECT, &format!("{PREFIX}{job_id}")).expect("a uuid is a stream's id")
}

/// The epoch of an attempt.
fn epoch(attempt: Attempt) -> u64 {
    u64::try_from(attempt.number()).unwrap_or(0)
}

fn content_type() -> ContentType {
    ContentType::parse("application/json").expect("it is a media type")
}

fn messages(value: &impl Serialize) -> Messages {
    let text = serde_json::to_vec(value).expect("our own types serialise");
    let run = towpath_model::stream::json::flatten(&text).expect("one JSON object is one message");
    Messages { data: run.data.into(), ends: run.ends }
}

/// The message of an appended value.
fn chunk<'a>(key: &'a str, value: &'a RawValue) -> Chunk<'a> {
    Chunk { r#type: "chunk", key, value, headers: json!({ "operation": "insert" }) }
}

/// The job as it is now.
fn upsert(status: &JobStatus) -> Value {
    let JobStatus { id: job_id, state, percent, message, result, error, attempt, .. } = status;
    let value = json!({
        "state": state, "percent": percent, "message": message, "result": result, "error": error, "attempt": attempt,
    });
    json!({ "type": "job", "key": job_id, "value": value, "headers": { "operation": "upsert" } })
}
