//! An order, in Rust: pay, wait for the signal `shipped` or three days, send an e-mail. Kill it at any moment.
//!
//! ```sh
//! psql -v ON_ERROR_STOP=1 -f examples/process/order.sql "$(towpath db url)"   # the table, and the kind of the e-mail
//! towpath process kind shop.rust_order
//! DATABASE_URL=$(towpath db url) cargo run -p towpath-worker --example order
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use towpath_db::Database;
use towpath_worker::{Result, Steps, Worker};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    cents: i64,
    email: String,
}

#[derive(Serialize, Deserialize)]
struct Parcel {
    parcel: String,
}

/// Stands for a payment service that takes each key once.
async fn pay(url: &str, reference: &str, cents: i64) -> Result<i64> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let sql = "insert into shop.payment values ($1, $2) on conflict do nothing";
    client.execute(sql, &[&reference, &cents]).await?;
    Ok(cents)
}

async fn order(url: String, order: Order, steps: Steps) -> Result<serde_json::Value> {
    let reference = steps.reference().to_owned();
    steps.step("pay", || pay(&url, &reference, order.cents)).await?;

    let shipped: Option<Parcel> = steps.wait_for("shipped", Some(Duration::from_secs(3 * 86_400))).await?;

    let text = match &shipped {
        Some(Parcel { parcel }) => format!("It is on its way: {parcel}"),
        None => "It is late. We are looking for it.".to_owned(),
    };
    let message = json!({ "to": order.email, "from": "shop@example.com", "text": text,
        "subject": format!("Your order {reference}") });
    let mail = steps.child("mail", "shop.order_mail", &format!("rust:{reference}"), message).await?;
    Ok(json!({ "shipped": shipped.is_some(), "mail": mail.state }))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let database = Database::connect(&url).await?;
    let worker = Worker::builder(database, "shop").register().lease(Duration::from_secs(2));
    let worker =
        worker.process("shop.rust_order", move |input: Order, steps| order(url.clone(), input, steps));
    Ok(worker.build()?.run_until_signal().await?)
}
