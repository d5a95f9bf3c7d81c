//! Workers: registration, results, middleware, ends in the handler's own transaction.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use towpath::testing::{Outcome, run_until_drained};
use towpath::{Context, Error, Failure, HandlerOptions, JobState};

use crate::{Resize, open};

/// R08: a worker needs no administrator: it registers its executor and its kinds, and jobs that were there run.
#[tokio::test]
async fn a_worker_registers_itself() {
    let (db, client) = open().await;
    let id = client.enqueue(&Resize { image: 7 }).await.unwrap();
    let worker = client.worker("images").handle(async |_: Resize, _| Ok(())).build().unwrap();
    let stop = towpath::CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    assert_eq!(client.wait(id, Duration::from_secs(60)).await.unwrap().state, JobState::Succeeded);
    stop.cancel();
    running.await.unwrap();
    let rows = "select executor_id || ' ' || job_kind || ' ' || enabled from towpath.job_subscription";
    assert_eq!(db.text(rows).await, "images resize true");
}

/// Every way to end is told to a test that runs the jobs itself.
#[tokio::test]
async fn a_test_sees_how_each_attempt_ended() {
    let (_db, client) = open().await;
    let worker = client
        .worker("images")
        .handle(async |job: Resize, ctx: Context| match job.image {
            1 => Ok(json!({ "width": 640, "attempt": ctx.attempt().number(), "of": ctx.max_attempts() })),
            2 => Err(Failure::permanent("no such image")),
            3 => Err(Failure::snooze(Duration::from_secs(60))),
            4 => Err(Failure::retry_after("busy", Duration::from_secs(60))),
            5 => Ok(Value::Null),
            6 => Ok(json!({ "pixels": "x".repeat(3 << 20) })),
            _ => Err(std::io::Error::other("disk").into()),
        })
        .build()
        .unwrap();
    let mut outcomes = vec![];
    for image in 1..=7 {
        let id = client.enqueue(&Resize { image }).await.unwrap();
        let ran = run_until_drained(&worker).await.unwrap();
        assert_eq!((ran.len(), ran[0].id, ran[0].kind.as_str()), (1, id, "resize"));
        outcomes.push(ran[0].outcome.clone());
    }
    let too_large = outcomes.remove(5);
    assert!(matches!(&too_large, Outcome::Permanent(why) if why.contains("store it elsewhere")));
    assert_eq!(
        outcomes,
        [
            Outcome::Succeeded(json!({ "width": 640, "attempt": 1, "of": 3 })),
            Outcome::Permanent("no such image".into()),
            Outcome::Snoozed,
            Outcome::Failed("busy".into()),
            Outcome::Succeeded(Value::Null),
            Outcome::Failed("disk".into()),
        ]
    );
}

