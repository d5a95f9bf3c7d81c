//! How many processes a second go from kickoff to their terminal fact, and whether that depends on
//! how many others are open. `bench/processes/run` builds it; the README there says what is measured.
//!
//! ```sh
//! bench DATABASE_URL --processes 10000 --open 1000,1000000 --flows steps,function,email,comms
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::message::{Channel, SendOptions};
use towpath_db::migrate::{self, Mode};
use towpath_db::process::NewProcess;
use towpath_db::process_run::NewOfMany;
use towpath_message::{Log, Transports};
use towpath_model::id::ProcessId;
use towpath_worker::{Maintenance, Options, Steps, Worker, task};
use uuid::Uuid;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Callers that kick processes off at once.
const CALLERS: usize = 8;
/// Kickoffs in one call when they are in bulk.
const BULK: usize = 250;
/// Open processes that one call makes while filling up.
const FILL: i64 = 10_000;
/// Single processes whose way from kickoff to the terminal fact is timed.
const SAMPLES: usize = 100;

/// The kinds: one step in Rust, one step in SQL, an e-mail that is the input, and what stays open.
const KINDS: &str = "
    create schema if not exists bench;
    grant usage on schema bench to worker_service_user;
    create or replace function bench.one_step(process jsonb) returns jsonb language plpgsql security definer
        set search_path = pg_catalog, pg_temp
    as $$
    begin
        return towpath.process_step(process, 'one', '{\"done\": true}');
    end;
    $$;
    grant execute on function bench.one_step(jsonb) to worker_service_user;
    select towpath.process_kind('bench.steps'), towpath.process_kind('bench.later'),
           towpath.process_kind('bench.function', function => 'bench.one_step'),
           towpath.process_kind('bench.email', task_kind => 'email')";

#[tokio::main]
#[expect(clippy::print_stdout, reason = "results go to standard output, a line of JSON each")]
async fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(default.to_owned(), Clone::clone)
    };
    let url = arguments.get(1).ok_or("the first argument is the address of an empty database")?;
    let processes: usize = option("--processes", "10000").parse()?;
    let flows = option("--flows", "steps,function,email,comms");
    let bench = Arc::new(Bench::open(url).await?);
    for open in option("--open", "1000,1000000").split(',') {
        let open: i64 = open.parse()?;
        let filled = bench.fill(open).await?;
        for flow in flows.split(',') {
            for bulk in [true, false] {
                if bulk && flow == "comms" {
                    continue;
                }
                let processes = if bulk { processes } else { processes / 5 };
                bench.run(flow, processes / 10, bulk).await?;
                let seconds = bench.run(flow, processes, bulk).await?;
                let mut line = json!({
                    "open": open, "flow": flow, "kickoff": if bulk { "bulk" } else { "single" },
                    "processes": processes, "seconds": seconds, "processes_per_second": processes as f64 / seconds,
                });
                if !bulk {
                    let mut ways = bench.sample(flow).await?;
                    ways.sort();
                    line["kickoff_to_terminal_p50_ms"] = json!(ways[SAMPLES / 2].as_secs_f64() * 1e3);
                    line["kickoff_to_terminal_p95_ms"] = json!(ways[SAMPLES * 95 / 100].as_secs_f64() * 1e3);
                }
                println!("{line}");
            }
        }
        let scan = bench.scan().await?.as_secs_f64() * 1e3;
        println!(
            "{}",
            json!({ "open": open, "idle_scan_ms": scan, "filled_in_seconds": filled.as_secs_f64() })
        );
    }
    bench.shutdown.cancel();
    Ok(())
}

struct Bench {
    database: Database,
    client: Client,
    shutdown: CancellationToken,
    next: AtomicU64,
    /// The newest of the processes that stay open. Ids grow, so those that are measured come after it.
    filled: Mutex<Uuid>,
}

impl Bench {
    /// A migrated database with open gates, and the worker and maintenance of `towpath up` on it.
    async fn open(url: &str) -> Anything<Bench> {
        migrate::run(url, Mode::Apply).await?;
        let database = Database::connect(url).await?;
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("update towpath.config set value = 'true' where kind = 'gate'").await?;
        client.batch_execute(KINDS).await?;
        let subscribe = "select towpath.fn_consumer_put('towpath', 'PG_worker'), \
             towpath.fn_job_subscription_put('towpath', 'PG_worker', p_max_parallel => null, p_enabled => true)";
        client.execute(subscribe, &[]).await?;
        let log = Arc::new(Log::new(Some("shop@example.com".into())));
        let transports = Transports { email: Some(log.clone()), sms: Some(log) };
        let builder =
            task::register(Worker::builder(database.clone(), "towpath")).process_with(
                "bench.steps",
                Options::default().concurrency(512),
                |_: Value, steps: Steps| async move {
                    steps.step("one", async || Ok(json!({ "done": true }))).await
                },
            );
        let worker = towpath_message::register(builder, &transports).build()?;
        let shutdown = CancellationToken::new();
        tokio::spawn(worker.run(shutdown.clone()));
        tokio::spawn(Maintenance::new(database.clone()).run(shutdown.clone()));
        Ok(Bench { database, client, shutdown, next: AtomicU64::new(0), filled: Mutex::default() })
    }

