//! The tools of the tests do what they say.

#![expect(clippy::unwrap_used, reason = "a failing step fails the test")]

mod database;
mod faults;
