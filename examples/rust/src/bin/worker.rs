//! Runs the jobs of the shop until it is stopped.

use std::time::Duration;

use shop::{Invoice, Invoiced};
use towpath::{Client, Context, Failure};

async fn invoice(job: Invoice, ctx: Context) -> towpath::Result<Invoiced> {
    let mut database = shop::connect().await.map_err(Failure::retry)?;
    ctx.progress(30, "calculating").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ctx.progress(60, "writing").await?;

    let transaction = database.transaction().await?;
    let find = "select cents from shop.orders where order_id = $1";
    let Some(order) = transaction.query_opt(find, &[&job.order]).await? else {
        return Err(Failure::permanent(format!("there is no order {}", job.order)));
    };
    let write = "insert into shop.invoices (order_id) values ($1)
                 on conflict (order_id) do update set order_id = excluded.order_id returning invoice_id";
    let invoice = transaction.query_one(write, &[&job.order]).await?.get("invoice_id");
    let told = serde_json::json!({ "order": job.order, "invoice": invoice });
    towpath::emit(&transaction, "shop", "invoiced", &told).subject("orders", job.order.to_string()).await?;
    transaction.commit().await?;
    Ok(Invoiced { invoice, cents: order.get("cents") })
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
        .handle(invoice)
        .build()?;
    worker.run_until_signal().await?;
    Ok(())
}
