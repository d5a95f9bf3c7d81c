//! O07, Q21: one transaction of an application, in every driver.
//!
//! The application has two schemas of its own. A transaction writes to both, enqueues jobs, and ends; whatever an
//! enqueue answers is only noted, as a careless program would do.

#![expect(async_fn_in_trait, reason = "the trait is for this package only")]

pub mod drivers;

use serde::{Deserialize, Serialize};
use towpath::{Client, EnqueueOptions, Error, Job, JobId};

/// The job of the application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(kind = "resize", max_attempts = 3)]
pub struct Resize {
    pub image: i64,
}

/// The writes of the application before it enqueues.
pub const WRITES: [&str; 2] =
    ["insert into shop.orders (id) values (7)", "insert into billing.invoices (id) values (7)"];

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    Rollback,
}

/// A driver, connected.
pub trait Driver: Sized {
    async fn connect(url: &str) -> Self;

    /// Begins, runs [`WRITES`], enqueues each job and a batch of two more, emits an event, and ends. Answers what every
    /// enqueue of one job did.
    async fn transact(&mut self, jobs: &[(Resize, EnqueueOptions)], end: End) -> Vec<Result<JobId, Error>>;
}

/// The batch of every transaction.
pub fn batch() -> [(Resize, EnqueueOptions); 2] {
    [8, 9].map(|image| (Resize { image }, Resize::defaults()))
}

/// A database of one test with Towpath and the two schemas; dropped by the next run of the server.
pub async fn database(name: &str) -> (String, Client) {
    let server = std::env::var("TOWPATH_TEST_DATABASE_URL").expect("run this with tests/clients/rust/run");
    connection(&server).await.batch_execute(&format!("create database {name}")).await.expect("a new database");
    let (before, query) = server.split_once('?').expect("the server is named by options");
    let (host, _) = before.rsplit_once('/').expect("and a database");
    let url = format!("{host}/{name}?{query}");
    let client = Client::connect(url.as_str()).await.expect("the database answers");
    towpath::testing::prepare(&client).await.expect("the login is a superuser");
    let sql = "create schema shop; create table shop.orders (id bigint primary key);
               create schema billing; create table billing.invoices (id bigint primary key)";
    connection(&url).await.batch_execute(sql).await.expect("two schemas");
    (url, client)
}

/// A plain connection.
pub async fn connection(url: &str) -> tokio_postgres::Client {
    let (client, driver) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("the server answers");
    tokio::spawn(driver);
    client
}
