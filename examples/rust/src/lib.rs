//! What the programs of the shop share: the job, and a connection.

use serde::{Deserialize, Serialize};
use towpath::Job;

/// Writes the invoice of an order.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "shop.invoice", max_attempts = 5)]
pub struct Invoice {
    pub order: i64,
}

/// What the job returns.
#[derive(Debug, Serialize, Deserialize)]
pub struct Invoiced {
    pub invoice: i64,
    pub cents: i64,
}

/// The tables of the shop.
const TABLES: &str = "create schema if not exists shop;
    create table if not exists shop.orders (order_id bigint primary key, cents bigint not null);
    create table if not exists shop.invoices (
        invoice_id bigint generated always as identity primary key,
        order_id bigint not null unique references shop.orders)";

/// Connects to the database in `DATABASE_URL`, and makes the tables if they are missing.
pub async fn connect() -> anyhow::Result<tokio_postgres::Client> {
    let url = std::env::var("DATABASE_URL")?;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    // Two programs that start at once must not make them twice.
    client.batch_execute(&format!("begin; select pg_advisory_xact_lock(4600); {TABLES}; commit")).await?;
    Ok(client)
}
