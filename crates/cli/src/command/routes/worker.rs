//! `towpath routes worker`: slices of a route worker and their positions (E09).

use clap::Args;
use towpath_db::Database;
use towpath_db::event::{RouteWorkerSpec, RouteWorkers};

use crate::command::Actor;
use crate::output::{Output, table};

#[derive(Args)]
pub(crate) struct Worker {
    /// Name; without it all are shown
    worker: Option<String>,
    /// Number of slices, which that many processes can share; registers a new worker
    #[arg(long, value_name = "NUMBER", requires = "worker", value_parser = clap::value_parser!(i32).range(1..=64))]
    slices: Option<i32>,
    /// Start after this position, for a new worker or to reset one; nothing is delivered twice
    #[arg(long, value_name = "POSITION", requires = "worker")]
    from: Option<i64>,
    /// Register it for events of this domain only; cannot be changed later
    #[arg(long, value_name = "DOMAIN", requires = "worker")]
    domain: Option<String>,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(worker: Worker, database: &Database, output: &Output) -> anyhow::Result<()> {
    let before = database.route_worker_list().await?;
    let Some(name) =
        worker.worker.filter(|_| worker.slices.is_some() || worker.from.is_some() || worker.domain.is_some())
    else {
        output.show(&before, list);
        return Ok(());
    };
    let known = before.workers.iter().find(|row| row.worker_name == name).map(|row| row.slices);
    let slices = worker.slices.or(known).unwrap_or(1);
    let actor = worker.by.name();
    let spec = RouteWorkerSpec {
        worker_name: &name,
        slices,
        from_position: worker.from,
        event_domain: worker.domain.as_deref(),
        actor: &actor,
    };
    let put = database.route_worker_put(&spec).await?;
    output.show(&put, |put| {
        let done = if put.created { "registered" } else { "changed" };
        let of = put.event_domain.as_ref().map_or(String::new(), |domain| format!(" for domain {domain}"));
        format!(
            "{done} route worker {}: {} slices{of}, after position {}",
            put.worker_name, put.slices, put.position
        )
    });
    Ok(())
}

fn list(workers: &RouteWorkers) -> String {
    let rows = workers
        .workers
        .iter()
        .flat_map(|worker| worker.cursors.iter().map(move |cursor| (worker, cursor)))
        .map(|(worker, cursor)| {
            [
                worker.worker_name.clone(),
                worker.event_domain.clone().unwrap_or_default(),
                format!("{} of {}", cursor.slice + 1, worker.slices),
                cursor.position.to_string(),
                cursor.lag.to_string(),
                cursor.events.to_string(),
                format!("{:.0}", cursor.last_run_at),
            ]
        });
    table(["WORKER", "DOMAIN", "SLICE", "POSITION", "LAG", "EVENTS", "LAST RUN"], rows)
}
