//! The worker: what its parts share, one job from begin to end, and the life of the whole.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_db::Database;
use towpath_db::job::LeaseOwner;
use towpath_model::mask::masked;
use towpath_model::metrics::Register;
use towpath_trace::{Side, Span, Tracer};

use crate::attempt::Calls;
use crate::builder::Retry;
use crate::finish::{Finished, Finisher};
use crate::handler::{Context, Failure, Follow, Handler, Output, Result};
use crate::held::Held;
use crate::middleware::{Middleware, Next as Around};
use crate::numbers::{Numbers, outcome};
use crate::pool::{Next, Pool, Work};
use crate::testing::Ran;
use crate::{drain, fetch, limits, renewer};

/// Runs jobs of the kinds it has handlers for. See [`Worker::builder`].
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: String,
    pub(crate) executor_kind: Option<String>,
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) drain: Duration,
    pub(crate) listen: bool,
    pub(crate) registers: bool,
}

/// How jobs of one kind are run.
pub(crate) struct Kind {
    pub(crate) label: Arc<str>,
    pub(crate) handler: Handler,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
}

/// What the tasks of one worker share.
pub(crate) struct Shared {
    /// Behind its own pointer, because every handler gets it.
    pub(crate) database: Arc<Database>,
    pub(crate) owner: LeaseOwner,
    /// The calls about processes, which handlers make together.
    pub(crate) calls: Arc<Calls>,
    pub(crate) pools: Vec<Pool>,
    kinds: HashMap<String, Kind>,
    /// The outermost first.
    middleware: Vec<Middleware>,
    pub(crate) held: Held,
    pub(crate) finisher: Finisher,
    pub(crate) numbers: Numbers,
    pub(crate) tracer: Tracer,
    pub(crate) slots: TaskTracker,
    /// A pool has room for more jobs.
    pub(crate) has_room: Notify,
    /// Whether the last renewal and heartbeat went through. While not, nothing is claimed:
    /// a worker that cannot keep a lease should not take one.
    pub(crate) keeps_leases: AtomicBool,
    /// Ends handlers that did not end when asked.
    pub(crate) abort: CancellationToken,
}

impl Worker {
    /// Works until `shutdown`, then drains: claims nothing more, gives back what has not
    /// begun, lets running jobs finish, and records every result.
    pub async fn run(self, shutdown: CancellationToken) {
        tracing::info!(
            executor = self.executor,
            owner = %self.shared.owner,
            kinds = self.shared.kinds.len(),
            "worker started"
        );
        if !self.until_registered(&shutdown).await {
            return;
        }
        let helpers = CancellationToken::new();
        let finisher = tokio::spawn(self.shared.clone().record(helpers.clone()));
        let renewer = tokio::spawn(renewer::run(renewer::Renewer::of(&self), helpers.clone()));
        fetch::run(&self, &shutdown).await;
        drain::run(&self.shared, self.drain).await;
        helpers.cancel();
        for mut helper in [finisher, renewer] {
            match tokio::time::timeout(limits::LAST_FLUSH_WAIT_MAX, &mut helper).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("a worker task panicked: {error}"),
                // It waits for a database that does not answer.
                Err(_) => helper.abort(),
            }
        }
        let last_word = self.shared.database.heartbeat_end(&self.name, &self.shared.owner);
        if let Ok(Err(error)) = tokio::time::timeout(limits::LAST_FLUSH_WAIT_MAX, last_word).await
            && !matches!(error, towpath_db::Error::GateClosed { .. })
        {
            tracing::warn!("cannot remove the heartbeat; it will become stale: {error}");
        }
        tracing::info!(owner = %self.shared.owner, "worker stopped");
    }

    /// Works until SIGTERM or SIGINT, then drains as [`Worker::run`] does. A second signal ends it at once.
    pub async fn run_until_signal(self) -> std::io::Result<()> {
        let mut signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = CancellationToken::new();
        let mut running = std::pin::pin!(self.run(shutdown.clone()));
        loop {
            tokio::select! {
                () = &mut running => return Ok(()),
                _ = signals.0.recv() => {}
                _ = signals.1.recv() => {}
            }
            if shutdown.is_cancelled() {
                tracing::warn!("second signal: stopping now; the leases of running jobs will expire");
                return Ok(());
            }
            shutdown.cancel();
        }
    }

    /// Claims once, runs what it got to the end, records it, and answers what ran. Does not renew leases, so it is for
    /// tests and for short jobs.
    pub async fn run_once(&self) -> std::result::Result<Vec<Ran>, towpath_db::Error> {
        self.register_executor().await?;
        let mut kinds = HashMap::new();
        for pool in &self.shared.pools {
            let claimed = fetch::claim(self, pool, pool.wants().max(1)).await?;
            kinds.extend(claimed.iter().map(|work| (work.held.key.0, work.about.clone())));
            self.shared.begin(pool, claimed);
        }
        let mut ran = vec![];
        while self.shared.held.len() > 0 {
            let finished = self.shared.finished(Instant::now() + limits::LAST_FLUSH_WAIT_MAX).await;
            ran.extend(finished.iter().map(|one| one.ran(kinds[&one.lease.job_id()].kind())));
            self.shared.record_all(finished).await?;
        }
        Ok(ran)
    }

    /// The name under which it holds leases.
    pub fn owner(&self) -> &LeaseOwner {
        &self.shared.owner
    }

    /// Adds what it counts to a registry, for `/metrics`.
    pub fn register(&self, registry: &mut Register<'_>) {
        self.shared.numbers.register(registry);
    }

    /// The kinds it runs, by name.
    pub fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.shared.kinds.keys().cloned().collect();
        kinds.sort();
        kinds
    }
}

