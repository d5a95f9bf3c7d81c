//! Q19, Q21, E01: every guarantee of an enqueue in the caller's transaction, for every driver.

use towpath::testing::expect_enqueued;
use towpath::{Client, EnqueueOptions, Error, Job, Refusal};
use towpath_clients::drivers::{DieselAsync, SeaOrm, Sqlx, TokioPostgres};
use towpath_clients::{Driver, End, Resize, connection, database};

/// One test per driver and guarantee.
macro_rules! matrix {
    ($($module:ident: $driver:ty;)*) => {
        $(mod $module {
            use super::*;

            #[tokio::test]
            async fn commit_shows_everything_at_once() {
                let (url, _) = database(concat!(stringify!($module), "_commit")).await;
                super::commit_shows_everything_at_once::<$driver>(&url).await;
            }

            #[tokio::test]
            async fn rollback_leaves_nothing() {
                let (url, _) = database(concat!(stringify!($module), "_rollback")).await;
                super::rollback_leaves_nothing::<$driver>(&url).await;
            }

            #[tokio::test]
            async fn a_refusal_rolls_everything_back() {
                let (url, client) = database(concat!(stringify!($module), "_refusal")).await;
                super::a_refusal_rolls_everything_back::<$driver>(&url, &client).await;
            }

            #[tokio::test]
            async fn a_taken_key_answers_the_job_that_has_it() {
                let (url, _) = database(concat!(stringify!($module), "_key")).await;
                super::a_taken_key_answers_the_job_that_has_it::<$driver>(&url).await;
            }
        })*
    };
}

matrix! {
    tokio_postgres: TokioPostgres;
    sqlx: Sqlx;
    diesel_async: DieselAsync;
    sea_orm: SeaOrm;
}

/// Orders, invoices, jobs and events that others see.
async fn seen(url: &str) -> [i64; 4] {
    let sql = "select (select count(*) from shop.orders), (select count(*) from billing.invoices),
                      (select count(*) from towpath.job_queue), (select count(*) from towpath.event_outbox)";
    let row = connection(url).await.query_one(sql, &[]).await.unwrap();
    [0, 1, 2, 3].map(|column| row.get(column))
}

fn one(options: EnqueueOptions) -> [(Resize, EnqueueOptions); 1] {
    [(Resize { image: 7 }, options)]
}

/// Rows in two schemas of the application, a job, a batch and an event: all there after the commit.
async fn commit_shows_everything_at_once<D: Driver>(url: &str) {
    let answers = D::connect(url).await.transact(&one(Resize::defaults()), End::Commit).await;
    let id = answers[0].as_ref().unwrap();
    assert_eq!(seen(url).await, [1, 1, 3, 1]);
    let plain = connection(url).await;
    let sql = format!("select max_attempts, payload_json::text from towpath.job_queue where job_id = '{id}'");
    let row = plain.query_one(&sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, String>(1)), (3, r#"{"image": 7}"#.into()));
    let mut images: Vec<i64> = expect_enqueued::<Resize>(&plain).await.iter().map(|job| job.image).collect();
    images.sort_unstable();
    assert_eq!(images, [7, 8, 9]);
}

async fn rollback_leaves_nothing<D: Driver>(url: &str) {
    let answers = D::connect(url).await.transact(&one(Resize::defaults()), End::Rollback).await;
    assert!(answers[0].is_ok(), "{answers:?}");
    assert_eq!(seen(url).await, [0, 0, 0, 0]);
}

/// A closed gate and a bad value: the error says what and what to do, and the program that ignores it and commits has
/// written nothing.
async fn a_refusal_rolls_everything_back<D: Driver>(url: &str, client: &Client) {
    let mut driver = D::connect(url).await;
    let refused = driver.transact(&one(Resize::defaults().priority(-1)), End::Commit).await.remove(0).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert_eq!(refused.refused().unwrap().subject, "field: priority", "{refused:?}");
    assert_eq!(seen(url).await, [0, 0, 0, 0], "the commit was a rollback");

    let gate = "queue.job_substrate.enabled";
    let close = format!("update towpath.config set value = 'false' where key = '{gate}'");
    connection(url).await.batch_execute(&close).await.unwrap();
    let refused = driver.transact(&one(Resize::defaults()), End::Commit).await.remove(0).unwrap_err();
    assert_eq!(refused.refused().map(|refused| refused.refusal), Some(Refusal::GateClosed), "{refused:?}");
    assert_eq!(refused.refused().unwrap().subject, format!("gate: {gate}"));
    assert!(refused.hint().is_some_and(|hint| hint.contains("towpath gate open")), "{refused:?}");
    assert_eq!(seen(url).await, [0, 0, 0, 0], "the commit was a rollback");

    towpath::testing::prepare(client).await.unwrap();
    driver.transact(&one(Resize::defaults()), End::Commit).await.remove(0).unwrap();
    assert_eq!(seen(url).await, [1, 1, 3, 1], "the connection can go on");
}

async fn a_taken_key_answers_the_job_that_has_it<D: Driver>(url: &str) {
    let twice = [one(Resize::defaults().key("image:7")), one(Resize::defaults().key("image:7"))].concat();
    let answers = D::connect(url).await.transact(&twice, End::Commit).await;
    assert_eq!(answers[0].as_ref().unwrap(), answers[1].as_ref().unwrap());
    assert_eq!(seen(url).await, [1, 1, 3, 1], "one job with the key, and the batch");
    connection(url).await.batch_execute("delete from shop.orders; delete from billing.invoices").await.unwrap();
    let later = D::connect(url).await.transact(&one(Resize::defaults().key("image:7")), End::Commit).await;
    assert_eq!(later[0].as_ref().unwrap(), answers[0].as_ref().unwrap(), "also from another transaction");
    assert_eq!(seen(url).await, [1, 1, 5, 2], "its rows, its batch and its event are there all the same");
}
