//! For tests of programs that use this crate, on a real PostgreSQL.
//!
//! ```no_run
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Debug, Serialize, Deserialize, towpath::Job)]
//! # #[job(kind = "resize")]
//! # struct Resize { image: i64 }
//! # async fn place_order(_: &tokio_postgres::Transaction<'_>) {}
//! # async fn example(mut connection: tokio_postgres::Client, worker: towpath::Worker)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use towpath::testing::{Outcome, expect_enqueued, run_until_drained};
//!
//! let transaction = connection.transaction().await?;
//! place_order(&transaction).await;
//! let jobs: Vec<Resize> = expect_enqueued(&transaction).await;
//! assert_eq!(jobs[0].image, 7);
//! transaction.commit().await?;
//!
//! let ran = run_until_drained(&worker).await?;
//! assert!(matches!(ran[0].outcome, Outcome::Succeeded(_)));
//! # Ok(())
//! # }
//! ```

pub use towpath_worker::testing::{Outcome, Ran, run_until_drained};

use towpath_db::GateMove;
use towpath_db::{Attribution, door};

use crate::{Client, Error, Handle, Job};

/// The unfinished jobs of this type as the handle sees them, oldest first: in a transaction also those that it has
/// enqueued itself. Panics if there is none, with the kind.
pub async fn expect_enqueued<J: Job>(handle: impl Handle) -> Vec<J> {
    let jobs = match door::jobs_waiting(handle, J::KIND).await {
        Ok(jobs) => jobs,
        Err(error) => panic!("cannot read the jobs of kind {}: {error}", J::KIND),
    };
    assert!(!jobs.is_empty(), "no job of kind {} is enqueued", J::KIND);
    let read = |(id, payload)| match serde_json::from_value(payload) {
        Ok(job) => job,
        Err(error) => panic!("the payload of job {id} of kind {} does not match its type: {error}", J::KIND),
    };
    jobs.into_iter().map(read).collect()
}

/// Migrates a database and opens every gate: a database of a test, ready for use.
pub async fn prepare(client: &Client) -> Result<(), Error> {
    client.migrate().await?;
    let database = client.database();
    let by = Attribution { actor: "test", reason: "a test database" };
    for gate in database.config_list().await?.iter().filter(|entry| entry.is_gate() && !entry.is_open()) {
        database.gate_set(&gate.key, GateMove::Open, by).await?;
    }
    Ok(())
}
