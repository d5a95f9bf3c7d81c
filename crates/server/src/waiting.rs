//! Counts waiting calls by token, so that one faulty client does not block the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::jobs::error::Error;

/// The calls of one kind that wait, and how many may.
pub(crate) struct Waiting {
    /// What waits, in the plural.
    what: &'static str,
    max: usize,
    per_token_max: usize,
    by_token: Mutex<HashMap<Uuid, usize>>,
}

/// A waiting call, counted until it is dropped.
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    token: Uuid,
}

impl Waiting {
    pub(crate) fn new(what: &'static str, max: usize, per_token_max: usize) -> Arc<Waiting> {
        Arc::new(Waiting { what, max, per_token_max, by_token: Mutex::default() })
    }

    /// Lets one more call of a token wait, or says that it must not.
    pub(crate) fn enter(self: &Arc<Self>, token: Uuid) -> Result<Place, Error> {
        let mut by_token = self.by_token();
        let all: usize = by_token.values().sum();
        let own = by_token.entry(token).or_default();
        if *own >= self.per_token_max {
            return Err(Error::Busy(format!("{own} {} of this token are waiting already", self.what)));
        }
        if all >= self.max {
            return Err(Error::Busy(format!("too many {} are waiting; ask without waiting", self.what)));
        }
        *own += 1;
        Ok(Place { waiting: self.clone(), token })
    }

    fn by_token(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_token = self.waiting.by_token();
        if let Some(own) = by_token.get_mut(&self.token) {
            *own -= 1;
            if *own == 0 {
                by_token.remove(&self.token);
            }
        }
    }
}
