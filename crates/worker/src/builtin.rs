//! Kinds that every worker can be given, for trying things out and for measuring.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Builder, Failure, Job};

/// Does nothing, successfully.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Noop {}

/// Takes its time; ends early when cancelled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sleep {
    /// How long.
    pub milliseconds: u64,
}

/// Fails, to show retries and dead letters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fail {
    /// The error text.
    #[serde(default = "on_request")]
    pub message: String,
    /// Whether trying again is pointless.
    #[serde(default)]
    pub permanent: bool,
}

impl Job for Noop {
    const KIND: &'static str = "towpath.noop";
}

impl Job for Sleep {
    const KIND: &'static str = "towpath.sleep";
}

impl Job for Fail {
    const KIND: &'static str = "towpath.fail";
}

/// Adds all of them.
pub fn register(builder: Builder) -> Builder {
    builder
        .handle(|_: Noop, _| async { Ok(()) })
        .handle(|job: Sleep, context| async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(job.milliseconds)) => Ok(()),
                () = context.lost().cancelled() => Err(Failure::retry("cancelled before the time was up")),
            }
        })
        .handle(|job: Fail, _| async move {
            match job.permanent {
                true => Err::<(), _>(Failure::permanent(job.message)),
                false => Err(Failure::retry(job.message)),
            }
        })
}

fn on_request() -> String {
    "failed on request".to_owned()
}
