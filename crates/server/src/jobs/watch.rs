//! Tells those who follow a job when it has changed or ended.
//!
//! Jobs cost nothing for it: one loop asks the database about all jobs that are followed in one query. It asks soon
//! after a change and less often the longer nothing happens. Calls of this server that change a job have it
//! ask at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_model::job::JobId;

use crate::limits;

/// The jobs that are followed.
#[derive(Clone)]
pub(crate) struct Watches(Arc<Inner>);

/// What the last look saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Changes with everything that the stream of a job shows; empty before the first look.
    mark: String,
    /// Whether the job has ended or is gone.
    pub(crate) ended: bool,
}

struct Inner {
    database: Database,
    watched: Mutex<HashMap<JobId, Watched>>,
    /// The loop looks at `watched` again.
    changed: Notify,
}

struct Watched {
    /// The last change, or when somebody began to follow it.
    since: Instant,
    next_look: Instant,
    seen: watch::Sender<Seen>,
}

impl Watches {
    /// Looks until `shutdown`.
    pub(crate) fn start(database: Database, shutdown: CancellationToken) -> Watches {
        let inner = Arc::new(Inner { database, watched: Mutex::default(), changed: Notify::new() });
        let looking = inner.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled_owned(looking.run()).await });
        Watches(inner)
    }

    /// Follows a job: changes with it. Looks at it at once.
    pub(crate) fn follow(&self, job_id: JobId) -> watch::Receiver<Seen> {
        let now = Instant::now();
        let seen = {
            let mut watched = self.0.watched();
            let entry = watched.entry(job_id).or_insert_with(|| Watched {
                since: now,
                next_look: now,
                seen: watch::Sender::default(),
            });
            // Somebody new may wait for something that ends soon.
            entry.since = now;
            entry.next_look = now;
            entry.seen.subscribe()
        };
        self.0.changed.notify_one();
        seen
    }

    /// Waits until the job has ended.
    pub(crate) async fn ended(&self, job_id: JobId) {
        // An error means that the entry is gone, and then it has ended.
        let _ = self.follow(job_id).wait_for(|seen| seen.ended).await;
    }

    /// These may have changed: looks at those that are followed.
    pub(crate) fn look_at(&self, job_ids: impl IntoIterator<Item = JobId>) {
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
        let marks = match self.database.job_watch(&due).await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::debug!(%error, "cannot look at the jobs that are followed; looking again");
                return;
            }
        };
        let now = Instant::now();
        let mut watched = self.watched();
        for look in marks {
            let Some(entry) = watched.get_mut(&look.job_id) else { continue };
            let seen = Seen { mark: look.mark, ended: look.ended };
            if entry.seen.send_if_modified(|last| std::mem::replace(last, seen.clone()) != seen) {
                entry.since = now;
                entry.next_look = now + limits::JOB_LOOK_MIN;
            }
            if look.ended {
                watched.remove(&look.job_id);
            }
        }
    }

    /// The jobs to ask about now; each gets the time of its next look. Those that nobody follows any more go.
    fn take_due(&self) -> Vec<JobId> {
        let now = Instant::now();
        let mut due = vec![];
        self.watched().retain(|job_id, entry| {
            if entry.seen.is_closed() {
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

/// A quarter of the time since the last change, within bounds: what takes long is asked about less often.
fn pause(waited: Duration) -> Duration {
    (waited / 4).clamp(limits::JOB_LOOK_MIN, limits::JOB_LOOK_MAX)
}
