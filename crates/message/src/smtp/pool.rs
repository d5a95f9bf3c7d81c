//! A connection pool.
//!
//! lettre's pool works only with its own transport. This one is small: a limit, a stack of idle connections, and no
//! background task.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lettre::transport::smtp::client::AsyncSmtpConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Cause;
use super::address::Address;
use crate::limits;

pub(super) struct Pool {
    address: Address,
    room: Semaphore,
    idle: Mutex<Vec<(AsyncSmtpConnection, Instant)>>,
}

/// A connection for one mail. Unless it is returned, it is closed.
pub(super) struct Held<'a> {
    pub(super) connection: AsyncSmtpConnection,
    /// Whether it was used before.
    pub(super) used: bool,
    pool: &'a Pool,
    _room: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(address: Address) -> Pool {
        Pool { address, room: Semaphore::new(limits::SMTP_CONNECTIONS_MAX), idle: Mutex::default() }
    }

    /// A recent idle connection, or a new one.
    pub(super) async fn get(&self) -> Result<Held<'_>, Cause> {
        let room = self.room.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle().pop().filter(|(_, since)| since.elapsed() < limits::SMTP_IDLE_AGE_MAX);
        let (connection, used) = match idle {
            Some((connection, _)) => (connection, true),
            None => (self.address.connect().await?, false),
        };
        Ok(Held { connection, used, pool: self, _room: room })
    }

    /// Closes every idle connection, after one of them was dead.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(AsyncSmtpConnection, Instant)>> {
        // A panic while pushing or popping leaves a valid list.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    /// Keeps the connection for the next mail.
    pub(super) fn give_back(self) {
        let mut idle = self.pool.idle();
        if idle.len() < limits::SMTP_IDLE_MAX && !self.connection.has_broken() {
            idle.push((self.connection, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {} idle", self.address, self.idle().len())
    }
}
