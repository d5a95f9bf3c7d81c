//! The shop: takes orders, receives its own webhook, and serves the page.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use shop::Ship;
use standardwebhooks::Webhook;
use towpath::Client;
use uuid::Uuid;

struct Shop {
    towpath: String,
    client: Client,
    webhook: Webhook,
}

/// Any error is an answer with the status 500.
struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("{:#}", self.0);
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

/// An order, its job and its event commit together, or not at all.
async fn place_order(body: Bytes) -> Result<impl IntoResponse, Failed> {
    let body: Value = serde_json::from_slice(&body)?;
    let parcels = i32::try_from(body["parcels"].as_i64().unwrap_or(1))?;
    let mut database = shop::connect().await?;
    let transaction = database.transaction().await?;
    let insert = "insert into shop.orders (parcels) values ($1) returning order_id";
    let order: i64 = transaction.query_one(insert, &[&parcels]).await?.get(0);
    let id = towpath::enqueue(&transaction, &Ship { order, parcels }).key(format!("ship:{order}")).await?;
    let update = "update shop.orders set job_id = $2 where order_id = $1";
    transaction.execute(update, &[&order, &id.uuid()]).await?;
    let told = json!({ "order": order });
    towpath::emit(&transaction, "shop", "order.placed", &told).subject("orders", order.to_string()).await?;
    transaction.commit().await?;
    Ok((StatusCode::CREATED, Json(json!({ "order": order }))))
}

/// What the page needs to follow an order: its job, and a token for that job only.
async fn show_order(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Result<Response, Failed> {
    let find = "select job_id, announced_at is not null from shop.orders where order_id = $1";
    let Some(row) = shop::connect().await?.query_opt(find, &[&order]).await? else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let (job, announced): (Uuid, bool) = (row.get(0), row.get(1));
    let token = shop.client.job_token(job.into(), Duration::from_secs(3_600)).await?;
    let shown = json!({
        "order": order, "job": job, "announced": announced, "towpath": shop.towpath, "token": token,
    });
    Ok(Json(shown).into_response())
}

/// The webhook: its signature proves that it comes from Towpath.
async fn announce(
    State(shop): State<Arc<Shop>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Failed> {
    if let Err(error) = shop.webhook.verify(&body, &headers) {
        println!("refused: {error}");
        return Ok(StatusCode::UNAUTHORIZED);
    }
    let event: Value = serde_json::from_slice(&body)?;
    let update = "update shop.orders set announced_at = now() where order_id = $1 and announced_at is null";
    shop::connect().await?.execute(update, &[&event["data"]["payload"]["order"].as_i64()]).await?;
    Ok(StatusCode::OK)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let shop = Shop {
        towpath: std::env::var("TOWPATH_URL")?,
        client: Client::connect(std::env::var("DATABASE_URL")?).await?,
        webhook: Webhook::new(&std::env::var("WEBHOOK_KEY")?)?,
    };
    let router = Router::new()
        .route("/", get(Html(include_str!("../../../page.html"))))
        .route("/orders", post(place_order))
        .route("/orders/{order}", get(show_order))
        .route("/webhook", post(announce))
        .with_state(Arc::new(shop));
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("open http://127.0.0.1:{port}");
    axum::serve(listener, router).await?;
    Ok(())
}