/// Middleware is around every handler, the first one outermost; it sees the result and may replace it.
#[tokio::test]
async fn middleware_is_around_every_handler() {
    let (_db, client) = open().await;
    let seen = Arc::new(Mutex::new(vec![]));
    let note = |name: &'static str, seen: &Arc<Mutex<Vec<String>>>| {
        let seen = seen.clone();
        move |ctx: Context, next: towpath::Next| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push(format!("{name} {} {}", ctx.kind(), next.payload().get()));
                let result = next.run().await;
                let output =
                    result.as_ref().ok().and_then(|output| output.json()).map(|json| json.get().to_owned());
                seen.lock().unwrap().push(format!("{name} {}", output.unwrap_or_default()));
                if name == "outer" { Err(Failure::permanent("not today")) } else { result }
            }
        }
    };
    let worker = client
        .worker("images")
        .middleware(note("outer", &seen))
        .middleware(note("inner", &seen))
        .handle(async |job: Resize, _| Ok(job.image))
        .build()
        .unwrap();
    client.enqueue(&Resize { image: 7 }).await.unwrap();
    let ran = run_until_drained(&worker).await.unwrap();
    assert_eq!(ran[0].outcome, Outcome::Permanent("not today".into()));
    let payload = r#"{"image": 7}"#;
    let expected = [
        format!("outer resize {payload}"),
        format!("inner resize {payload}"),
        "inner 7".into(),
        "outer 7".into(),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// Q08: a job that ends in its handler's transaction ends with it: committed it has succeeded, and nobody ends it
/// again; rolled back it is not over.
#[tokio::test]
async fn a_job_ends_with_its_handlers_transaction() {
    let (db, client) = open().await;
    db.execute("create table thumb (image bigint primary key)").await;
    let url = db.url();
    let worker = client
        .worker("images")
        .handle_with(HandlerOptions::default().concurrency(4), move |job: Resize, ctx: Context| {
            let url = url.clone();
            async move {
                let (mut connection, driver) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                tokio::spawn(driver);
                let transaction = connection.transaction().await?;
                transaction.execute("insert into thumb values ($1)", &[&job.image]).await?;
                ctx.ack_in(&transaction).await?;
                match job.image {
                    1 => transaction.commit().await?,
                    _ => transaction.rollback().await?,
                }
                Ok(())
            }
        })
        .build()
        .unwrap();
    let commits = client.enqueue(&Resize { image: 1 }).await.unwrap();
    let rolls_back = client.enqueue(&Resize { image: 2 }).await.unwrap();
    assert_eq!(run_until_drained(&worker).await.unwrap().len(), 2);
    assert_eq!(client.job(commits).await.unwrap().state, JobState::Succeeded);
    assert!(!client.job(rolls_back).await.unwrap().state.ended(), "its end was rolled back with its row");
    assert_eq!(db.text("select string_agg(image::text, ' ') from thumb").await, "1");
    let runs = format!(
        "select count(*) from towpath.fn_job_history('{commits}') h, jsonb_array_elements(h -> 'events') e
                         where e ->> 'event' = 'succeeded'"
    );
    assert_eq!(db.text(&runs).await, "1", "ended once");
}

/// Q08: a handler that lost its lease cannot commit what it wrote.
#[tokio::test]
async fn a_lost_lease_takes_the_handlers_transaction_with_it() {
    let (db, client) = open().await;
    db.execute("create table thumb (image bigint primary key)").await;
    let (url, ender) = (db.url(), client.clone());
    let seen = Arc::new(Mutex::new(None));
    let saw = seen.clone();
    let worker = client
        .worker("images")
        .handle(move |job: Resize, ctx: Context| {
            let (url, ender, saw) = (url.clone(), ender.clone(), saw.clone());
            async move {
                let (mut connection, driver) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                tokio::spawn(driver);
                let transaction = connection.transaction().await?;
                transaction.execute("insert into thumb values ($1)", &[&job.image]).await?;
                ender.cancel(ctx.id(), "stopped by a person").await?;
                let error = ctx.ack_in(&transaction).await.unwrap_err();
                // Even a program that goes on regardless commits nothing.
                transaction.commit().await?;
                *saw.lock().unwrap() = Some(matches!(error, Error::LeaseLost(_)));
                Ok(())
            }
        })
        .build()
        .unwrap();
    let id = client.enqueue(&Resize { image: 1 }).await.unwrap();
    run_until_drained(&worker).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(true));
    assert_eq!(client.job(id).await.unwrap().state, JobState::Cancelled);
    assert_eq!(db.text("select count(*) from thumb").await, "0");
}

/// Q10, Q25: what a handler returns is the job's result, also if it ends the job in its own transaction, and however large
/// it is. A result that the database does not take makes the job a dead letter, because a retry would not change it.
#[tokio::test]
async fn a_result_is_kept() {
    let (db, client) = open().await;
    let url = db.url();
    let worker = client
        .worker("images")
        .handle(move |job: Resize, ctx: Context| {
            let url = url.clone();
            async move {
                match job.image {
                    1 => Ok(json!({ "width": 640 })),
                    2 => {
                        let (mut connection, driver) =
                            tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                        tokio::spawn(driver);
                        let transaction = connection.transaction().await?;
                        ctx.ack_in_with(&transaction, &json!({ "width": 320 })).await?;
                        transaction.commit().await?;
                        Ok(json!("not kept"))
                    }
                    // Small as text, but not as PostgreSQL stores it.
                    3 => Ok(json!(vec![1; 30_000])),
                    4 => Ok((0..100).fold(json!(1), |inner, _| json!([inner]))),
                    _ => Ok(json!("x".repeat(3 << 20))),
                }
            }
        })
        .build()
        .unwrap();
    let mut ids = vec![];
    for image in 1..=5 {
        ids.push(client.enqueue(&Resize { image }).await.unwrap());
    }
    run_until_drained(&worker).await.unwrap();
    for (id, width) in [(ids[0], 640), (ids[1], 320)] {
        let job = client.job(id).await.unwrap();
        assert_eq!(job.state, JobState::Succeeded);
        assert_eq!(serde_json::to_value(&job.result).unwrap(), json!({ "width": width }));
        assert_eq!(client.result::<Value>(id).await.unwrap(), json!({ "width": width }));
    }
    let large = client.job(ids[2]).await.unwrap().result.unwrap();
    assert!(large["payload_ref"].as_str().is_some_and(|text| text.starts_with("payload:")), "{large}");
    assert_eq!(client.result::<Vec<i32>>(ids[2]).await.unwrap(), vec![1; 30_000]);
    for id in &ids[3..] {
        let job = client.job(*id).await.unwrap();
        assert_eq!((job.state, job.ended()), (JobState::DeadLetter, true));
        assert!(job.error.as_ref().is_some_and(|error| error.contains("result")), "{job:?}");
        assert!(matches!(client.result::<Value>(*id).await, Err(Error::NotFound(_))));
    }
}
