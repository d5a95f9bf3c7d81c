//! The client: a pool of connections, and what a program asks about its jobs.

use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_db::job_stream::JobStatus;
use towpath_db::migrate::Mode;
use towpath_db::{Attribution, Database};
use towpath_model::job::JobId;
use towpath_model::job_state::JobState;
use towpath_model::payload::PayloadRef;

use crate::{Emit, Enqueue, Error, Job, Worker, WorkerBuilder};

/// Between two looks of `wait`, at first and at most: soon for short jobs, rarely for long ones.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The defaults of a worker, the same in every language.
const CONCURRENCY: usize = 32;
const LEASE: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(30);

/// A connected database. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = towpath::Client::connect("postgresql://app@localhost/app").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    database: Database,
}

/// What a [`Client`] connects to: a URL, or a pool of deadpool-postgres that the program has already.
///
/// ```no_run
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), towpath::Error> {
/// let client = towpath::Client::connect(pool).await?;
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub enum Source {
    /// `postgresql://user:password@host:5432/database`, with the options of psql for TLS.
    Url(String),
    /// A pool. Workers on it poll, ten times a second at most: notifications need a connection outside of the pool.
    Pool(Pool),
}

impl From<&str> for Source {
    fn from(url: &str) -> Source {
        Source::Url(url.to_owned())
    }
}

impl From<String> for Source {
    fn from(url: String) -> Source {
        Source::Url(url)
    }
}

impl From<Pool> for Source {
    fn from(pool: Pool) -> Source {
        Source::Pool(pool)
    }
}

impl Client {
    /// Connects to a URL, or uses a pool.
    pub async fn connect(to: impl Into<Source>) -> Result<Client, Error> {
        let database = match to.into() {
            Source::Url(url) => Database::connect(&url).await?,
            Source::Pool(pool) => Database::from_pool(pool).await?,
        };
        Ok(Client { database })
    }

    /// Installs Towpath's schema, or brings it up to date: for tests and small programs. In production run
    /// `towpath migrate` with a login of its own. Gates stay as they are, closed at first; see `towpath gate open`.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.database.migrate(Mode::Apply).await?;
        Ok(())
    }

    /// Enqueues a job in a transaction of its own. See [`crate::enqueue`] for one of yours.
    pub fn enqueue<J: Job>(&self, job: &J) -> Enqueue<'_, &Database> {
        crate::enqueue(&self.database, job)
    }

    /// Emits an event in a transaction of its own. See [`crate::emit`] for one of yours.
    pub fn emit(&self, domain: &str, r#type: &str, payload: &impl Serialize) -> Emit<'_, &Database> {
        crate::emit(&self.database, domain, r#type, payload)
    }

    /// Where a job stands. `NotFound` once retention has dropped it. Needs the role `towpath_observer`.
    ///
    /// ```no_run
    /// # async fn example(client: towpath::Client, id: towpath::JobId) -> Result<(), towpath::Error> {
    /// let job = client.job(id).await?;
    /// println!("{} {}%", job.state, job.percent.unwrap_or(0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn job(&self, id: JobId) -> Result<JobStatus, Error> {
        Ok(self.database.job_status(id).await?)
    }

    /// What the handler of a job returned, read from the payload store if it is larger than 64 KiB. `NotFound` if the job
    /// has no result. Needs the role `towpath_observer`.
    ///
    /// ```no_run
    /// # async fn example(client: towpath::Client, id: towpath::JobId) -> Result<(), towpath::Error> {
    /// let widths: Vec<u32> = client.result(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn result<T: DeserializeOwned>(&self, id: JobId) -> Result<T, Error> {
        let none = || towpath_db::Error::NotFound(format!("job {id} has no result"));
        let result = self.job(id).await?.result.ok_or_else(none)?;
        let read = match PayloadRef::of_result(&result) {
            None => serde_json::from_value(result),
            Some(_) => self.database.job_result_payload(id).await?.json(),
        };
        Ok(read.map_err(|error| towpath_db::Error::Unreadable(format!("the result of job {id}: {error}")))?)
    }

    /// Waits until a job has ended, or for this long: the answer says which.
    ///
    /// ```no_run
    /// # async fn example(client: towpath::Client, id: towpath::JobId) -> Result<(), towpath::Error> {
    /// let job = client.wait(id, std::time::Duration::from_secs(30)).await?;
    /// match job.state.ended() {
    ///     true => println!("{}: {:?}", job.state, job.result),
    ///     false => println!("still {}", job.state),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait(&self, id: JobId, timeout: Duration) -> Result<JobStatus, Error> {
        let until = Instant::now() + timeout;
        let (mut pause, slowest) = LOOK_EVERY;
        loop {
            let job = self.job(id).await?;
            let left = until.saturating_duration_since(Instant::now());
            if job.state.ended() || left.is_zero() {
                return Ok(job);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(slowest);
        }
    }

    /// Cancels a job that has not ended. A handler that runs it learns of it from [`crate::Context::lost`]. Needs the
    /// role `workflow_admin`.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<JobState, Error> {
        let actor = self.database.login().await?;
        Ok(self.database.job_cancel(id, Attribution { actor: &actor, reason }).await?.state)
    }

    /// A token for a page in a browser that follows this one job: it may read the job and its stream, and cancel it.
    /// Give it to the page together with the id; a server of this database, `towpath up`, answers
    /// `GET /api/v1/jobs/{id}` with it. At most a week. Needs the role `towpath_producer` and the right to enqueue
    /// such a job.
    ///
    /// ```no_run
    /// # async fn example(client: towpath::Client, id: towpath::JobId) -> Result<(), towpath::Error> {
    /// let token = client.job_token(id, std::time::Duration::from_secs(3_600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn job_token(&self, id: JobId, lifetime: Duration) -> Result<String, Error> {
        Ok(self.database.job_token(id, lifetime).await?)
    }

    /// A worker in the making that claims jobs as this executor: a name of yours, the same for all processes that do the
    /// same work. It registers its executor and the kinds it has handlers for by itself.
    ///
    /// Defaults: 32 jobs at once, a lease of 60 s, which is renewed, and 30 s to finish after a stop.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, towpath::Job)]
    /// # #[job(kind = "resize")]
    /// # struct Resize { image: i64 }
    /// # async fn example(client: towpath::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = client
    ///     .worker("images")
    ///     .concurrency(8)
    ///     .handle(|job: Resize, _ctx| async move {
    ///         println!("image {}", job.image);
    ///         Ok(())
    ///     })
    ///     .build()?;
    /// worker.run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker(&self, executor: impl Into<String>) -> WorkerBuilder {
        let builder = Worker::builder(self.database.clone(), executor)
            .register()
            .concurrency(CONCURRENCY)
            .lease(LEASE)
            .drain(DRAIN);
        if self.database.can_listen() { builder } else { builder.poll_only() }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
