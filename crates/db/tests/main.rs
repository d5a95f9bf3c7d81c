//! Each transition and each refusal, on a real PostgreSQL.

mod catalogue;
mod config;
mod migrate;
