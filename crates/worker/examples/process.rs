//! A business process with nothing but Rust: a supervisor, and a typed handler for its attempts.
//!
//! A parcel is handed to a carrier, whose interface fails the first time. The database keeps the
//! facts; this program may be killed anywhere and started again.
//!
//! ```sh
//! DATABASE_URL=$(towpath db url) cargo run -p towpath-worker --example process
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use towpath_db::process::{NewProcess, ProcessWhole};
use towpath_db::subscription::SubscriptionSpec;
use towpath_db::{Database, Error};
use towpath_model::message::{Keys, Outcome};
use towpath_worker::process::{AttemptTask, NotDone, Supervisor, retry};
use towpath_worker::{Options, Worker};

/// The kind of process, and the kind of job that is one attempt of it.
const KIND: &str = "shop.ship_parcel";
const TASK: &str = "shop.hand_over";

/// What an operator does once: describes the kind, and lets the executor claim its jobs.
pub(crate) async fn install(database: &Database) -> Result<(), Error> {
    let settings =
        json!({ "task_kind": TASK, "ref_field": "parcel_id", "max_attempts": 3, "lease_seconds": 30 });
    database.process_kind_put(KIND, &settings, "example").await?;
    database.consumer_put("shop", "PG_worker", None, None, "example").await?;
    let spec = SubscriptionSpec {
        executor_id: "shop",
        executor_kind: "PG_worker",
        job_kind: Some(TASK),
        enabled: true,
        actor: "example",
        ..SubscriptionSpec::default()
    };
    database.subscription_put(&spec).await.map(drop)
}

/// The carrier. Its interface honours keys: it takes no parcel twice under one.
async fn hand_over(calls: &AtomicUsize, parcel: i64, key: &str) -> Result<serde_json::Value, NotDone> {
    if calls.fetch_add(1, Ordering::Relaxed) == 0 {
        let detail = json!({ "message": "the carrier does not answer" });
        return Err(NotDone { outcome: Outcome::Transient, detail });
    }
    Ok(json!({ "label_ref": format!("label:{parcel}"), "key_ref": key }))
}

/// Ships one parcel and answers everything that is known about it afterwards.
pub(crate) async fn ship(
    database: Database,
    parcel: i64,
) -> Result<ProcessWhole, Box<dyn std::error::Error>> {
    let shutdown = CancellationToken::new();
    // Decides from the facts alone. `retry` is the usual policy; your own decision is a match.
    let decide = |whole: &ProcessWhole| retry(whole, Duration::from_millis(10));
    let supervisor = tokio::spawn(Supervisor::new(database.clone(), KIND, decide).run(shutdown.clone()));

    let calls = Arc::new(AtomicUsize::new(0));
    let worker = Worker::builder(database.clone(), "shop")
        .handle_kind(TASK, Options::default(), move |task: AttemptTask, context| {
            let calls = calls.clone();
            async move {
                let parcel = task.more["parcel_id"].as_i64().unwrap_or_default();
                task.act(&context, Keys::Honoured, async |key| hand_over(&calls, parcel, &key).await).await
            }
        })
        .build()?;
    let worker = tokio::spawn(worker.run(shutdown.clone()));

    let new = NewProcess { process_kind: KIND, reference: &parcel.to_string(), ..NewProcess::default() };
    let process_id = database.process_start(&new).await?.process_id;
    let ended = loop {
        let whole = database.process_show(process_id).await?;
        if whole.process.is_over() {
            break whole;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    shutdown.cancel();
    supervisor.await?;
    worker.await?;
    Ok(ended)
}

#[tokio::main]
#[allow(dead_code, reason = "the tests run this file as a module")]
#[expect(clippy::print_stdout, reason = "it is a program for people")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::connect(&std::env::var("DATABASE_URL")?).await?;
    install(&database).await?;
    let whole = ship(database, 7).await?;
    for fact in whole.facts {
        println!("{:.3} {} {}", fact.at, fact.fact, fact.detail);
    }
    Ok(())
}
