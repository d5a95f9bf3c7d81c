//! What the measured server spends: CPU time of its processes, and WAL.

use std::collections::HashMap;

use tokio_postgres::{Client, NoTls};

/// A connection that only looks.
pub(crate) struct Server {
    client: Client,
    postmaster: Option<u32>,
}

/// What has been spent up to a moment. Processes that have ended since would be missed, so
/// connections are kept open while measuring.
pub(crate) struct Spent {
    cpu_ticks: HashMap<u32, u64>,
    wal_bytes: i64,
}

impl Server {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Server> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        // A server on this machine is our backend's parent.
        let postmaster = u32::try_from(pid).ok().and_then(parent);
        Ok(Server { client, postmaster })
    }

    pub(crate) async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }

    pub(crate) async fn spent(&self) -> anyhow::Result<Spent> {
        let sql = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        Ok(Spent { cpu_ticks: self.cpu_ticks(), wal_bytes: self.number(sql).await? })
    }

    /// Microseconds of server CPU and bytes of WAL per job since then.
    pub(crate) async fn per_job(&self, since: &Spent, jobs: usize) -> anyhow::Result<(f64, f64)> {
        const TICK_MICROSECONDS: f64 = 10_000.0;
        let now = self.spent().await?;
        let ticks: u64 = now
            .cpu_ticks
            .iter()
            .map(|(pid, ticks)| ticks.saturating_sub(since.cpu_ticks.get(pid).copied().unwrap_or(0)))
            .sum();
        let wal = (now.wal_bytes - since.wal_bytes) as f64;
        Ok((ticks as f64 * TICK_MICROSECONDS / jobs as f64, wal / jobs as f64))
    }

    fn cpu_ticks(&self) -> HashMap<u32, u64> {
        let Some(postmaster) = self.postmaster else { return HashMap::new() };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = pids.filter(|pid| *pid == postmaster || parent(*pid) == Some(postmaster));
        ours.filter_map(|pid| {
            let stat = stat(pid)?;
            Some((pid, stat.get(11)?.parse::<u64>().ok()? + stat.get(12)?.parse::<u64>().ok()?))
        })
        .collect()
    }
}

/// The fields of `/proc/PID/stat` after the name, which may hold spaces.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// CPU seconds this process has used.
pub(crate) fn own_cpu_seconds() -> f64 {
    let stat = stat(std::process::id()).unwrap_or_default();
    let ticks = |index: usize| stat.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) as f64 / 100.0
}
