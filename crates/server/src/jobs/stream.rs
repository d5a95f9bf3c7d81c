//! The stream of a job, `/v1/jobs/stream/job/{job_id}`: its progress, what its handler appends, and its end.
//!
//! JSON messages of the State Protocol: `job` is the job as it is now, `chunk` what a handler appended. The stream is
//! created at the first progress, append or token. The attempt is the producer's epoch, so a worker that lost its
//! lease to another one is refused. The end of the job closes the stream; after a restart, the streams that are
//! still open are found in the store.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::executor_token_job::JobStatus;
use towpath_model::job::{Attempt, JobId};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{Refusal, Shape};
use towpath_model::token::{Invalid, Material};
use towpath_streams::{Append, Create, Error as StoreError, List, Messages, Retention, Store};

use super::ending::Endings;
use crate::limits;
use crate::project::{Change, ChangeError, JOBS_PROJECT, Mint, NewKey, Origins, Projects, random_secret};

/// The prefix of the streams' ids.
const PREFIX: &str = "job/";
/// The id of the producer, whose epochs are attempts.
const PRODUCER: &str = "job";
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
    endings: Endings,
    streams_max: usize,
    /// Jobs whose stream is open and will be closed by a task.
    open: Mutex<HashSet<JobId>>,
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
}

impl JobStreams {
    /// Closes the streams whose job has ended, from now on and of earlier runs.
    pub(crate) fn start(
        (store, projects, streams_max): (Arc<dyn Store>, Projects, usize),
        database: Database,
        endings: Endings,
        shutdown: CancellationToken,
    ) -> JobStreams {
        let streams = JobStreams(Arc::new(Inner {
            store,
            projects,
            database,
            endings,
            streams_max,
            open: Mutex::default(),
            appending: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            shutdown,
        }));
        let finding = streams.clone();
        tokio::spawn(async move { finding.find_open().await });
        streams
    }

