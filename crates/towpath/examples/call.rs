//! shop.call: a process in Rust. Register its kind once: towpath process kind shop.call
//! Then run this with DATABASE_URL set. Crates: towpath, tokio (full), serde_json, anyhow.

use std::time::Duration;

use serde_json::{Value, json};
use towpath::{Client, Steps};

/// Runs from the top at every attempt; a step whose result is recorded does not run again.
async fn call(input: Value, steps: Steps) -> towpath::Result<Value> {
    // Your work. Give other services the key: it is the same at every attempt.
    let begun: Value = steps.step("begin", async || Ok(json!({ "key": steps.idempotency_key() }))).await?;

    // Goes on after a second, or when signalled: towpath process signal shop.call order:1 go
    let go: Option<Value> = steps.wait_for("go", Some(Duration::from_secs(1))).await?;
    Ok(json!({ "input": input, "begun": begun, "go": go }))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::connect(std::env::var("DATABASE_URL")?).await?;
    client.worker("shop").process("shop.call", call).build()?.run_until_signal().await?;
    Ok(())
}
