//! Reading a stream from its beginning, whole, again and again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::Server;
use crate::http::{self, Loop, request};
use crate::process::{self, Meter, percentile};

#[derive(clap::Args)]
pub struct CatchUp {
    #[command(flatten)]
    server: Server,
    /// Streams that are read, in turn
    #[arg(long, default_value_t = 16)]
    streams: usize,
    /// Messages in each, appended one by one and in turn, so that none lies in one piece
    #[arg(long)]
    messages: usize,
    /// Bytes of one message
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// How long is measured
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Begins the names of the streams
    #[arg(long, default_value = "catch-up")]
    name: String,
}

impl CatchUp {
    pub fn run(&self) -> Result<Value> {
        let paths: Vec<String> =
            (0..self.streams).map(|number| format!("/v1/stream/{}-{number}", self.name)).collect();
        let kind = "content-type: application/octet-stream\r\n";
        let creates: Vec<_> = paths.iter().map(|path| request("PUT", path, kind, b"")).collect();
        let created = http::ask(self.server.address, &creates)?;
        ensure!(created.iter().all(|status| *status == 201), "creating streams answered {created:?}");
        self.fill(&paths, kind)?;
        let reads: Vec<_> =
            paths.iter().map(|path| request("GET", &format!("{path}?offset=-1"), "", b"")).collect();
        let mut connections = Loop::connect(self.server.address, self.connections)?;
        connections.run(&reads, Instant::now() + Duration::from_millis(500))?;
        let meter = Meter::start(self.server.pid)?;
        let seen = connections.run(&reads, Instant::now() + Duration::from_secs_f64(self.seconds))?;
        let used = meter.stop()?;
        ensure!(seen.refused == 0, "{} of {} reads were refused", seen.refused, seen.answers);
        let expected = (self.messages * self.bytes) as u64;
        ensure!(
            seen.bytes >= seen.answers * expected,
            "answers of {} bytes for streams of {expected}",
            seen.bytes / seen.answers.max(1)
        );
        Ok(json!({
            "stream_bytes": expected,
            "streams": self.streams,
            "connections": self.connections,
            "reads": seen.answers,
            "seconds": used.seconds,
            "server_cpu_seconds": used.server_cpu,
            "client_cpu_seconds": used.client_cpu,
            "p50_ms": percentile(&seen.micros, 0.5),
            "p99_ms": percentile(&seen.micros, 0.99),
            "memory_mib": process::memory_mib(self.server.pid)?,
        }))
    }

    /// Every stream gets its messages on a connection of its own.
    fn fill(&self, paths: &[String], kind: &str) -> Result<()> {
        let body = vec![b'x'; self.bytes];
        std::thread::scope(|scope| {
            let writers: Vec<_> = paths
                .iter()
                .map(|path| {
                    let appends = vec![request("POST", path, kind, &body); self.messages];
                    scope.spawn(move || http::ask(self.server.address, &appends))
                })
                .collect();
            for writer in writers {
                let answers = writer.join().expect("a writer does not panic")?;
                ensure!(answers.iter().all(|status| (200..300).contains(status)), "an append was refused");
            }
            Ok(())
        })
    }
}
