//! `towpath route`: only the route role: sequencer, route workers, webhooks.

use std::sync::Arc;

use clap::Args;
use serde_json::json;
use towpath_db::cluster::Login;
use towpath_route::stream::Remote;
use towpath_route::{Config, Role};
use towpath_server::metrics::Metrics;

use crate::output::{Exit, Output, done};
use crate::settings::Settings;
use crate::{metrics, program, shutdown};

#[derive(Args)]
pub(crate) struct Route {
    /// Run only this route worker; repeatable (default: every registered one)
    #[arg(long = "worker", value_name = "NAME")]
    workers: Vec<String>,
    /// Poll instead of listening for notifications, for connections through a transaction pooler
    #[arg(long)]
    poll_only: bool,
}

pub(crate) async fn run(route: Route, settings: &Settings, output: &Output) -> Exit {
    let shutdown = shutdown::on_signal()?;
    let listener = metrics::listen(settings).await?;
    super::with_database(settings, async |database| {
        let database = program::database(&database, Login::Router, settings).await?;
        let known = database.route_worker_list().await?.workers;
        for name in &route.workers {
            if !known.iter().any(|worker| worker.worker_name == *name) {
                let names: Vec<&str> = known.iter().map(|worker| worker.worker_name.as_str()).collect();
                anyhow::bail!("there is no route worker {name}; registered: {}", names.join(", "));
            }
        }
        let config = Config {
            workers: (!route.workers.is_empty()).then_some(route.workers),
            listen: !route.poll_only,
            ..crate::route::config(settings)
        };
        let url = settings.url.clone().unwrap_or_else(|| format!("http://{}", settings.listen));
        let role =
            Role::new(database, config)?.streams(Arc::new(Remote::new(&url, settings.fan_out.bearer()?)?));
        output.show(&json!({ "routing": true }), |_| "towpath routing is running".to_owned());
        let numbers = Metrics::new();
        numbers.register(|registry| role.register(registry));
        let published = metrics::serve(listener, &numbers, settings, &shutdown);
        role.run(shutdown).await;
        published.await?;
        done()
    })
    .await
}
