//! Jobs in your own PostgreSQL transactions.
//!
//! A row of yours and the job about it are written together or not at all. Workers in any number of processes run the
//! jobs, retry them, report progress and return results. Towpath needs nothing but PostgreSQL; its server, `towpath up`,
//! adds maintenance, a dashboard, webhooks and streams.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use towpath::{Client, Context, Job};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! #[job(kind = "resize", max_attempts = 5)]
//! struct Resize {
//!     image: i64,
//! }
//!
//! #[derive(Serialize)]
//! struct Resized {
//!     width: u32,
//! }
//!
//! async fn resize(job: Resize, ctx: Context) -> towpath::Result<Resized> {
//!     ctx.progress(50, "reading").await?;
//!     println!("image {} in attempt {}", job.image, ctx.attempt());
//!     Ok(Resized { width: 640 })
//! }
//!
//! # async fn example(mut connection: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! // The application: the row and its job commit together.
//! let transaction = connection.transaction().await?;
//! transaction.execute("insert into image (id) values (7)", &[]).await?;
//! let id = towpath::enqueue(&transaction, &Resize { image: 7 }).key("image:7").await?;
//! transaction.commit().await?;
//!
//! // The worker, in this process or in another.
//! let client = Client::connect(std::env::var("DATABASE_URL")?).await?;
//! client.worker("images").handle(resize).build()?.run_until_signal().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A job's end in your transaction
//!
//! A job may run twice: a worker can die after its work and before its result is recorded. If the work is in the same
//! database, end the job in the same transaction:
//!
//! ```no_run
//! # use towpath::Context;
//! # async fn example(mut database: tokio_postgres::Client, ctx: Context) -> towpath::Result {
//! let transaction = database.transaction().await?;
//! transaction.execute("update account set balance = balance + 1", &[]).await?;
//! ctx.ack_in(&transaction).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Your own driver
//!
//! [`enqueue`], [`enqueue_many`] and [`emit`] take a [`Handle`]: a connection or transaction of `tokio-postgres` (the
//! default feature), `sqlx`, `diesel-async` or `sea-orm`. A refused call is an [`Error`] and raises in the database, so
//! that the transaction cannot commit even if the program ignores the error.

mod client;
pub mod testing;

pub use client::{Client, Source};
pub use jiff::Timestamp;
pub use tokio_util::sync::CancellationToken;
pub use towpath_db::door::{Emit, Enqueue, EnqueueOptions, Error, Handle, Refused};
pub use towpath_db::job_stream::JobStatus;
pub use towpath_derive::Job;
pub use towpath_model::id::EventId;
pub use towpath_model::job::{Attempt, JobId};
pub use towpath_model::job_state::JobState;
pub use towpath_model::refusal::Refusal;
pub use towpath_worker::{
    Builder as WorkerBuilder, ChildEnd, Context, Error as WorkerError, Failure, Job, Next,
    Options as HandlerOptions, Output, Result, Steps, Worker,
};

use serde::Serialize;

/// Enqueues a job on the caller's handle, in the caller's transaction if there is one. Await it; until then, set
/// options.
///
/// Returns the job's id. While an unfinished job has the same key, its id is the answer and nothing is written.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, towpath::Job)]
/// # #[job(kind = "resize")]
/// # struct Resize { image: i64 }
/// # async fn example(transaction: tokio_postgres::Transaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let id = towpath::enqueue(&transaction, &Resize { image: 7 }).key("image:7").priority(200).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub fn enqueue<'h, H: Handle + 'h, J: Job>(handle: H, job: &J) -> Enqueue<'h, H> {
    Enqueue::new(handle, J::KIND, job, J::defaults())
}

/// Enqueues many jobs of one kind, all of them or none, each with its own options. Returns their ids in the same order.
/// At most 10,000.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// # use towpath::Job;
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(kind = "resize")]
/// # struct Resize { image: i64 }
/// # async fn example(transaction: tokio_postgres::Transaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let images = (1..=1_000).map(|image| (Resize { image }, Resize::defaults().key(format!("image:{image}"))));
/// let ids = towpath::enqueue_many(&transaction, images).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn enqueue_many<J: Job>(
    handle: impl Handle,
    jobs: impl IntoIterator<Item = (J, EnqueueOptions)>,
) -> std::result::Result<Vec<JobId>, Error> {
    towpath_db::door::enqueue_many(handle, J::KIND, jobs).await
}

/// Emits an event on the caller's handle, in the caller's transaction if there is one. Routes then bring it to webhooks,
/// jobs and streams. Await it; until then, set options.
///
/// ```no_run
/// # async fn example(transaction: tokio_postgres::Transaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let order = serde_json::json!({ "order": 7 });
/// towpath::emit(&transaction, "orders", "placed", &order).subject("orders", "7").await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub fn emit<'h, H: Handle + 'h>(
    handle: H,
    domain: &str,
    r#type: &str,
    payload: &impl Serialize,
) -> Emit<'h, H> {
    Emit::new(handle, domain, r#type, payload)
}
