//! The route worker's loop: repeated passes over the slice that lags most.
//!
//! Any number of these run, here and on other nodes. The cursor's lock decides which one processes a slice, so none of
//! them owns anything.

use std::time::Instant;

use tokio_util::sync::CancellationToken;
use towpath_db::event::{self, RoutePass, Slice};
use towpath_db::retry::{Retry, jittered};
use towpath_db::{Database, Error};

use crate::numbers::Numbers;
use crate::wake::Wake;
use crate::{fail_point, limits};

pub(crate) struct RouteWorker<'a> {
    pub(crate) database: &'a Database,
    pub(crate) wake: &'a Wake,
    /// The route workers to run; none means all.
    pub(crate) only: Option<&'a [String]>,
    pub(crate) numbers: &'a Numbers,
}

/// The result of a round over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    Busy,
    More,
}

impl RouteWorker<'_> {
    pub(crate) async fn run(&self, shutdown: &CancellationToken) {
        let mut retry = Retry::of("routing events");
        let mut woken = self.wake.watch_events();
        let mut workers = Workers::default();
        while !shutdown.is_cancelled() {
            // Notifications from here on belong to the next round.
            woken.mark_unchanged();
            let wait = match self.round(&mut workers).await {
                Ok(found) => {
                    retry.succeeded();
                    match found {
                        Found::More => continue,
                        Found::Busy => jittered(limits::BUSY_WAIT),
                        Found::Nothing => jittered(limits::LOOK_EVERY),
                    }
                }
                Err(error) => {
                    workers.careful = true;
                    let wait = retry.failed(&error);
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                    continue;
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = woken.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn round(&self, workers: &mut Workers) -> Result<Found, Error> {
        workers.refresh(self.database, self.only).await?;
        let mut found = Found::Nothing;
        let mut failed = None;
        for worker in &workers.list {
            let slices: Vec<Option<Slice>> = match workers.careful {
                false => vec![None],
                // A failing slice must not block the others.
                true => {
                    (0..worker.slices).map(|slice| Some(Slice { slice, slices: worker.slices })).collect()
                }
            };
            for slice in slices {
                match self.pass(&worker.worker_name, slice).await {
                    Ok(pass) => found = found.max(look(&pass)),
                    Err(error) => failed = Some(error),
                }
            }
        }
        match failed {
            // The number of slices may have changed; read the list again.
            Some(error) => {
                workers.listed_at = None;
                Err(error)
            }
            None => {
                workers.careful = false;
                Ok(found)
            }
        }
    }

    async fn pass(&self, worker: &str, slice: Option<Slice>) -> Result<RoutePass, Error> {
        fail_point::hit("route.before");
        let pass = self.database.route_worker_run(worker, limits::BATCH, slice).await?;
        self.numbers.pass(&pass);
        if pass.events > 0 {
            fail_point::hit("route.after");
        }
        if pass.decisions.sent > 0 {
            self.wake.deliveries();
        }
        if pass.decisions.failed > 0 {
            tracing::warn!(
                worker,
                failed = pass.decisions.failed,
                "events could not be routed; see: towpath routes dlq list"
            );
        }
        Ok(pass)
    }
}

fn look(pass: &RoutePass) -> Found {
    match pass {
        RoutePass { more: true, .. } => Found::More,
        RoutePass { busy: true, .. } => Found::Busy,
        // Other slices may lag too.
        RoutePass { events, slices, .. } if *events > 0 && *slices > 1 => Found::More,
        _ => Found::Nothing,
    }
}

/// The registered workers, cached.
#[derive(Default)]
struct Workers {
    list: Vec<event::RouteWorker>,
    listed_at: Option<Instant>,
    /// After an error, slices are processed one by one until a round succeeds.
    careful: bool,
}

impl Workers {
    async fn refresh(&mut self, database: &Database, only: Option<&[String]>) -> Result<(), Error> {
        let fresh = |at: &Instant| at.elapsed() < limits::WORKERS_EVERY;
        if self.listed_at.as_ref().is_some_and(fresh) {
            return Ok(());
        }
        self.list = database.route_worker_list().await?.workers;
        if let Some(only) = only {
            self.list.retain(|worker| only.contains(&worker.worker_name));
            if let Some(missing) =
                only.iter().find(|name| !self.list.iter().any(|worker| worker.worker_name == **name))
            {
                return Err(Error::NotFound(format!("route worker {missing} is not registered")));
            }
        }
        self.listed_at = Some(Instant::now());
        Ok(())
    }
}
