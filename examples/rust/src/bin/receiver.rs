//! Receives the events of the shop as webhooks, and verifies who sent them: `WEBHOOK_KEY=whsec_… receiver`.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use standardwebhooks::Webhook;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let webhook = std::sync::Arc::new(Webhook::new(&std::env::var("WEBHOOK_KEY")?)?);
    let receive = async move |headers: HeaderMap, body: Bytes| match webhook.verify(&body, &headers) {
        Ok(()) => {
            println!("verified {}", String::from_utf8_lossy(&body));
            StatusCode::NO_CONTENT
        }
        Err(error) => {
            println!("refused: {error}");
            StatusCode::UNAUTHORIZED
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:4600").await?;
    println!("listening on http://127.0.0.1:4600/events");
    axum::serve(listener, Router::new().route("/events", post(receive))).await?;
    Ok(())
}
