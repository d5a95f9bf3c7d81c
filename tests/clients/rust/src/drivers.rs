//! The four drivers.

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, TransactionTrait};
use sqlx::{Connection, PgConnection};
use towpath::{EnqueueOptions, Error, JobId};

use crate::{Driver, End, Resize, WRITES, batch};

/// sqlx wants a host before it looks for the socket's directory behind the question mark.
fn for_sqlx(url: &str) -> String {
    url.replacen("@/", "@localhost/", 1)
}

pub struct TokioPostgres(tokio_postgres::Client);

impl Driver for TokioPostgres {
    async fn connect(url: &str) -> TokioPostgres {
        TokioPostgres(crate::connection(url).await)
    }

    async fn transact(&mut self, jobs: &[(Resize, EnqueueOptions)], end: End) -> Vec<Result<JobId, Error>> {
        let tx = self.0.transaction().await.unwrap();
        for sql in WRITES {
            tx.batch_execute(sql).await.unwrap();
        }
        let mut answers = vec![];
        for (job, options) in jobs {
            answers.push(towpath::enqueue(&tx, job).options(options.clone()).await);
        }
        let _ = towpath::enqueue_many(&tx, batch()).await;
        let _ = towpath::emit(&tx, "orders", "placed", &serde_json::json!({ "order": 7 })).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        answers
    }
}

pub struct Sqlx(PgConnection);

impl Driver for Sqlx {
    async fn connect(url: &str) -> Sqlx {
        Sqlx(PgConnection::connect(&for_sqlx(url)).await.unwrap())
    }

    async fn transact(&mut self, jobs: &[(Resize, EnqueueOptions)], end: End) -> Vec<Result<JobId, Error>> {
        let mut tx = self.0.begin().await.unwrap();
        for sql in WRITES {
            sqlx::query(sql).execute(&mut *tx).await.unwrap();
        }
        let mut answers = vec![];
        for (job, options) in jobs {
            answers.push(towpath::enqueue(&mut *tx, job).options(options.clone()).await);
        }
        let _ = towpath::enqueue_many(&mut tx, batch()).await;
        let _ = towpath::emit(&mut tx, "orders", "placed", &serde_json::json!({ "order": 7 })).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        answers
    }
}

pub struct DieselAsync(AsyncPgConnection);

impl Driver for DieselAsync {
    async fn connect(url: &str) -> DieselAsync {
        DieselAsync(AsyncPgConnection::establish(url).await.unwrap())
    }

    async fn transact(&mut self, jobs: &[(Resize, EnqueueOptions)], end: End) -> Vec<Result<JobId, Error>> {
        let mut answers = vec![];
        let done = self
            .0
            .transaction::<(), diesel::result::Error, _>(async |tx| {
                for sql in WRITES {
                    tx.batch_execute(sql).await?;
                }
                for (job, options) in jobs {
                    answers.push(towpath::enqueue(&mut *tx, job).options(options.clone()).await);
                }
                let _ = towpath::enqueue_many(&mut *tx, batch()).await;
                let _ = towpath::emit(&mut *tx, "orders", "placed", &serde_json::json!({ "order": 7 })).await;
                match end {
                    End::Commit => Ok(()),
                    End::Rollback => Err(diesel::result::Error::RollbackTransaction),
                }
            })
            .await;
        assert_eq!(done.is_ok(), end == End::Commit, "{done:?}");
        answers
    }
}

pub struct SeaOrm(DatabaseConnection);

impl Driver for SeaOrm {
    async fn connect(url: &str) -> SeaOrm {
        SeaOrm(Database::connect(for_sqlx(url)).await.unwrap())
    }

    async fn transact(&mut self, jobs: &[(Resize, EnqueueOptions)], end: End) -> Vec<Result<JobId, Error>> {
        let tx = self.0.begin().await.unwrap();
        for sql in WRITES {
            tx.execute_unprepared(sql).await.unwrap();
        }
        let mut answers = vec![];
        for (job, options) in jobs {
            answers.push(towpath::enqueue(&tx, job).options(options.clone()).await);
        }
        let _ = towpath::enqueue_many(&tx, batch()).await;
        let _ = towpath::emit(&tx, "orders", "placed", &serde_json::json!({ "order": 7 })).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        answers
    }
}
