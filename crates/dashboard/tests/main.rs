//! The pages over real HTTP, on a real database and a real store (O03).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod access;
mod kit;
mod markup;
mod pages;
mod routes;
mod sessions;
