//! Messages while their worker is killed: after each statement of the flow, and while the provider has the message and
//! has not answered.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use towpath_db::message::{Channel, SendOptions};
use towpath_db::{Attribution, Database};
use towpath_model::id::ProcessId;
use towpath_testkit::TestDb;
use towpath_testkit::mail::MailServer;
use towpath_testkit::provider::{Provider, RESEND_KEY, TWILIO_ACCOUNT, TWILIO_SECRET};
use towpath_testkit::statement::{Answer, StatementGate};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;
use towpath_worker::Maintenance;

use crate::towpath::PROGRAM;

/// How often a worker is killed; a long run uses 200.
const KILLS_VARIABLE: &str = "TOWPATH_TEST_MESSAGE_KILLS";
const KILLS_DEFAULT: u64 = 18;
/// The statements that count: those of the flow, without heartbeats and renewals.
const STATEMENTS: [&str; 6] =
    ["fn_job_claim", "fn_job_start", "run_function", "fn_task_error_record", "fn_job_ack", "fn_job_fail"];
/// A flow with one failure takes nine of them: claim, before, task error, error handler, ack, and once
/// more claim, before, success handler, ack.
const POINTS: u64 = 9;

/// What is known about one process afterwards.
#[derive(Debug, Clone)]
struct History {
    process: String,
    state: String,
    facts: Vec<String>,
    max_attempts: usize,
    /// The key of every call of the provider.
    calls: Vec<String>,
    /// How many messages its recipient has.
    delivered: usize,
    /// How many the recipient may have at most: one, where the provider honours keys or where
    /// nothing uncertain is repeated.
    delivered_max: usize,
}

/// The violations: every process ends with exactly one terminal fact; the provider is called no more
/// often than allowed, always under the same key; nobody gets a message twice where that can be
/// promised; and what counts as sent was sent.
fn violations(histories: &[History]) -> Vec<String> {
    let mut found = vec![];
    for history in histories {
        let History { process, state, facts, max_attempts, calls, delivered, delivered_max } = history;
        let mut say = |what: String| found.push(format!("{process} {what}: {history:?}"));
        let terminal = ["succeeded", "gave_up", "cancelled", "invalid"];
        match facts.iter().filter(|fact| terminal.contains(&fact.as_str())).count() {
            1 => {}
            0 => say("never ended".into()),
            ends => say(format!("ended {ends} times")),
        }
        if !terminal.contains(&state.as_str()) || !facts.contains(state) {
            say(format!("is {state}, and no fact says so"));
        }
        if calls.len() > *max_attempts {
            say(format!("called the provider {} times", calls.len()));
        }
        if calls.iter().any(|key| key != process) {
            say("called the provider under another key".into());
        }
        if delivered > delivered_max {
            say(format!("was delivered {delivered} times"));
        }
        if state == "succeeded" && *delivered == 0 {
            say("counts as sent and was not".into());
        }
    }
    found
}

/// The checker finds every kind of bad history.
#[test]
fn the_checker_sees_bad_messages() {
    let good = History {
        process: "p".into(),
        state: "succeeded".into(),
        facts: ["started", "scheduled", "begun", "lost", "scheduled", "begun", "succeeded"]
            .map(String::from)
            .into(),
        max_attempts: 5,
        calls: vec!["p".into(), "p".into()],
        delivered: 1,
        delivered_max: 1,
    };
    assert_eq!(violations(std::slice::from_ref(&good)), Vec::<String>::new());
    let bad = |change: fn(&mut History), word: &str| {
        let mut history = good.clone();
        change(&mut history);
        let found = violations(&[history]);
        assert!(found.iter().any(|words| words.contains(word)), "{word}: {found:?}");
    };
    bad(|history| drop(history.facts.pop()), "never ended");
    bad(|history| history.facts.push("gave_up".into()), "ended 2 times");
    bad(|history| history.state = "open".into(), "no fact says so");
    bad(|history| history.calls = vec!["p".into(); 6], "called the provider 6 times");
    bad(|history| history.calls[1] = "q".into(), "under another key");
    bad(|history| history.delivered = 2, "was delivered 2 times");
    bad(|history| history.delivered = 0, "counts as sent and was not");
}

fn kills() -> u64 {
    std::env::var(KILLS_VARIABLE).map_or(KILLS_DEFAULT, |text| text.parse().unwrap())
}

