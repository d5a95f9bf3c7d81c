//! The stream routes over a real connection and a real store: what the official suite does
//! not ask for.

#![expect(clippy::unwrap_used, reason = "a failing step fails the test")]

mod beyond;
mod crowd;
mod defects;
mod edge;
mod fanout;
mod http1;
mod kit;
mod limits;
mod live;
mod project;
mod readers;
mod remote;
mod stalled;
mod subscription;
mod token;
