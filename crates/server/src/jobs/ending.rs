//! Tells calls that wait for the end of a job when it has ended.
//!
//! Ending a job costs nothing more for it: one loop asks the database for all jobs that are waited for in one
//! query. It asks soon at first and less often the longer it waits. Calls of this server that end a job
//! have it ask at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_model::job::JobId;

use crate::limits;

/// The jobs that are waited for.
#[derive(Clone)]
pub(crate) struct Endings(Arc<Inner>);

struct Inner {
    database: Database,
    watched: Mutex<HashMap<JobId, Watched>>,
    /// The loop looks at `watched` again.
    changed: Notify,
}

struct Watched {
    since: Instant,
    next_look: Instant,
    ended: watch::Sender<bool>,
}

impl Endings {
    /// Watches until `shutdown`.
    pub(crate) fn start(database: Database, shutdown: CancellationToken) -> Endings {
        let inner = Arc::new(Inner { database, watched: Mutex::default(), changed: Notify::new() });
        let looking = inner.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled_owned(looking.run()).await });
        Endings(inner)
    }

    /// Waits until the job has ended.
    pub(crate) async fn ended(&self, job_id: JobId) {
        let mut ended = {
            let now = Instant::now();
            let mut watched = self.0.watched();
            let entry = watched.entry(job_id).or_insert_with(|| Watched {
                since: now,
                next_look: now,
                ended: watch::Sender::new(false),
            });
            // Somebody new may wait for something that ends soon.
            entry.since = now;
            entry.next_look = now;
            entry.ended.subscribe()
        };
        self.0.changed.notify_one();
        // An error means that the entry is gone, and then it has ended.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// These may have ended: asks about those that are waited for.
    pub(crate) fn may_have_ended(&self, job_ids: impl IntoIterator<Item = JobId>) {
        let mut watched = self.0.watched();
        if watched.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut any = false;
        for job_id in job_ids {
            if let Some(entry) = watched.get_mut(&job_id) {
                entry.next_look = now;
                any = true;
            }
        }
        drop(watched);
        if any {
            self.0.changed.notify_one();
        }
    }
}

impl Inner {
    fn watched(&self) -> MutexGuard<'_, HashMap<JobId, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self) {
        loop {
            let next = self.watched().values().map(|entry| entry.next_look).min();
            let sleep = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => self.look().await,
                () = self.changed.notified() => {}
            }
        }
    }

    /// One query for everything that is due.
    async fn look(&self) {
        let due = self.take_due();
        if due.is_empty() {
            return;
        }
        let ended = match self.database.job_ended(&due).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::debug!(%error, "cannot see whether jobs have ended; looking again");
                return;
            }
        };
        let mut watched = self.watched();
        for job_id in ended {
            if let Some(entry) = watched.remove(&job_id) {
                entry.ended.send_replace(true);
            }
        }
    }

    /// The jobs to ask about now; each gets the time of its next look. Those that nobody waits for any more go.
    fn take_due(&self) -> Vec<JobId> {
        let now = Instant::now();
        let mut due = vec![];
        self.watched().retain(|job_id, entry| {
            if entry.ended.is_closed() {
                return false;
            }
            // A little ahead of time, so that one query serves many.
            if entry.next_look <= now + limits::JOB_LOOK_MIN / 2 && due.len() < limits::JOBS_PER_CALL_MAX {
                entry.next_look = now + pause(now - entry.since);
                due.push(*job_id);
            }
            true
        });
        due
    }
}

/// A quarter of the time waited so far, within bounds: what takes long is asked about less often.
fn pause(waited: Duration) -> Duration {
    (waited / 4).clamp(limits::JOB_LOOK_MIN, limits::JOB_LOOK_MAX)
}