    /// The job that a token is for, if it is for one.
    pub(crate) fn job_of(&self, token: &str) -> Result<Option<JobId>, Invalid> {
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
        self.ensure(job_id, None::<&Value>).await?;
        let _one_at_a_time = self.appending(job_id).await;
        let producer = self.next(job_id, attempt)?;
        let key = format!("{attempt}.{}", producer.seq);
        let message =
            Chunk { r#type: "chunk", key: &key, value: data, headers: json!({ "operation": "insert" }) };
        self.append(job_id, &message, Some(producer)).await?;
        Ok(key)
    }

    /// Appends the job as it is now.
    pub(crate) async fn state(&self, attempt: Attempt, status: &JobStatus) -> Result<(), Error> {
        self.ensure(status.job_id, None::<&Value>).await?;
        let _one_at_a_time = self.appending(status.job_id).await;
        let producer = self.next(status.job_id, attempt)?;
        self.append(status.job_id, &upsert(status), Some(producer)).await
    }

    /// Creates the stream with the job as it is now, if it does not exist. Answers its path.
    pub(crate) async fn open(&self, status: &JobStatus) -> Result<String, Error> {
        self.ensure(status.job_id, Some(&upsert(status))).await?;
        Ok(name(status.job_id).path())
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

    /// Registers the project, so that its streams need a token. Pages of any origin may use one: a browser sends it
    /// only if the page has it.
    async fn register(&self) -> Result<(), Error> {
        if self.0.projects.get(JOBS_PROJECT).is_some() {
            return Ok(());
        }
        let material = Material::hs256(random_secret()).expect("32 random bytes are a key");
        let key = NewKey { kid: JOBS_PROJECT.to_owned(), material };
        match self.0.projects.change(JOBS_PROJECT, Change::Add { key, origins: vec!["*".to_owned()] }).await {
            Ok(_) | Err(ChangeError::Exists(_)) => Ok(()),
            Err(error) => Err(Error::Registry(error)),
        }
    }

    /// Creates the stream unless it exists, with a first message if there is one.
    async fn ensure(&self, job_id: JobId, first: Option<&impl Serialize>) -> Result<(), Error> {
        let name = name(job_id);
        if self.0.store.head(&name).is_ok() {
            return Ok(());
        }
        self.register().await?;
        if self.0.store.count(JOBS_PROJECT) >= self.0.streams_max {
            return Err(Error::Full(self.0.streams_max));
        }
        let shape = Shape {
            content_type: Some(content_type()),
            expiry: Some(Expiry::Sliding { seconds: limits::JOB_STREAM_SECONDS }),
            closed: false,
            fork: None,
        };
        let messages = first.map(messages).unwrap_or_default();
        let create = Create { shape, messages, retention: Retention::default() };
        self.0.store.create(name, create).await.map_err(Error::Store)?;
        self.close_at_end(job_id);
        Ok(())
    }

    /// The next number of an attempt; refused if a later attempt has written.
    fn next(&self, job_id: JobId, attempt: Attempt) -> Result<Producer, Error> {
        let producers = self.0.store.producers(&name(job_id), 1).map_err(Error::Store)?;
        let epoch = u64::try_from(attempt.number()).unwrap_or(0);
        let seq = match producers.first() {
            Some((_, last)) if last.epoch > epoch => return Err(Error::LeaseLost),
            Some((_, last)) if last.epoch == epoch => last.seq + 1,
            _ => 0,
        };
        Ok(Producer { id: PRODUCER.into(), epoch, seq })
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

    /// Has the stream closed when its job has ended.
    fn close_at_end(&self, job_id: JobId) {
        if !self.lock_open().insert(job_id) {
            return;
        }
        let streams = self.clone();
        tokio::spawn(async move {
            let closing = async {
                streams.0.endings.ended(job_id).await;
                while let Err(error) = streams.close(job_id).await {
                    tracing::warn!(%job_id, ?error, "cannot close the stream of a job; trying again");
                    tokio::time::sleep(limits::JOB_LOOK_MAX).await;
                }
            };
            streams.0.shutdown.run_until_cancelled(closing).await;
            streams.lock_open().remove(&job_id);
        });
    }

    /// The last message and the end, in one commit. A stream that is closed or gone needs neither.
    async fn close(&self, job_id: JobId) -> Result<(), Error> {
        let end = match self.0.database.job_status(job_id).await {
            Ok(status) => upsert(&status),
            Err(towpath_db::Error::NotFound(_)) => {
                json!({ "type": "job", "key": job_id, "headers": { "operation": "delete" } })
            }
            Err(error) => return Err(Error::Store(StoreError::TooLarge(error.to_string()))),
        };
        match self.append(job_id, &end, None).await {
            Err(Error::Closed | Error::Store(StoreError::NotFound(_) | StoreError::Deleted(_))) => Ok(()),
            done => done,
        }
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
                    self.close_at_end(job_id);
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == limits::LIST_MAX => after = Some(name.id.to_string()),
                _ => return,
            }
        }
    }

    fn lock_open(&self) -> MutexGuard<'_, HashSet<JobId>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(job_id: JobId) -> StreamName {
    StreamName::new(JOBS_PROJECT, &format!("{PREFIX}{job_id}")).expect("a uuid is a stream's id")
}

fn content_type() -> ContentType {
    ContentType::parse("application/json").expect("it is a media type")
}

fn messages(value: &impl Serialize) -> Messages {
    let text = serde_json::to_vec(value).expect("our own types serialise");
    let run = towpath_model::stream::json::flatten(&text).expect("one JSON object is one message");
    Messages { data: run.data.into(), ends: run.ends }
}

/// The job as it is now.
fn upsert(status: &JobStatus) -> Value {
    let JobStatus { job_id, state, percent, message, result, error, attempt, .. } = status;
    let value = json!({
        "state": state, "percent": percent, "message": message, "result": result, "error": error, "attempt": attempt,
    });
    json!({ "type": "job", "key": job_id, "value": value, "headers": { "operation": "upsert" } })
}
