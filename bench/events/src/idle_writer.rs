//! A writer that leaves its transaction open: what it costs everybody else, and whether anything is
//! lost over it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_route::Config;

use crate::Log;
use crate::place::{Place, call, until};
use crate::race::round;

#[derive(Args)]
pub(crate) struct IdleWriter {
    /// How long the transaction stays open; as long again is measured without it first
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Connections that write meanwhile, one event per commit
    #[arg(long, default_value_t = 4)]
    writers: u32,
    /// Pause of each after a commit
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
    /// Slices of the work
    #[arg(long, default_value_t = 2)]
    slices: i32,
}

impl IdleWriter {
    pub(crate) async fn run(&self, log: &mut Log) -> anyhow::Result<()> {
        let place = Place::start().await?;
        let client = place.client().await?;
        call(&client, &format!("fn_route_worker_put('default', {}, 0)", self.slices)).await?;
        let role = place.role(Config::default()).await?;

        let without = self.write(&place, "without").await?;
        // It has written, so that it has a number that every later snapshot sees as running.
        let idle = place.client().await?;
        idle.batch_execute("begin").await?;
        let held = emit(&idle, "held").await?;
        let behind = self.write(&place, "behind").await?;
        let routed_behind = jobs_of(&client, "behind").await?;
        let held_early = jobs_of(&client, "held").await?;
        idle.batch_execute("commit").await?;
        let ended = Instant::now();
        until(&client, "select count(*) from towpath.job j join towpath.event_outbox o \
                        on 'event:' || o.event_id = j.source_ref where o.event_type = 'held'", 1).await?;
        let held_delay = ended.elapsed();
        let total = without.len() + behind.len() + 1;
        until(&client, "select count(*) from towpath.job", total as i64).await?;
        role.stop().await?;

        let made = routed(&client).await?;
        let committed: HashSet<&String> = without.iter().chain(&behind).chain([&held]).collect();
        let lost = committed.iter().filter(|event| !made.contains_key(**event)).count();
        let duplicated = made.values().filter(|jobs| **jobs > 1).count();
        let strange = made.keys().filter(|event| !committed.contains(event)).count();
        let [before, after] = [delays(&client, "without").await?, delays(&client, "behind").await?];
        log.tell(&json!({
            "what": "idle_writer", "seconds": self.seconds, "writers": self.writers, "slices": self.slices,
            "events_without": without.len(), "events_behind": behind.len(),
            "routed_while_it_was_open": routed_behind,
            "delay_ms_p50_without": round(before.p50), "delay_ms_p99_without": round(before.p99),
            "delay_ms_max_without": round(before.max),
            "delay_ms_p50_behind": round(after.p50), "delay_ms_p99_behind": round(after.p99),
            "delay_ms_max_behind": round(after.max),
            "added_ms_p50": round(after.p50 - before.p50), "added_ms_p99": round(after.p99 - before.p99),
            "delay_ms_p50_by_quarter": after.quarters.iter().map(|ms| round(*ms)).collect::<Vec<f64>>(),
            "held_event_after_its_commit_ms": round(held_delay.as_secs_f64() * 1000.0),
            "lost": lost, "duplicated": duplicated, "never_committed": strange,
        }))?;
        place.stop().await;
        ensure!(lost + duplicated + strange == 0, "events were lost, repeated or made up");
        ensure!(held_early == 0, "the held event was routed before its commit");
        ensure!(routed_behind > 0, "nothing was routed behind the open transaction: it held everybody up");
        Ok(())
    }

    /// Lets every writer write for the time, and answers what they committed.
    async fn write(&self, place: &Place, kind: &'static str) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let pause = Duration::from_millis(self.pause_ms);
        let mut writers = vec![];
        for _ in 0..self.writers {
            let client = place.client().await?;
            writers.push(tokio::spawn(async move {
                let mut committed = vec![];
                while Instant::now() < until {
                    committed.push(emit(&client, kind).await?);
                    tokio::time::sleep(pause).await;
                }
                anyhow::Ok(committed)
            }));
        }
        let mut committed = vec![];
        for writer in writers {
            committed.extend(writer.await??);
        }
        Ok(committed)
    }
}

async fn emit(client: &Client, kind: &str) -> anyhow::Result<String> {
    let emit = "select towpath.fn_event_emit('d', $1)";
    let answer: Value = client.query_one(emit, &[&kind]).await?.get(0);
    ensure!(answer["ok"] == true, "{answer}");
    Ok(answer["event_id"].as_str().unwrap_or_default().to_owned())
}

async fn jobs_of(client: &Client, kind: &str) -> anyhow::Result<i64> {
    let sql = "select count(*) from towpath.job j join towpath.event_outbox o \
               on 'event:' || o.event_id = j.source_ref where o.event_type = $1";
    Ok(client.query_one(sql, &[&kind]).await?.get(0))
}

/// Jobs by the event they were made of.
async fn routed(client: &Client) -> anyhow::Result<HashMap<String, i64>> {
    let sql = "select split_part(source_ref, ':', 2), count(*) from towpath.job group by 1";
    Ok(client.query(sql, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect())
}

struct Delays {
    p50: f64,
    p99: f64,
    max: f64,
    /// The median in each quarter of the time: it must not grow while the transaction is open.
    quarters: Vec<f64>,
}

/// From the event's writing, which is its commit but for the answer, to the job's, by the database's
/// clock.
async fn delays(client: &Client, kind: &str) -> anyhow::Result<Delays> {
    let sql = "with d as (
                   select extract(epoch from j.created_at - o.created_at) * 1000 as ms,
                          ntile(4) over (order by o.created_at) as quarter
                     from towpath.job j join towpath.event_outbox o on 'event:' || o.event_id = j.source_ref
                    where o.event_type = $1)
               select (select percentile_cont(array[0.5, 0.99, 1]) within group (order by ms)::double precision[] from d),
                      (select array_agg(q.p50 order by q.quarter) from (
                          select d.quarter, percentile_cont(0.5) within group (order by d.ms)::double precision as p50
                            from d group by d.quarter) q)";
    let row = client.query_one(sql, &[&kind]).await?;
    let (all, quarters): (Vec<f64>, Vec<f64>) = (row.get(0), row.get(1));
    Ok(Delays { p50: all[0], p99: all[1], max: all[2], quarters })
}
