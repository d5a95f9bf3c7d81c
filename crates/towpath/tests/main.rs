//! The crate as an application uses it, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod battery;
mod client;
mod enqueue;
mod worker;

use serde::{Deserialize, Serialize};
use towpath::{Client, Job};
use towpath_testkit::TestDb;

/// The job of these tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(kind = "resize", max_attempts = 3, priority = 120)]
pub(crate) struct Resize {
    pub(crate) image: i64,
}

/// A database with open gates, and a client of it.
pub(crate) async fn open() -> (TestDb, Client) {
    let db = TestDb::open().await;
    let client = Client::connect(db.url()).await.unwrap();
    (db, client)
}