impl Shared {
    pub(crate) fn new(
        database: Database,
        pools: Vec<Pool>,
        kinds: HashMap<String, Kind>,
        middleware: Vec<Middleware>,
        owner: LeaseOwner,
        tracer: Tracer,
    ) -> Shared {
        let database = Arc::new(database);
        Shared {
            calls: Arc::new(Calls::new(&database, &owner.to_string())),
            database,
            owner,
            pools,
            kinds,
            middleware,
            held: Held::default(),
            finisher: Finisher::default(),
            numbers: Numbers::default(),
            tracer,
            slots: TaskTracker::new(),
            has_room: Notify::new(),
            keeps_leases: AtomicBool::new(true),
            abort: CancellationToken::new(),
        }
    }

    /// Hands claimed jobs to a pool's slots.
    pub(crate) fn begin(self: &Arc<Self>, pool: &Pool, jobs: Vec<Work>) {
        let index = self.pools.iter().position(|other| std::ptr::eq(other, pool)).expect("a pool of ours");
        self.finisher.expect(jobs.len());
        for _ in 0..pool.put(jobs) {
            self.slots.spawn(self.clone().slot(index));
        }
    }

    /// Runs jobs of one pool, one after the other, until none waits.
    async fn slot(self: Arc<Self>, pool: usize) {
        let pool = &self.pools[pool];
        let mut last = None;
        for turn in 1_u32.. {
            let (next, has_room) = pool.take(last);
            if has_room {
                self.has_room.notify_one();
            }
            let Next::Work(work) = next else { return };
            let began = Instant::now();
            self.run_one(work, began).await;
            last = Some(began.elapsed());
            if turn % limits::SLOT_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn run_one(&self, work: Work, began: Instant) {
        let Work { held, payload, about, .. } = work;
        if held.lost.is_cancelled() {
            // Lost while it waited: another worker has it.
            drop(held.take_lease());
            self.finisher.expect_less(1);
            return;
        }
        held.begin(began);
        let kind = self.kinds.get(about.kind()).expect("only kinds with a handler are claimed");
        let parent = about.traceparent();
        let mut span = self.tracer.span(Side::Consumer, parent, || format!("run {}", kind.label));
        about.describe(&mut span);
        let context = Context {
            about,
            held: held.clone(),
            database: self.database.clone(),
            owner: self.owner.clone(),
            calls: self.calls.clone(),
            trace: span.traceparent().or(parent),
        };
        self.numbers.began(&kind.label);
        let result = self.run_handler(kind, payload, context).await;
        self.numbers.ended(&kind.label, &result, began.elapsed());
        end(span, &result);
        // Ended or given up on: either way the handler's helpers should stop.
        held.lost.cancel();
        match held.take_lease() {
            Some(lease) => {
                let retry_after = kind.retry.delay(lease.attempt().number());
                let interrupted = held.interrupted.load(Ordering::Relaxed);
                let result =
                    result.map_err(|failure| failure.or_retry_after(retry_after).unless(interrupted));
                self.finisher.push(Finished { lease, result, acked: held.is_acked() });
            }
            // A drain gave the job back while the handler was ending.
            None => self.finisher.expect_less(1),
        }
    }

    async fn run_handler(
        &self,
        kind: &Kind,
        payload: Box<serde_json::value::RawValue>,
        context: Context,
    ) -> Result<Output> {
        let running = async {
            if self.middleware.is_empty() {
                return (kind.handler)(payload, context).await;
            }
            let inner = self.middleware.clone().into_iter();
            Around { context, payload, handler: kind.handler.clone(), inner }.run().await
        };
        let caught = AssertUnwindSafe(running).catch_unwind();
        // The handler is polled first: one that is ready at once never costs a timer.
        tokio::select! {
            biased;
            ended = tokio::time::timeout(kind.timeout, caught) => match ended {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => Err(Failure::retry(format!("the handler panicked: {}", in_words(&*panic)))),
                Err(_) => Err(Failure::retry(format!("the handler timed out after {:?}", kind.timeout))),
            },
            () = self.abort.cancelled() => Err(Failure::snooze(Duration::ZERO)),
        }
    }

    /// Whether claiming is allowed right now.
    pub(crate) fn may_claim(&self) -> bool {
        self.keeps_leases.load(Ordering::Relaxed)
    }
}

/// Says how an attempt went, and ends its span.
fn end(mut span: Span, result: &Result<Output>) {
    if !span.is_on() {
        return;
    }
    span.set("towpath.job.outcome", outcome(result));
    if let Err(failure) = result {
        span.fail(|| masked(&failure.error).into_owned());
    }
}

impl Failure {
    /// The kind's own delay, if the handler named none.
    fn or_retry_after(mut self, delay: Option<Duration>) -> Failure {
        if self.follow == Follow::Retry(None) {
            self.follow = Follow::Retry(delay);
        }
        self
    }

    /// A handler that failed because the worker stops gets its attempt back.
    fn unless(mut self, interrupted: bool) -> Failure {
        if interrupted && self.follow != Follow::Permanent {
            self.follow = Follow::Snooze(Duration::ZERO);
        }
        self
    }
}

fn in_words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
