//! How a worker is put together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_db::Database;
use towpath_db::job::LeaseOwner;
use towpath_trace::Tracer;

use crate::handler::{Context, Handler, Job, Output, Result, erase};
use crate::limits;
use crate::middleware::{Middleware, Next};
use crate::pool::Pool;
use crate::worker::{Kind, Shared, Worker};

/// A worker in the making. Every knob has a default that is also the fast setting.
pub struct Builder {
    database: Database,
    executor: String,
    executor_kind: Option<String>,
    name: Option<String>,
    concurrency: usize,
    lease: Duration,
    drain: Duration,
    listen: bool,
    registers: bool,
    tracer: Tracer,
    middleware: Vec<Middleware>,
    kinds: HashMap<String, (Handler, Options)>,
    twice: Option<String>,
}

/// How jobs of one kind are run: for `handle_with`.
///
/// ```
/// # use towpath_worker::Options as HandlerOptions;
/// use std::time::Duration;
///
/// let options = HandlerOptions::default()
///     .concurrency(4)
///     .timeout(Duration::from_secs(300))
///     .retry_delays([Duration::from_secs(1), Duration::from_secs(60)]);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    concurrency: Option<usize>,
    timeout: Duration,
    retry: Retry,
}

#[derive(Debug, Clone)]
pub(crate) enum Retry {
    Database,
    Delays(Vec<Duration>),
}

/// Why a worker cannot be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is nothing it could run.
    #[error("the worker has no handlers; add one with Builder::handle")]
    NoHandlers,
    /// Two handlers for one kind: only one of them could ever run.
    #[error("kind {0} has two handlers; remove one")]
    HandledTwice(String),
    /// A number that makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
}

impl Default for Options {
    fn default() -> Options {
        Options { concurrency: None, timeout: limits::TIMEOUT_DEFAULT, retry: Retry::Database }
    }
}

impl Options {
    /// At most so many of this kind at once in this process. Without it, the kind shares
    /// the worker's own number. For all processes together, see `max_parallel` (R06).
    pub fn concurrency(mut self, jobs: usize) -> Options {
        self.concurrency = Some(jobs);
        self
    }

    /// An attempt that takes longer is cancelled and has failed; an hour if not said.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = timeout;
        self
    }

    /// The delays after the first, second, … failed attempt; the last one repeats. Without
    /// it the database's backoff decides (Q10). How many attempts there are is the job's own.
    pub fn retry_delays(mut self, delays: impl Into<Vec<Duration>>) -> Options {
        self.retry = Retry::Delays(delays.into());
        self
    }
}

impl Worker {
    /// A worker that claims as this executor, within its subscriptions.
    pub fn builder(database: Database, executor: impl Into<String>) -> Builder {
        Builder {
            database,
            executor: executor.into(),
            executor_kind: None,
            name: None,
            concurrency: limits::CONCURRENCY_DEFAULT,
            lease: limits::LEASE_DEFAULT,
            drain: limits::DRAIN_DEFAULT,
            listen: true,
            registers: false,
            tracer: Tracer::default(),
            middleware: vec![],
            kinds: HashMap::new(),
            twice: None,
        }
    }
}

impl Builder {
    /// Runs jobs of a typed kind.
    pub fn handle<J, F, R, T>(self, handler: F) -> Builder
    where
        J: Job,
        F: Fn(J, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        self.handle_with(Options::default(), handler)
    }

    /// Runs jobs of a typed kind, with options.
    pub fn handle_with<J, F, R, T>(self, options: Options, handler: F) -> Builder
    where
        J: Job,
        F: Fn(J, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        self.handle_kind(J::KIND, options, handler)
    }

