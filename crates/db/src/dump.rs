//! What `pg_dump` needs of a database in use: tables and views that stay.
//!
//! `pg_dump` lists the tables first and locks them afterwards, by name. A partition that maintenance drops in between, or
//! a view that a migration replaces, makes it fail ("relation does not exist", "cache lookup failed for relation").

use tokio_postgres::Client;

use crate::Error;
use crate::connect::connect_once;
use crate::migrate::LOCK_KEY;

/// While it lives, no table or view is created or dropped.
pub struct TablesHeld {
    /// The locks are those of its session, and end with it.
    _session: Client,
}

/// Waits for a running migration or maintenance pass, and holds the next one off: the locks are those of the migrator, of
/// `_tick_refusal(3)` (jobs, payloads) and of event partitions. Maintenance answers busy meanwhile, and goes on later.
pub async fn hold_tables(url: &str) -> Result<TablesHeld, Error> {
    let session = connect_once(url).await?;
    let sql = format!(
        "select pg_advisory_lock_shared({LOCK_KEY}), pg_advisory_lock_shared(7302, 3), pg_advisory_lock_shared(7304, 1)"
    );
    session.batch_execute(&sql).await?;
    Ok(TablesHeld { _session: session })
}