/// P07, P08: Resend, which honours keys, and Twilio, which does not. Whenever a worker dies, nobody gets
/// an e-mail or an SMS twice.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_send_nothing_twice_through_the_apis() {
    let provider = Provider::start().await;
    let url = provider.url();
    let place = CrashTest::open(&[
        ("TOWPATH_MAIL_TRANSPORT", "resend"),
        ("TOWPATH_RESEND_API_KEY", RESEND_KEY),
        ("TOWPATH_RESEND_URL", &url),
        ("TOWPATH_SMS_TRANSPORT", "twilio"),
        ("TOWPATH_TWILIO_ACCOUNT", TWILIO_ACCOUNT),
        ("TOWPATH_TWILIO_AUTH_TOKEN", TWILIO_SECRET),
        ("TOWPATH_TWILIO_URL", &url),
        ("TOWPATH_MAIL_FROM", "shop@example.com"),
        ("TOWPATH_SMS_FROM", "+15005550006"),
    ])
    .await;
    let mut sent = vec![];
    for kill in 0..kills() * 2 / 3 {
        let mut worker = place.worker().await;
        let holds = kill % 5 == 4;
        if holds {
            provider.hold();
        } else {
            place.stop_after(kill);
        }
        let before = provider.carried_out();
        let (process_id, to) = match kill % 3 {
            2 => place.sms(&format!("+316{kill:05}{}", if holds { "001" } else { "429" })).await,
            _ => place.email(&format!("{}+{kill}@example.org", if holds { "held" } else { "once" })).await,
        };
        sent.push((process_id, to));
        match holds {
            true => provider.until_carried_out(before + 1).await,
            false => place.stopped().await,
        }
        worker.kill().await;
        provider.release();
    }
    place.finish().await;
    let mut histories = vec![];
    for (process_id, to) in sent {
        let calls = provider.requests(&to).into_iter().map(|request| request.key).collect();
        histories.push(place.history(process_id, calls, provider.delivered(&to).len(), 1).await);
    }
    place.judge(&histories);
}

/// P08: plain SMTP honours no keys, so a mail may come twice; its Message-ID is the same then, and the
/// server is asked no more often than allowed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_send_mails_under_one_id() {
    let server = MailServer::start().await;
    let (url, ca) = (server.smtps(), server.ca().display().to_string());
    let place = CrashTest::open(&[
        ("TOWPATH_MAIL_TRANSPORT", "smtp"),
        ("TOWPATH_SMTP_URL", &url),
        ("TOWPATH_SMTP_CA", &ca),
        ("TOWPATH_MAIL_FROM", "shop@example.com"),
    ])
    .await;
    let mut sent = vec![];
    for kill in 0..kills() / 3 {
        let mut worker = place.worker().await;
        place.stop_after(kill * 2);
        sent.push(place.email(&format!("once+{kill}@example.org")).await);
        place.stopped().await;
        worker.kill().await;
    }
    place.finish().await;
    let mut histories = vec![];
    for (process_id, to) in sent {
        let asked = server.asked(&to).len();
        let mails = server.mailbox(&to);
        let mut calls = vec![process_id.to_string(); asked];
        let strange = mails.iter().filter(|mail| !mail.contains(&format!("<{process_id}@example.com>")));
        calls.extend(strange.map(|mail| format!("a strange mail: {mail}")));
        histories.push(place.history(process_id, calls, mails.len(), mails.len()).await);
    }
    place.judge(&histories);
}

/// A database behind a gate, maintenance that runs throughout, and workers to kill.
struct CrashTest {
    db: TestDb,
    admin: Database,
    gate: StatementGate,
    environment: Vec<(String, String)>,
    maintenance: CancellationToken,
    /// How often a worker was stopped at which statement.
    stops: Mutex<BTreeMap<String, usize>>,
}

impl CrashTest {
    async fn open(environment: &[(&str, &str)]) -> CrashTest {
        let db = TestDb::open().await;
        let admin = db.database().await;
        // A dead worker's attempt is noticed after two seconds, and nothing waits for a backoff.
        db.execute(
            "update towpath.process_kind set max_attempts = 5, lease_seconds = 2, backoff_seconds = 0, pickup_seconds = 5, check_seconds = 1",
        )
        .await;
        db.json("towpath.fn_consumer_put('towpath', 'PG_worker')").await;
        db.json("towpath.fn_job_subscription_put('towpath', 'PG_worker', p_enabled => true)").await;
        let gate = StatementGate::start(db.socket().await, &STATEMENTS).await;
        let maintenance = CancellationToken::new();
        tokio::spawn(Maintenance::new(admin.clone()).run(maintenance.clone()));
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CrashTest {
            db,
            admin,
            gate,
            environment: environment.collect(),
            maintenance,
            stops: Mutex::default(),
        }
    }

