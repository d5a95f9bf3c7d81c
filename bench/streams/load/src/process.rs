//! What a process has used, from `/proc`.

use std::fs;

use anyhow::{Context, Result};

/// The kernel counts CPU time in hundredths of a second for everybody who asks.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of a process, all its threads, ended ones too.
pub fn cpu_seconds(pid: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    // The name may hold anything; the numbers come behind its last parenthesis.
    let (_, numbers) = stat.rsplit_once(") ").context("/proc has another form")?;
    let mut numbers = numbers.split(' ').skip(11).map(str::parse::<f64>);
    let user = numbers.next().context("/proc has another form")??;
    let system = numbers.next().context("/proc has another form")??;
    Ok((user + system) / TICKS_PER_SECOND)
}

/// Resident memory now, in MiB.
pub fn memory_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// CPU time of the server and of this process, from one moment on.
pub struct Meter {
    pid: u32,
    server: f64,
    own: f64,
    clock: std::time::Instant,
}

/// What was used between two moments.
pub struct Used {
    pub seconds: f64,
    pub server_cpu: f64,
    pub client_cpu: f64,
}

impl Meter {
    pub fn start(pid: u32) -> Result<Meter> {
        let server = cpu_seconds(&pid.to_string())?;
        Ok(Meter { pid, server, own: cpu_seconds("self")?, clock: std::time::Instant::now() })
    }

    pub fn stop(&self) -> Result<Used> {
        Ok(Used {
            seconds: self.clock.elapsed().as_secs_f64(),
            server_cpu: cpu_seconds(&self.pid.to_string())? - self.server,
            client_cpu: cpu_seconds("self")? - self.own,
        })
    }
}

/// The value below which `share` of them lie, in milliseconds, of microseconds.
pub fn percentile(sorted: &[u32], share: f64) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count => f64::from(sorted[((count - 1) as f64 * share).round() as usize]) / 1000.0,
    }
}
