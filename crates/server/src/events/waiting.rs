//! Counts waiting reads by token, so that one faulty client does not block the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_model::id::TokenId;

use crate::jobs::error::Error;
use crate::limits;

#[derive(Default)]
pub(crate) struct Waiting(Mutex<HashMap<TokenId, usize>>);

/// A waiting read, counted until it is dropped.
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    token: TokenId,
}

impl Waiting {
    pub(crate) fn enter(self: &Arc<Self>, token: TokenId) -> Result<Place, Error> {
        let mut places = self.places();
        if places.values().sum::<usize>() >= limits::EVENTS_WAITING_MAX {
            return Err(Error::Busy("too many reads of events are waiting; read without wait".into()));
        }
        let own = places.entry(token).or_default();
        if *own >= limits::EVENTS_WAITING_PER_TOKEN_MAX {
            return Err(Error::Busy(format!("{own} reads of this token are waiting already; one is enough")));
        }
        *own += 1;
        Ok(Place { waiting: self.clone(), token })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<TokenId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.waiting.places();
        if let Some(own) = places.get_mut(&self.token) {
            *own -= 1;
            if *own == 0 {
                places.remove(&self.token);
            }
        }
    }
}
