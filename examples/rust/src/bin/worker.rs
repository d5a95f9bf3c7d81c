//! Packs the parcels of orders, until it is stopped.

use std::time::Duration;

use shop::{Ship, Shipped};
use towpath::{Client, Context};

async fn ship(job: Ship, ctx: Context) -> towpath::Result<Shipped> {
    for parcel in 1..=job.parcels {
        tokio::time::sleep(Duration::from_millis(100)).await; // the work
        // An error here means that the job was cancelled, or that another worker has it: stop.
        ctx.progress(100 * parcel / job.parcels, &format!("packed {parcel} of {}", job.parcels)).await?;
        ctx.append(&serde_json::json!({ "packed": parcel })).await?;
    }
    Ok(Shipped { order: job.order, parcels: job.parcels })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let client = Client::connect(std::env::var("DATABASE_URL")?).await?;
    let worker = client
        .worker("shop")
        .concurrency(8)
        .middleware(|ctx, next| async move {
            let result = next.run().await;
            let ended = if result.is_ok() { "done" } else { "failed" };
            println!("{ended} {} attempt {}", ctx.kind(), ctx.attempt());
            result
        })
        .handle(ship)
        .build()?;
    worker.run_until_signal().await?;
    Ok(())
}
