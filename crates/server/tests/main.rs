//! The server over real connections: health, metrics, and the stream routes beyond what the official suite asks for.

#![expect(clippy::unwrap_used, reason = "a failing step fails the test")]

mod beyond;
mod crowd;
mod defects;
mod edge;
mod fanout;
mod http1;
mod limits;
mod live;
mod metrics;
mod project;
mod readers;
mod ready;
mod remote;
mod server;
mod stalled;
mod subscription;
mod token;