    /// Runs jobs of a kind that is only known now.
    pub fn handle_kind<P, F, R, T>(mut self, kind: impl Into<String>, options: Options, handler: F) -> Builder
    where
        P: DeserializeOwned + Send + 'static,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        let kind = kind.into();
        if self.kinds.insert(kind.clone(), (erase(handler), options)).is_some() {
            self.twice = Some(kind);
        }
        self
    }

    /// At most so many jobs at once, over all kinds without a number of their own; 64 if not said.
    pub fn concurrency(mut self, jobs: usize) -> Builder {
        self.concurrency = jobs;
        self
    }

    /// How long a lease lasts without being renewed; 15 s if not said. After a crash this
    /// is how long jobs wait to run elsewhere.
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.lease = lease;
        self
    }

    /// How long running jobs may go on after a stop before they are asked to end; 20 s if not said.
    pub fn drain(mut self, drain: Duration) -> Builder {
        self.drain = drain;
        self
    }

    /// Never listens, only polls: for connections through a transaction pooler.
    pub fn poll_only(mut self) -> Builder {
        self.listen = false;
        self
    }

    /// The name of this process in heartbeats; `executor@host-pid` if not said, so that two
    /// processes of one executor on one machine have a row each.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Registers the executor and subscribes it to the kinds it runs when the worker starts, as far as the login may:
    /// it needs the role `workflow_admin`. What an administrator has set stays.
    pub fn register(mut self) -> Builder {
        self.registers = true;
        self
    }

    /// A function around every handler; the first one added is the outermost.
    ///
    /// ```no_run
    /// # use towpath_worker as towpath;
    /// # fn example(builder: towpath::Builder) -> towpath::Builder {
    /// builder.middleware(|ctx, next| async move {
    ///     let began = std::time::Instant::now();
    ///     let result = next.run().await;
    ///     println!("{} took {:?}", ctx.kind(), began.elapsed());
    ///     result
    /// })
    /// # }
    /// ```
    pub fn middleware<F, R>(mut self, middleware: F) -> Builder
    where
        F: Fn(Context, Next) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Output>> + Send + 'static,
    {
        self.middleware.push(Arc::new(move |context, next| Box::pin(middleware(context, next))));
        self
    }

    /// Makes a span of every attempt, below the span that wanted the job.
    pub fn tracer(mut self, tracer: Tracer) -> Builder {
        self.tracer = tracer;
        self
    }

    /// The whitelisted kind of executor this is; the one it is registered as if not said.
    pub fn executor_kind(mut self, kind: impl Into<String>) -> Builder {
        self.executor_kind = Some(kind.into());
        self
    }

    /// The worker, if it makes sense.
    pub fn build(self) -> std::result::Result<Worker, Error> {
        self.check()?;
        let name =
            self.name.unwrap_or_else(|| format!("{}@{}-{}", self.executor, host(), std::process::id()));
        // Unique per start: an owner that comes back must not pass for its predecessor.
        let owner = LeaseOwner::new(format!("{name}#{}", uuid::Uuid::now_v7().simple()));
        let mut shared_kinds: Vec<String> = vec![];
        let mut pools = vec![];
        for (kind, (_, options)) in &self.kinds {
            match options.concurrency {
                Some(concurrency) => pools.push(Pool::new(vec![kind.clone()], concurrency)),
                None => shared_kinds.push(kind.clone()),
            }
        }
        if !shared_kinds.is_empty() {
            shared_kinds.sort();
            pools.push(Pool::new(shared_kinds, self.concurrency));
        }
        pools.sort_by(|one, other| one.kinds.cmp(&other.kinds));
        let kinds = self.kinds.into_iter().map(|(kind, (handler, options))| {
            let label = kind.as_str().into();
            (kind, Kind { label, handler, timeout: options.timeout, retry: options.retry })
        });
        let shared = Shared::new(self.database, pools, kinds.collect(), self.middleware, owner, self.tracer);
        let mut worker = Worker {
            shared: Arc::new(shared),
            executor: self.executor,
            executor_kind: self.executor_kind,
            name,
            lease: self.lease,
            drain: self.drain,
            listen: self.listen,
            registers: self.registers,
        };
        worker.lease = worker.lease.max(Duration::from_secs(1));
        Ok(worker)
    }

    fn check(&self) -> std::result::Result<(), Error> {
        if let Some(kind) = &self.twice {
            return Err(Error::HandledTwice(kind.clone()));
        }
        if self.kinds.is_empty() {
            return Err(Error::NoHandlers);
        }
        if self.concurrency == 0 || self.kinds.values().any(|(_, options)| options.concurrency == Some(0)) {
            return Err(Error::Invalid("concurrency must be 1 or more"));
        }
        if self.kinds.values().any(|(_, options)| matches!(&options.retry, Retry::Delays(d) if d.is_empty()))
        {
            return Err(Error::Invalid("retry_delays must not be empty; omit it to use the default"));
        }
        Ok(())
    }
}

impl Retry {
    /// The delay after this failed attempt, if the policy names one.
    pub(crate) fn delay(&self, attempt: i32) -> Option<Duration> {
        match self {
            Retry::Database => None,
            Retry::Delays(delays) => {
                let index = usize::try_from(attempt - 1).unwrap_or(0);
                delays.get(index).or(delays.last()).copied()
            }
        }
    }
}

fn host() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}
