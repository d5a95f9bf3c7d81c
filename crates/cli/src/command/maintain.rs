//! `towpath maintain`: leases that ran out, floors, counters, partitions, retention, schedules.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use towpath_worker::{Maintenance, MaintenanceReport};

use crate::output::Output;
use crate::progress;
use crate::settings::Settings;
use crate::shutdown;

#[derive(Args)]
pub(crate) struct Maintain {
    /// Do everything once and end, for a timer of one's own
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(
    maintain: Maintain,
    settings: &Settings,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let shutdown = shutdown::on_signal()?;
    super::with_database(settings, async |database| {
        let mut maintenance = Maintenance::new(database);
        if maintain.once {
            let MaintenanceReport { reaped, fired, supervised, busy, stale, warned } = progress::patience("maintaining", maintenance.run_once()).await?;
            let report = json!({
                "reaped": reaped, "fired": fired, "supervised": supervised, "busy": busy, "stale": stale,
                "broadcast_warned": warned,
            });
            output.show(&report, |_| {
                format!(
                    "leases that ran out: {reaped}, ticks fired: {fired}, processes supervised: {supervised}, \
                     silent executors: {stale}"
                )
            });
        } else {
            output.show(&json!({ "maintaining": true }), |_| "towpath maintains".to_owned());
            maintenance.run(shutdown).await;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}
