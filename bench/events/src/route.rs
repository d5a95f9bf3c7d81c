//! From commit to job: how many a second, how long one takes, and what a long history does to both.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tokio_postgres::Client;
use towpath_route::Config;

use crate::Log;
use crate::place::{Place, call, number, until};
use crate::race::round;

#[derive(Args)]
pub(crate) struct Route {
    /// Events that are stored and routed before, one measurement for each number, in rising order
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    stored: Vec<i64>,
    /// Events that wait when the role starts
    #[arg(long, default_value_t = 100_000)]
    events: i64,
    /// Single events on an idle system, whose delay is measured
    #[arg(long, default_value_t = 300)]
    samples: usize,
    /// How long the delay under a steady load is measured
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Slices of the work
    #[arg(long, default_value_t = 2)]
    slices: i32,
}

/// How far every slice has come. The jobs of a pass are committed with its mark, and looking at the marks
/// costs the same however many jobs wait.
const PASSED: &str = "select min(m.position) from towpath.route_worker_cursor c, lateral \
     (select position from towpath.route_cursor_mark where cursor_no = c.cursor_no order by mark_no desc limit 1) m";
/// The newest job, by an index: nobody runs them, so they grow in number from one measurement to the next.
const NEWEST: &str = "select job_id::text from towpath.job order by job_id desc limit 1";

impl Route {
    pub(crate) async fn run(&self, log: &mut Log) -> anyhow::Result<()> {
        let place = Place::start().await?;
        let client = place.client().await?;
        for &stored in &self.stored {
            store(&client, stored).await?;
            call(
                &client,
                &format!("fn_route_worker_put('default', {}, {})", self.slices, last(&client).await?),
            )
            .await?;
            client.batch_execute("vacuum analyze").await?;
            flush_disk(&client).await?;
            let (per_second, cpu) = self.backlog(&place, &client).await?;
            let idle = self.idle(&place, &client).await?;
            let busy = self.busy(&place, &client).await?;
            log.tell(&json!({
                "what": "route", "stored": stored, "events": self.events, "slices": self.slices,
                "routed_per_second": per_second.round(), "load": cpu,
                "idle_delay_ms_p50": idle[0], "idle_delay_ms_p99": idle[1],
                "busy_events_per_second": busy.0, "busy_delay_ms_p50": busy.1[0], "busy_delay_ms_p99": busy.1[1],
            }))?;
        }
        place.stop().await;
        Ok(())
    }

    /// Events wait; the role starts; when is the last one a job?
    async fn backlog(&self, place: &Place, client: &Client) -> anyhow::Result<(f64, String)> {
        let before = last(client).await?;
        let mut left = self.events;
        while left > 0 {
            call(client, &emit_many(left.min(1_000))).await?;
            left -= 1_000;
        }
        client.batch_execute("checkpoint").await?;
        let began = Instant::now();
        let role = place.role(Config::default()).await?;
        until(client, PASSED, before + self.events).await?;
        let took = began.elapsed();
        role.stop().await?;
        let load = std::fs::read_to_string("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned();
        Ok((self.events as f64 / took.as_secs_f64(), load))
    }

    /// One event after the other on an idle system: from its commit until its job is seen by somebody
    /// who looks all the time.
    async fn idle(&self, place: &Place, client: &Client) -> anyhow::Result<[f64; 2]> {
        let role = place.role(Config::default()).await?;
        let newer = "select exists (select from towpath.job where job_id > $1::text::uuid)";
        let mut delays = vec![];
        for _ in 0..self.samples {
            let mark: String = client.query_one(NEWEST, &[]).await?.get(0);
            call(client, "fn_event_emit('d', 'single')").await?;
            let began = Instant::now();
            while !client.query_one(newer, &[&mark]).await?.get::<_, bool>(0) {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            delays.push(began.elapsed().as_secs_f64() * 1000.0);
            // Not in step with the looks of the sequencer.
            tokio::time::sleep(Duration::from_micros(7_300)).await;
        }
        role.stop().await?;
        delays.sort_by(f64::total_cmp);
        Ok([round(delays[delays.len() / 2]), round(delays[delays.len() * 99 / 100])])
    }

    /// Eight connections emit one event per commit; the delay by the database's own clock, from the
    /// event's writing to the job's, without the commit of the pass.
    async fn busy(&self, place: &Place, client: &Client) -> anyhow::Result<(f64, [f64; 2])> {
        let from: String = client.query_one(NEWEST, &[]).await?.get(0);
        let role = place.role(Config::default()).await?;
        let until_then = Instant::now() + Duration::from_secs(self.seconds);
        let mut writers = vec![];
        for _ in 0..8 {
            let client = place.client().await?;
            writers.push(tokio::spawn(async move {
                let mut count = 0;
                while Instant::now() < until_then {
                    call(&client, "fn_event_emit('d', 'busy')").await?;
                    count += 1;
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
                anyhow::Ok(count)
            }));
        }
        let mut count = 0;
        for writer in writers {
            count += writer.await??;
        }
        let made = format!("select count(*) from towpath.job where job_id > '{from}'");
        until(client, &made, count).await?;
        role.stop().await?;
        let sql = format!(
            "select percentile_cont(array[0.5, 0.99]) within group (order by \
                 extract(epoch from j.created_at - o.created_at) * 1000)::double precision[] \
               from towpath.job j \
               join towpath.event_outbox o on o.event_id = split_part(j.source_ref, ':', 2)::uuid \
              where j.job_id > '{from}'"
        );
        let delay: Vec<f64> = client.query_one(&sql, &[]).await?.get(0);
        Ok(((count as f64 / self.seconds as f64).round(), [round(delay[0]), round(delay[1])]))
    }
}

/// Writes everything to disk, so that earlier writes do not disturb the measurement.
async fn flush_disk(client: &Client) -> anyhow::Result<()> {
    client.batch_execute("checkpoint").await?;
    let synced = tokio::process::Command::new("sync").status().await?;
    anyhow::ensure!(synced.success(), "sync: {synced}");
    Ok(())
}

/// Fills up to so many stored events, numbered and passed by every cursor.
async fn store(client: &Client, wanted: i64) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut have = last(client).await?;
    while have < wanted {
        let batch = (wanted - have).min(100_000);
        // Straight into the table: what matters is that they are there, not how they came.
        let insert = format!(
            "insert into towpath.event_outbox (event_id, event_domain, event_type, subject_ref, actor, payload) \
             select towpath._uuid7((date_part('epoch', clock_timestamp()) * 1000000)::bigint + n), 'stored', 't', \
                    n::text, 'bench', jsonb_build_object('order_ref', 'order:' || n) from generate_series(1, {batch}) n"
        );
        client.batch_execute(&insert).await?;
        while call(client, "fn_event_sequence(100000)").await?["more"] == true {}
        have = last(client).await?;
        // As maintenance does in time: without it the positions would lie in the default partition.
        call(client, "fn_event_partition_tick()").await?;
        eprint!("\rstored {have} events");
    }
    eprintln!(" in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

async fn last(client: &Client) -> anyhow::Result<i64> {
    number(client, "select last_position from towpath.event_tick order by tick_no desc limit 1").await
}

fn emit_many(count: i64) -> String {
    format!(
        "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
         'subject_ref', n::text, 'payload', jsonb_build_object('order_ref', 'order:' || n))) \
         from generate_series(1, {count}) n))"
    )
}
