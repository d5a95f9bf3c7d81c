//! `towpath maintain`: expired leases, floors, counters, partitions, retention, schedules.

use clap::Args;
use serde_json::json;
use towpath_db::cluster::Login;
use towpath_server::metrics::Metrics;
use towpath_worker::{Maintenance, MaintenanceReport};

use crate::output::{Exit, Output, done};
use crate::progress;
use crate::settings::Settings;
use crate::{metrics, program, shutdown};

#[derive(Args)]
pub(crate) struct Maintain {
    /// Run one pass and exit, for use with your own timer
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(maintain: Maintain, settings: &Settings, output: &Output) -> Exit {
    let shutdown = shutdown::on_signal()?;
    let listener = metrics::listen(settings).await?;
    super::with_database(settings, async |database| {
        let database = program::database(&database, Login::Maintainer, settings).await?;
        let mut maintenance = Maintenance::new(database.clone());
        if maintain.once {
            let done = progress::patience("running maintenance", maintenance.run_once()).await;
            let report = done.as_ref().unwrap_or_else(|failure| &failure.report);
            let MaintenanceReport { reaped, fired, supervised, busy, stale, warned } = *report;
            let report = json!({
                "reaped": reaped, "fired": fired, "supervised": supervised, "busy": busy, "stale": stale,
                "broadcast_warned": warned,
            });
            output.show(&report, |_| {
                format!(
                    "expired leases: {reaped}, schedule ticks: {fired}, processes supervised: {supervised}, \
                     stale executors: {stale}"
                )
            });
            done?;
        } else {
            output.show(&json!({ "maintaining": true }), |_| "towpath maintenance is running".to_owned());
            let numbers = Metrics::new();
            numbers.register(|registry| maintenance.register(registry));
            let survey = metrics::survey(&numbers, &database, &shutdown);
            let published = metrics::serve(listener, &numbers, settings, &shutdown);
            maintenance.run(shutdown).await;
            published.await?;
            survey.await?;
        }
        done()
    })
    .await
}