    /// Makes sure that so many processes are open: to be started next week.
    async fn fill(&self, wanted: i64) -> Anything<Duration> {
        let began = Instant::now();
        let count = "select count(*) from towpath.process where finished_at is null";
        let open: i64 = self.client.query_one(count, &[]).await?.get(0);
        let sql = "select towpath.fn_process_start_many('bench.later', jsonb_agg(jsonb_build_object(
                       'ref', $1::bigint + g, 'check_at', now() + interval '7 days')))
                     from generate_series(1, $2::bigint) g";
        for done in (open..wanted).step_by(usize::try_from(FILL)?) {
            let answer: Value = self.client.query_one(sql, &[&done, &FILL.min(wanted - done)]).await?.get(0);
            assert_eq!(answer["ok"], true, "{answer}");
        }
        let took = began.elapsed();
        let newest = "select process_id from towpath.process order by process_id desc limit 1";
        *self.filled.lock().await = self.client.query_one(newest, &[]).await?.get(0);
        for sql in ["vacuum analyze", "checkpoint"] {
            self.client.batch_execute(sql).await?;
        }
        Ok(took)
    }

    /// Kicks processes off from several callers at once, and waits until all have succeeded.
    async fn run(self: &Arc<Self>, flow: &str, processes: usize, bulk: bool) -> Anything<f64> {
        let unfinished = "select exists (select from towpath.process
                                   where finished_at is null and state = 'open' and process_id > $1)";
        let unfinished = self.client.prepare(unfinished).await?;
        let filled = *self.filled.lock().await;
        let began = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let (bench, flow) = (self.clone(), flow.to_owned());
            let count = (processes + caller) / CALLERS;
            callers.spawn(async move {
                let mut left = count;
                while left > 0 {
                    let some = if bulk { BULK.min(left) } else { 1 };
                    bench.kick_off(&flow, some, bulk).await.expect("the database takes it");
                    left -= some;
                }
            });
        }
        callers.join_all().await;
        while self.client.query_one(&unfinished, &[&filled]).await?.get(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    async fn kick_off(&self, flow: &str, count: usize, bulk: bool) -> Result<ProcessId, towpath_db::Error> {
        let message =
            json!({ "to": "ann@example.org", "subject": "Your order", "text": "It is on its way." });
        if flow == "comms" {
            let sent = self.database.message_send(Channel::Email, &message, SendOptions::default()).await?;
            return Ok(sent.process_id);
        }
        let kind = format!("bench.{flow}");
        let input = if flow == "email" { message } else { Value::Null };
        let reference = || self.next.fetch_add(1, Ordering::Relaxed).to_string();
        if bulk {
            let new = |_| NewOfMany { reference: reference(), input: input.clone() };
            let new: Vec<NewOfMany> = (0..count).map(new).collect();
            return Ok(self.database.process_start_many(&kind, &new, None).await?[0]);
        }
        let reference = reference();
        let new = NewProcess { process_kind: &kind, reference: &reference, input, ..NewProcess::default() };
        Ok(self.database.process_start(&new).await?.process_id)
    }

    /// One process at a time on an idle system.
    async fn sample(&self, flow: &str) -> Anything<Vec<Duration>> {
        let mut ways = vec![];
        let sql = self
            .client
            .prepare("select finished_at is not null from towpath.process where process_id = $1")
            .await?;
        for _ in 0..SAMPLES {
            // The worker has gone to sleep.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let began = Instant::now();
            let process_id = self.kick_off(flow, 1, false).await?.uuid();
            while !self.client.query_one(&sql, &[&process_id]).await?.get::<_, bool>(0) {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            ways.push(began.elapsed());
        }
        Ok(ways)
    }

    /// How long a scan takes that finds nothing due.
    async fn scan(&self) -> Anything<Duration> {
        self.database.process_scan(100).await?;
        let began = Instant::now();
        for _ in 0..20 {
            self.database.process_scan(100).await?;
        }
        Ok(began.elapsed() / 20)
    }
}
