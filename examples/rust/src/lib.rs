//! What the two programs of the shop share: the job, and a connection.

use serde::{Deserialize, Serialize};
use towpath::Job;

/// Packs the parcels of an order.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "shop.ship", max_attempts = 5)]
pub struct Ship {
    pub order: i64,
    pub parcels: i32,
}

/// What the job returns.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shipped {
    pub order: i64,
    pub parcels: i32,
}

/// Connects to the database in `DATABASE_URL`.
pub async fn connect() -> anyhow::Result<tokio_postgres::Client> {
    let url = std::env::var("DATABASE_URL")?;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
