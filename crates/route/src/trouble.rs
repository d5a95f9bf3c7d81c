//! Errors in a row: said once, answered with growing patience, and their end said too.

use std::time::Duration;

use towpath_db::{Database, Error};

use crate::limits;

/// What is the matter with one loop.
pub(crate) struct Trouble {
    what: &'static str,
    words: Option<String>,
    count: u32,
}

impl Trouble {
    /// Of the loop that does this.
    pub(crate) fn with(what: &'static str) -> Trouble {
        Trouble { what, words: None, count: 0 }
    }

    /// It works.
    pub(crate) fn over(&mut self) {
        if let Some(words) = self.words.take() {
            tracing::info!("{} goes on, after: {words}", self.what);
        }
        self.count = 0;
    }

    /// It does not, and should be tried again after this time.
    pub(crate) fn met(&mut self, error: &Error) -> Duration {
        let words = error.to_string();
        let refused = matches!(
            error,
            Error::GateClosed { .. } | Error::NotFound(_) | Error::NotAuthorised(_) | Error::Invalid(_)
        );
        if self.words.as_ref() != Some(&words) {
            match refused {
                true => tracing::info!("{} rests: {words}", self.what),
                false => tracing::warn!("{} failed, trying again: {words}", self.what),
            }
            self.words = Some(words);
        }
        self.count += 1;
        if refused {
            return jittered(limits::REFUSED_WAIT);
        }
        jittered((limits::RETRY_MIN * 2_u32.pow(self.count.min(5))).min(limits::RETRY_MAX))
    }
}

/// Sets an item aside that the database raises about, so that it is neither tried again at once nor forgotten.
pub(crate) async fn set_aside(database: &Database, what: &'static str, item: &str, error: &Error) {
    tracing::error!("{what}: {item} is set aside: {error}; see: towpath fault list");
    if let Err(error) = database.loop_fault_record(what, item, &error.to_string()).await {
        tracing::warn!("{what}: that {item} is set aside could not be recorded: {error}");
    }
}

/// Between three quarters and five quarters: processes that started together drift apart.
pub(crate) fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.75 + fastrand::f64() / 2.0)
}
