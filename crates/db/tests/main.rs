//! Each transition and each refusal, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod catalogue;
mod config;
mod migrate;
mod tls;
