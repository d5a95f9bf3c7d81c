//! The route role against a real database and real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod aside;
mod deliver;
mod guard;
mod order;
mod race;
mod restore;
mod role;
mod routing;
mod share;
mod sign;
mod stream;
mod trace;
