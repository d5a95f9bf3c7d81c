//! Items that the database raises an error for: recorded as faults, so that the loop goes on with the others.

use towpath_db::{Database, Error};

/// Records the item as a fault of the loop, so that it is neither tried again at once nor forgotten.
pub(crate) async fn set_aside(database: &Database, what: &'static str, item: &str, error: &Error) {
    tracing::error!("{what}: {item} is set aside: {error}; see: towpath fault list");
    if let Err(error) = database.loop_fault_record(what, item, &error.to_string()).await {
        tracing::warn!("{what}: the fault of {item} could not be recorded: {error}");
    }
}