    /// A worker behind the open gate that is ready to work.
    async fn worker(&self) -> Victim {
        self.gate.open();
        let mut command = std::process::Command::new(PROGRAM);
        command.args(["work", "--lease", "1", "--worker-role", "worker_service_user"]);
        let address =
            format!("postgresql://postgres@{}/{}?sslmode=disable", self.gate.addr(), self.db.name());
        command.env("DATABASE_URL", address).env("TOWPATH_MESSAGE_TIMEOUT_SECONDS", "2");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let worker = Victim::spawn(command);
        worker.wait_for_line("towpath worker is running as").await;
        worker
    }

    /// Each point of the flow in turn, with the answer read and with the answer lost.
    fn stop_after(&self, kill: u64) {
        let answer = if (kill / POINTS).is_multiple_of(2) { Answer::Read } else { Answer::Lost };
        self.gate.stop_after(1 + kill % POINTS, answer);
    }

    /// Waits until the gate stops, and records the statement.
    async fn stopped(&self) {
        let statement = self.gate.stopped(wait::WAIT_MAX).await.expect("the flow gets that far");
        let name =
            statement.split(['.', '(']).find(|word| STATEMENTS.iter().any(|known| word.contains(known)));
        *self.stops.lock().unwrap().entry(name.unwrap_or(&statement).to_owned()).or_default() += 1;
    }

    async fn email(&self, to: &str) -> (ProcessId, String) {
        let message = json!({ "to": to, "subject": "Your order", "text": "It is on its way." });
        let sent = self.admin.message_send(Channel::Email, &message, SendOptions::default()).await.unwrap();
        (sent.process_id, to.to_owned())
    }

    async fn sms(&self, to: &str) -> (ProcessId, String) {
        let message = json!({ "to": to, "text": "1234 is your code" });
        let sent = self.admin.message_send(Channel::Sms, &message, SendOptions::default()).await.unwrap();
        (sent.process_id, to.to_owned())
    }

    /// Runs a worker until every process has ended; held ones are given up as by a person.
    async fn finish(&self) {
        let worker = self.worker().await;
        wait::until_true("the end of every process", async || {
            let held =
                "select coalesce(jsonb_agg(process_id), '[]') from towpath.process where state = 'held'";
            let held: Vec<ProcessId> = serde_json::from_value(self.db.json(held).await).unwrap();
            for process_id in held {
                let by = Attribution { actor: "ann", reason: "nobody knows" };
                self.admin.process_resolve(process_id, "gave_up", by).await.unwrap();
            }
            self.db.text("select count(*) from towpath.process where finished_at is null").await == "0"
        })
        .await;
        drop(worker);
        self.maintenance.cancel();
    }

    async fn history(
        &self,
        process_id: ProcessId,
        calls: Vec<String>,
        delivered: usize,
        delivered_max: usize,
    ) -> History {
        let whole = self.admin.process_show(process_id).await.unwrap();
        History {
            process: process_id.to_string(),
            state: whole.process.state,
            facts: whole.facts.into_iter().map(|fact| fact.fact).collect(),
            max_attempts: usize::try_from(whole.process.max_attempts).unwrap(),
            calls,
            delivered,
            delivered_max,
        }
    }

    fn judge(&self, histories: &[History]) {
        let found = violations(histories);
        assert!(
            found.is_empty(),
            "{} violations, the first: {:?}",
            found.len(),
            &found[..found.len().min(3)]
        );
        let mut facts: BTreeMap<&str, usize> = BTreeMap::new();
        for fact in histories.iter().flat_map(|history| &history.facts) {
            *facts.entry(fact).or_default() += 1;
        }
        let calls: usize = histories.iter().map(|history| history.calls.len()).sum();
        let stops = self.stops.lock().unwrap();
        assert!(
            calls > 0,
            "{} kills, after {stops:?}; {calls} calls of the provider; facts {facts:?}",
            histories.len()
        );
        assert!(stops.contains_key("run_function"), "no kill around a handler: {stops:?}");
        assert!(facts.contains_key("lost"), "no attempt was lost: nothing was tested");
    }
}
