//! How many processes a second go from kickoff to their terminal fact, and whether that depends on
//! how many others are open. `bench/processes/run` builds it; the README there says what is measured.
//!
//! ```sh
//! bench DATABASE_URL --processes 2000 --open 1000,10000,100000
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::message::{Channel, SendOptions};
use towpath_db::migrate::{self, Mode};
use towpath_message::{Log, Transports};
use towpath_worker::{Maintenance, Worker, task};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Callers that kick processes off at once.
const CALLERS: usize = 8;
/// Kickoffs in one transaction while filling up.
const FILL: i64 = 1_000;
/// Single processes whose way from kickoff to the terminal fact is timed.
const SAMPLES: usize = 100;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "results go to standard output, a line of JSON each")]
async fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(default.to_owned(), Clone::clone)
    };
    let url = arguments.get(1).ok_or("the first argument is the address of an empty database")?;
    let processes: usize = option("--processes", "2000").parse()?;
    let bench = Bench::open(url).await?;
    bench.run(processes / 4).await?;
    for open in option("--open", "1000,10000,100000").split(',') {
        let open: i64 = open.parse()?;
        let filled = bench.fill(open).await?;
        let seconds = bench.run(processes).await?;
        let mut ways = bench.sample().await?;
        ways.sort();
        let line = json!({
            "open": open, "processes": processes, "seconds": seconds,
            "processes_per_second": processes as f64 / seconds,
            "kickoff_to_terminal_p50_ms": ways[SAMPLES / 2].as_secs_f64() * 1e3,
            "kickoff_to_terminal_p95_ms": ways[SAMPLES * 95 / 100].as_secs_f64() * 1e3,
            "idle_scan_ms": bench.scan().await?.as_secs_f64() * 1e3,
            "filled_in_seconds": filled.as_secs_f64(),
        });
        println!("{line}");
    }
    bench.shutdown.cancel();
    Ok(())
}

struct Bench {
    database: Database,
    client: Client,
    shutdown: CancellationToken,
}

impl Bench {
    /// A migrated database with open gates, and the worker and maintenance of `towpath up` on it.
    async fn open(url: &str) -> Anything<Bench> {
        migrate::run(url, Mode::Apply).await?;
        let database = Database::connect(url).await?;
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("update towpath.config set value = 'true' where kind = 'gate'").await?;
        let subscribe = "select towpath.fn_consumer_put('towpath', 'PG_worker'), \
             towpath.fn_job_subscription_put('towpath', 'PG_worker', p_max_parallel => null, p_enabled => true)";
        client.execute(subscribe, &[]).await?;
        let log = Arc::new(Log::new(Some("shop@example.com".into())));
        let transports = Transports { email: Some(log.clone()), sms: Some(log) };
        let builder = task::register(Worker::builder(database.clone(), "towpath"));
        let worker = towpath_message::register(builder, &transports).build()?;
        let shutdown = CancellationToken::new();
        tokio::spawn(worker.run(shutdown.clone()));
        tokio::spawn(Maintenance::new(database.clone()).run(shutdown.clone()));
        Ok(Bench { database, client, shutdown })
    }

    /// Makes sure that so many processes are open: messages to be sent next week.
    async fn fill(&self, wanted: i64) -> Anything<Duration> {
        let began = Instant::now();
        let open: i64 = self.count("finished_at is null").await?;
        let sql = "select count(comms.send_email('{\"to\": \"a@example.org\", \"subject\": \"s\", \"text\": \"t\"}',
                       null, now() + interval '7 days')) from generate_series(1, $1::bigint)";
        for done in (open..wanted).step_by(usize::try_from(FILL)?) {
            self.client.query_one(sql, &[&FILL.min(wanted - done)]).await?;
        }
        let took = began.elapsed();
        for sql in ["vacuum analyze", "checkpoint"] {
            self.client.batch_execute(sql).await?;
        }
        Ok(took)
    }

    async fn count(&self, what: &str) -> Anything<i64> {
        let sql = format!("select count(*) from towpath.process where {what}");
        Ok(self.client.query_one(&sql, &[]).await?.get(0))
    }

    /// Kicks processes off from several callers at once, and waits until all have succeeded.
    async fn run(&self, processes: usize) -> Anything<f64> {
        let before = self.count("state = 'succeeded'").await?;
        let wanted = before + i64::try_from(processes / CALLERS * CALLERS)?;
        let began = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let database = self.database.clone();
            callers.spawn(async move {
                for _ in 0..processes / CALLERS {
                    send(&database).await.expect("the database takes it");
                }
            });
        }
        callers.join_all().await;
        while self.count("state = 'succeeded'").await? < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// One process at a time on an idle system.
    async fn sample(&self) -> Anything<Vec<Duration>> {
        let mut ways = vec![];
        for _ in 0..SAMPLES {
            let began = Instant::now();
            let process_id = send(&self.database).await?;
            while !self.database.process_show(process_id).await?.process.is_over() {
                tokio::time::sleep(Duration::from_millis(1)).await;
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

async fn send(database: &Database) -> Result<towpath_model::id::ProcessId, towpath_db::Error> {
    let message = json!({ "to": "ann@example.org", "subject": "Your order", "text": "It is on its way." });
    Ok(database.message_send(Channel::Email, &message, SendOptions::default()).await?.process_id)
}
