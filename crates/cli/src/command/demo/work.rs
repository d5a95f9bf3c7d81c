//! The demo's jobs: quick ones, slow ones with progress, some that fail at first, some that always fail.

use std::time::Duration;

use serde_json::Value;
use towpath_db::Database;
use towpath_worker::{Context, Failure, Options, Result, Worker};

use super::DEMO;

/// Every kind it runs. `demo.archive` is scheduled too far ahead to run during a demo.
pub(super) const KINDS: [&str; 8] = [
    "demo.charge",
    "demo.cleanup",
    "demo.confirm",
    "demo.extract",
    "demo.import",
    "demo.load",
    "demo.report",
    "demo.transform",
];
/// Delays between the attempts of a charge: short, so that a viewer sees the retries.
const CHARGE_RETRIES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

/// The worker that claims as `demo`.
pub(super) fn worker(database: Database) -> anyhow::Result<Worker> {
    let quick = |builder: towpath_worker::Builder, kind: &str| {
        builder.handle_kind(kind, Options::default(), |_: Value, context| async move {
            pause(&context, fastrand::u64(5..120)).await
        })
    };
    let slow = |builder: towpath_worker::Builder, kind: &str, steps: u32| {
        builder.handle_kind(kind, Options::default().concurrency(8), move |_: Value, context| async move {
            step_by_step(&context, steps).await
        })
    };
    let builder = Worker::builder(database, DEMO).drain(Duration::from_secs(2));
    let builder = quick(quick(builder, "demo.confirm"), "demo.cleanup");
    let builder = slow(slow(slow(builder, "demo.extract", 4), "demo.transform", 8), "demo.load", 4);
    let builder = slow(builder, "demo.report", 24)
        .handle_kind("demo.charge", Options::default().retry_delays(CHARGE_RETRIES), charge)
        .handle_kind("demo.import", Options::default(), |job: Value, _| async move {
            let row = &job["row"];
            Err::<(), _>(Failure::permanent(format!("row {row} of customers.csv has no e-mail address")))
        });
    Ok(builder.build()?)
}

/// One in four needs a second attempt; a declined card is declined every time.
async fn charge(job: Value, context: Context) -> Result {
    pause(&context, fastrand::u64(30..300)).await?;
    let order = job["order"].as_u64().unwrap_or(0);
    if job["declined"] == true {
        return Err(Failure::retry(format!("the card of order {order} was declined")));
    }
    if order.is_multiple_of(4) && context.attempt().number() == 1 {
        return Err(Failure::retry("the card processor did not answer within 300 ms"));
    }
    Ok(())
}

/// Half a second per step, each with a progress report.
async fn step_by_step(context: &Context, steps: u32) -> Result {
    for step in 1..=steps {
        pause(context, 500).await?;
        let message = format!("part {step} of {steps}");
        let percent = i32::try_from(step * 100 / steps).unwrap_or(100);
        context.progress(percent, &message).await?;
    }
    Ok(())
}

async fn pause(context: &Context, milliseconds: u64) -> Result {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(milliseconds)) => Ok(()),
        () = context.lost().cancelled() => Err(Failure::retry("the demo ended before the job did")),
    }
}
