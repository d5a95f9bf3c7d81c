//! Durable appends: every connection appends, waits for the answer, and appends again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::Server;
use crate::http::{self, Loop, request};
use crate::process::{self, Meter, percentile};

#[derive(clap::Args)]
pub struct Append {
    #[command(flatten)]
    server: Server,
    /// Streams that are appended to, in turn
    #[arg(long)]
    streams: usize,
    /// Connections
    #[arg(long)]
    connections: usize,
    /// How long is measured
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Not measured, before that
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Bytes of one append
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Begins the names of the streams, so that every run has its own
    #[arg(long, default_value = "append")]
    name: String,
    /// Appends to streams of this project
    #[arg(long)]
    project: Option<String>,
    /// with this token
    #[arg(long)]
    token: Option<String>,
}

impl Append {
    pub fn run(&self) -> Result<Value> {
        let root = self.project.as_ref().map_or("/v1".to_owned(), |project| format!("/v1/{project}"));
        let paths: Vec<String> =
            (0..self.streams).map(|number| format!("{root}/stream/{}-{number}", self.name)).collect();
        let token = self.token.as_ref().map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let fields = &format!("content-type: application/octet-stream\r\n{token}");
        let creates: Vec<_> = paths.iter().map(|path| request("PUT", path, fields, b"")).collect();
        let created = http::ask(self.server.address, &creates)?;
        ensure!(created.iter().all(|status| *status == 201), "creating streams answered {created:?}");
        let body = vec![b'x'; self.bytes];
        let appends: Vec<_> = paths.iter().map(|path| request("POST", path, fields, &body)).collect();
        let mut connections = Loop::connect(self.server.address, self.connections)?;
        connections.run(&appends, Instant::now() + Duration::from_secs_f64(self.warm_up))?;
        let meter = Meter::start(self.server.pid)?;
        let seen = connections.run(&appends, Instant::now() + Duration::from_secs_f64(self.seconds))?;
        let used = meter.stop()?;
        ensure!(seen.refused == 0, "{} of {} appends were refused", seen.refused, seen.answers);
        Ok(json!({
            "streams": self.streams,
            "connections": self.connections,
            "token": u64::from(self.token.is_some()),
            "appends": seen.answers,
            "seconds": used.seconds,
            "server_cpu_seconds": used.server_cpu,
            "client_cpu_seconds": used.client_cpu,
            "p50_ms": percentile(&seen.micros, 0.5),
            "p99_ms": percentile(&seen.micros, 0.99),
            "memory_mib": process::memory_mib(self.server.pid)?,
        }))
    }
}
