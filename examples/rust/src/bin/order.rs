//! Places an order, and follows its invoice: `order 7`.

use std::time::Duration;

use shop::Invoice;
use towpath::Client;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let order: i64 = std::env::args().nth(1).unwrap_or_else(|| "7".into()).parse()?;
    let mut database = shop::connect().await?;

    let transaction = database.transaction().await?;
    transaction.execute("insert into shop.orders values ($1, 4200)", &[&order]).await?;
    let id = towpath::enqueue(&transaction, &Invoice { order }).key(format!("invoice:{order}")).await?;
    transaction.commit().await?;
    println!("placed order {order}, job {id}");

    let client = Client::connect(std::env::var("DATABASE_URL")?).await?;
    let mut shown = None;
    loop {
        let job = client.wait(id, Duration::from_millis(200)).await?;
        if job.percent.is_some() && job.percent != shown {
            println!("{} % {}", job.percent.unwrap_or(0), job.message.unwrap_or_default());
            shown = job.percent;
        }
        if job.state.is_terminal() {
            println!("{} {}", job.state, serde_json::to_string(&job.result)?);
            return Ok(());
        }
    }
}
