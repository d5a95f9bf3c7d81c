//! The race: every committed event must become exactly one job, after its cause.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_route::Config;

use crate::Log;
use crate::place::{Place, call, until};

#[derive(Args)]
pub(crate) struct Race {
    /// How long the writers write
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Connections that write
    #[arg(long, default_value_t = 16)]
    writers: u32,
    /// Roles, each with one route worker; the work is cut into as many slices
    #[arg(long, default_value_t = 4)]
    roles: usize,
}

/// A committed event and the newest one its writer had seen.
struct Committed {
    event: String,
    cause: Option<String>,
}

impl Race {
    pub(crate) async fn run(&self, log: &mut Log) -> anyhow::Result<()> {
        let place = Place::start().await?;
        let client = place.client().await?;
        call(&client, &format!("fn_route_worker_put('default', {}, 0)", self.roles)).await?;
        let mut roles = vec![];
        for _ in 0..self.roles {
            roles.push(place.role(Config { passes: 1, ..Config::default() }).await?);
        }
        let until_then = Instant::now() + Duration::from_secs(self.seconds);
        let naive = tokio::spawn(naive_cursor(place.client().await?, until_then));
        let mut writers = vec![];
        for writer in 0..self.writers {
            writers.push(tokio::spawn(write(place.client().await?, writer, until_then)));
        }
        let (mut committed, mut rolled_back) = (vec![], 0);
        for writer in writers {
            let (mine, gone) = writer.await??;
            committed.extend(mine);
            rolled_back += gone;
        }
        let seen = naive.await??;
        until(&client, "select count(*) from towpath.job", committed.len() as i64).await?;
        for role in roles {
            role.stop().await?;
        }
        let rows = client
            .query(
                "select split_part(j.source_ref, ':', 2), p.position from towpath.job j \
                 left join towpath.event_position p on p.event_id = split_part(j.source_ref, ':', 2)::uuid",
                &[],
            )
            .await?;
        let mut routed: HashMap<String, i64> = HashMap::new();
        let mut duplicated = 0;
        for row in &rows {
            duplicated += u32::from(routed.insert(row.get(0), row.get(1)).is_some());
        }
        let lost = committed.iter().filter(|one| !routed.contains_key(&one.event)).count();
        let early = committed
            .iter()
            .filter(|one| {
                let cause = one.cause.as_ref().and_then(|cause| routed.get(cause));
                cause.zip(routed.get(&one.event)).is_some_and(|(cause, event)| cause >= event)
            })
            .count();
        let naive_lost = committed.iter().filter(|one| !seen.contains(&one.event)).count();
        let delay = client
            .query_one(
                "select percentile_cont(array[0.5, 0.99]) within group (order by \
                     extract(epoch from j.created_at - o.created_at) * 1000)::double precision[] \
                   from towpath.job j join towpath.event_outbox o on 'event:' || o.event_id = j.source_ref",
                &[],
            )
            .await?;
        let delay: Vec<f64> = delay.get(0);
        log.tell(&json!({
            "what": "race", "seconds": self.seconds, "writers": self.writers, "roles": self.roles,
            "committed": committed.len(), "rolled_back": rolled_back, "lost": lost, "duplicated": duplicated,
            "effect_before_cause": early, "naive_cursor_lost": naive_lost,
            "delay_ms_p50": round(delay[0]), "delay_ms_p99": round(delay[1]),
        }))?;
        place.stop().await;
        ensure!(lost == 0 && duplicated == 0 && early == 0, "events were lost, repeated or out of order");
        ensure!(naive_lost > 0, "the naive cursor lost nothing: this race proves nothing");
        Ok(())
    }
}

/// Half a quick commit, a quarter up to 60 ms late, three in a hundred up to 400 ms; one in twenty
/// is rolled back.
async fn write(client: Client, writer: u32, until: Instant) -> anyhow::Result<(Vec<Committed>, u32)> {
    let (mut committed, mut rolled_back, mut turn) = (vec![], 0, writer * 7 + 1);
    while Instant::now() < until {
        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let dice = turn >> 16;
        client.batch_execute("begin").await?;
        let last = "select event_id::text from towpath.event_outbox order by id desc limit 1";
        let cause: Option<String> = client.query_opt(last, &[]).await?.map(|row| row.get(0));
        let emit = "select towpath.fn_event_emit('d', 't', p_subject_ref => $1)";
        let answer: Value = client.query_one(emit, &[&(dice % 1000).to_string()]).await?.get(0);
        let nap = match dice % 100 {
            0..25 => dice % 60,
            25..28 => 150 + dice % 250,
            _ => 0,
        };
        if nap > 0 {
            tokio::time::sleep(Duration::from_millis(nap.into())).await;
        }
        if dice % 20 == 3 {
            client.batch_execute("rollback").await?;
            rolled_back += 1;
            continue;
        }
        client.batch_execute("commit").await?;
        let event = answer["event_id"].as_str().unwrap_or_default().to_owned();
        committed.push(Committed { event, cause });
    }
    Ok((committed, rolled_back))
}

/// The control: a reader that remembers the last (created_at, id) it saw, polling every 10 ms.
async fn naive_cursor(client: Client, until: Instant) -> anyhow::Result<HashSet<String>> {
    let sql = "select event_id::text, created_at::text, id from towpath.event_outbox \
               where (created_at, id) > ($1::text::timestamptz, $2) and id > $2 - 100000 \
               order by created_at, id limit 10000";
    let (mut at, mut id) = ("-infinity".to_owned(), 0_i64);
    let mut seen = HashSet::new();
    // Longer than the writers, so that it misses nothing for lack of time.
    while Instant::now() < until + Duration::from_secs(3) {
        for row in &client.query(sql, &[&at, &id]).await? {
            seen.insert(row.get(0));
            (at, id) = (row.get(1), row.get(2));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(seen)
}

pub(crate) fn round(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}
