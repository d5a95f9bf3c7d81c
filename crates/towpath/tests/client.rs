//! The client: connecting, migrating, and asking about jobs.

use std::time::Duration;

use towpath::testing::{self, run_until_drained};
use towpath::{Client, Error, JobState};
use towpath_testkit::TestDb;

use crate::{Resize, open};

/// A database of a test, from nothing: migrated, gates open, a job enqueued and run.
#[tokio::test]
async fn an_empty_database_is_prepared_and_used() {
    let db = TestDb::empty().await;
    let client = Client::connect(db.url()).await.unwrap();
    testing::prepare(&client).await.unwrap();
    client.enqueue(&Resize { image: 7 }).await.unwrap();
    let worker = client.worker("images").handle(async |_: Resize, _| Ok(())).build().unwrap();
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 1);
    testing::prepare(&client).await.unwrap();
}

/// A pool that the program has already is used as it is; a worker on it polls.
#[tokio::test]
async fn a_pool_of_the_program_is_used() {
    let db = TestDb::open().await;
    let config = db.url().parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(4).build().unwrap();
    let client = Client::connect(pool.clone()).await.unwrap();
    client.migrate().await.unwrap();
    let mut connection = pool.get().await.unwrap();
    let transaction = connection.transaction().await.unwrap();
    let id = towpath::enqueue(&transaction, &Resize { image: 7 }).await.unwrap();
    transaction.commit().await.unwrap();
    let worker = client.worker("images").handle(async |_: Resize, _| Ok(())).build().unwrap();
    let stop = towpath::CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let job = client.wait(id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(job.state, JobState::Succeeded);
    stop.cancel();
    running.await.unwrap();
}

/// The state of a job, from its enqueue to its end.
#[tokio::test]
async fn a_job_is_followed_and_cancelled() {
    let (_db, client) = open().await;
    let id = client.enqueue(&Resize { image: 7 }).await.unwrap();
    let waits = client.wait(id, Duration::ZERO).await.unwrap();
    assert_eq!((waits.state, waits.state.ended(), waits.max_attempts), (JobState::Queued, false, 3));
    assert_eq!(client.cancel(id, "not wanted").await.unwrap(), JobState::Cancelled);
    let job = client.job(id).await.unwrap();
    assert!(job.state.ended() && job.finished_at.is_some(), "{job:?}");
    assert!(matches!(client.cancel(id, "twice").await, Err(Error::Conflict(_))));
    let none = client.job("0198c4a2-0000-7000-8000-000000000001".parse().unwrap()).await.unwrap_err();
    assert!(matches!(none, Error::NotFound(_)), "{none:?}");
}

/// A server that is not there is unavailable, which is no refusal.
#[tokio::test]
async fn a_missing_server_is_unavailable() {
    let error = Client::connect("postgresql://nobody@127.0.0.1:9/none").await.err().unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let error = Client::connect("not a url").await.err().unwrap();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}
