//! A private PostgreSQL with the schema and every gate open, gone at the end.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::cluster::{Cluster, Config, Durability};
use towpath_db::migrate::{self, Mode};
use towpath_route::{Config as RoleConfig, Role};

pub(crate) struct Place {
    cluster: Cluster,
    // Removed with the value.
    _dir: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn start() -> anyhow::Result<Place> {
        let dir = tempfile::Builder::new().prefix("towpath-bench-").tempdir()?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let config =
            Config { data: dir.path().to_owned(), durability: Durability::Safe, ..Config::default() };
        let place = Place { cluster: Cluster::start(&config).await?, _dir: dir };
        migrate::run(place.cluster.url(), Mode::Apply).await?;
        let client = place.client().await?;
        client.batch_execute("update towpath.config set value = 'true' where kind = 'gate'").await?;
        // Checkpoints in the middle of a measurement would be measured too.
        client.batch_execute("alter system set max_wal_size = '4GB'").await?;
        client.batch_execute("alter system set checkpoint_timeout = '15min'").await?;
        client.batch_execute("select pg_reload_conf()").await?;
        call(&client, r#"fn_route_put('jobs', 'job', '{"job_kind": "bench"}', 'd')"#).await?;
        call(&client, "fn_route_mode_set('jobs', 'live', 'bench', 'a measurement')").await?;
        Ok(place)
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let (client, connection) = tokio_postgres::connect(self.cluster.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A role of one process.
    pub(crate) async fn role(&self, config: RoleConfig) -> anyhow::Result<Running> {
        let database = Database::connect(self.cluster.url()).await?;
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(Role::new(database, config)?.run(shutdown.clone()));
        Ok(Running { shutdown, task })
    }

    pub(crate) async fn stop(self) {
        self.cluster.stop().await;
    }
}

pub(crate) struct Running {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.task.await.context("the role ended badly")
    }
}

/// One public function, written without its schema; a refusal is an error.
pub(crate) async fn call(client: &Client, function: &str) -> anyhow::Result<Value> {
    let row = client.query_one(&format!("select towpath.{function}"), &[]).await?;
    let answer: Value = row.get(0);
    ensure!(answer["ok"] == true, "{function}: {answer}");
    Ok(answer)
}

pub(crate) async fn number(client: &Client, sql: &str) -> anyhow::Result<i64> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Waits until a query answers at least so much.
pub(crate) async fn until(client: &Client, sql: &str, wanted: i64) -> anyhow::Result<()> {
    while number(client, sql).await? < wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
