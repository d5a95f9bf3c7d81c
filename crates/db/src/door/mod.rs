//! What an application calls, on a connection or in a transaction of its own: `sql/functions/door.sql`.
//!
//! The doors raise what they refuse, so a transaction cannot commit without its job or event, whether or not its
//! program looks at the answer (Q21). Every call is one statement with one text parameter, which all drivers can run.

mod emit;
mod enqueue;
mod error;
mod handle;
mod read;

pub use emit::Emit;
pub use enqueue::{Enqueue, EnqueueOptions, enqueue_many};
pub use error::{Error, Refused};
pub(crate) use handle::Failed;
pub use handle::Handle;
pub use read::jobs_waiting;

use serde::Serialize;
use serde_json::value::RawValue;
use towpath_model::job::{Attempt, JobId};

use crate::job::LeaseOwner;

/// A future that a builder becomes when it is awaited.
pub(crate) type Answer<'h, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'h>>;

/// Ends an attempt in the caller's transaction. A lost lease raises: what the attempt wrote is rolled back.
pub async fn ack(
    handle: impl Handle,
    owner: &LeaseOwner,
    (job_id, attempt): (JobId, Attempt),
    result: Option<&RawValue>,
) -> Result<(), Error> {
    #[derive(Serialize)]
    struct Ack<'a> {
        job_id: JobId,
        lease_owner: &'a str,
        attempt: Attempt,
        result: Option<&'a RawValue>,
    }
    let ack = Ack { job_id, lease_owner: owner.as_str(), attempt, result };
    handle.ask(ACK, json(&ack)).await?;
    Ok(())
}

const ACK: &str = "select towpath.ack(a.job_id, a.lease_owner, a.attempt, a.result)::text \
                     from jsonb_to_record($1::text::jsonb) \
                          as a(job_id uuid, lease_owner text, attempt integer, result jsonb)";

/// Our own values are always JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data is JSON")
}
