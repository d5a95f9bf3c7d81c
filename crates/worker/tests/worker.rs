//! A worker on a queue, and a typed job for it.

use serde::{Deserialize, Serialize};
use towpath_db::job::NewJob;
use towpath_testkit::background::Background;
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_worker::{Builder, Job, Maintenance, Worker};

/// A typed job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) to_ref: String,
}

impl Job for Mail {
    const KIND: &'static str = "mail";
}

pub(crate) fn mail(to: &str) -> NewJob {
    NewJob::new(Mail::KIND).payload(&Mail { to_ref: to.to_owned() }).unwrap()
}

/// A worker to be built, under the worker's own login.
pub(crate) fn builder(queue: &Queue) -> Builder {
    Worker::builder(queue.worker.clone(), EXECUTOR)
}

/// A worker that runs until it is stopped.
pub(crate) fn start(worker: Worker) -> Background {
    Background::start(|shutdown| worker.run(shutdown))
}

/// Maintenance, under the maintainer's own login.
pub(crate) fn maintenance(queue: &Queue) -> Maintenance {
    Maintenance::new(queue.maintainer.clone())
}
