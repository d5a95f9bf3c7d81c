//! `towpath up`: becomes ready, stops cleanly, and starts again after any kill.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::NoTls;
use towpath_testkit::wait;

use crate::towpath::{Place, words};

fn sigkill(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// O01: with no configuration, a private PostgreSQL, ready; Ctrl-C leaves no process behind.
#[tokio::test]
async fn a_clean_directory_reaches_ready_and_ctrl_c_leaves_nothing_behind() {
    let place = Place::new();
    let mut up = place.up().await;
    assert_eq!(place.get("/health").await, 200);
    assert_eq!(place.get("/nothing").await, 404);
    up.interrupt();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    place.until_empty().await;
}

/// A second signal ends the process at once, and PostgreSQL stops too.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    let mut up = place.up().await;
    // A held connection keeps the drain from finishing.
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", place.port)).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET /health HTTP/1.1\r\n").await.unwrap();
    up.terminate();
    up.wait_for_line("shutting down").await;
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(130));
    place.until_empty().await;
}

/// O01: kill -9 of towpath, then of postgres, in turns: every next start is healthy, and
/// what was committed is there.
#[tokio::test]
async fn ten_kills_in_a_row_and_every_next_start_is_healthy() {
    let place = Place::new();
    let mut up = place.up().await;
    for round in 0..10 {
        let url = place.ok(&["db", "url"]);
        let (client, connection) = tokio_postgres::connect(url.trim(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("create table if not exists kept (round int)").await.unwrap();
        let kept: i64 = client.query_one("select count(*) from kept", &[]).await.unwrap().get(0);
        assert_eq!(kept, round, "a committed row is gone");
        client.batch_execute(&format!("insert into kept values ({round})")).await.unwrap();
        let postmaster = place.postmaster().unwrap();
        if round % 2 == 0 {
            up.kill().await;
        } else {
            sigkill(postmaster);
            up.kill().await;
        }
        up = place.up().await;
        assert_ne!(place.postmaster(), Some(postmaster));
    }
    let doctor = place.run(&["doctor"]);
    // How full the disk of this machine is, is not this test's business.
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let wrong = told
        .lines()
        .find(|line| line.starts_with("FAIL") || (line.starts_with("WARN") && !line.contains("disk")));
    assert!(wrong.is_none() && told.contains("unchanged since it was installed"), "{}", words(&doctor));
    up.terminate();
    up.wait_exit().await;
    place.until_empty().await;
}

/// A killed PostgreSQL is started again under a running towpath, by itself.
#[tokio::test]
async fn a_killed_postgres_is_started_again() {
    let place = Place::new();
    let mut up = place.up().await;
    for _ in 0..2 {
        let postmaster = place.postmaster().unwrap();
        sigkill(postmaster);
        place.until_other_postmaster(postmaster).await;
        place.until("/ready", 200).await;
    }
    up.wait_for_line("restarting it").await;
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    place.until_empty().await;
}

/// The directory has one owner; a second `up` names it, and commands use the owner's server.
#[tokio::test]
async fn a_second_up_is_refused_and_commands_share_the_first() {
    let place = Place::new();
    let mut up = place.up().await;
    let second = place.command(&["up", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        words(&second).contains(&format!("in use by towpath process {}", up.pid())),
        "{}",
        words(&second)
    );
    assert!(place.ok(&["migrate", "--check"]).contains("up to date"));
    assert!(place.ok(&["db", "stop"]).contains(&up.pid().to_string()));
    assert_eq!(up.wait_exit().await.code(), Some(0));
    assert!(place.ok(&["db", "stop"]).contains("nothing is running"));
}

/// A kill in the middle of the very first start leaves nothing that stops the next one,
/// though the `initdb` of the killed one may still be writing.
#[tokio::test]
async fn a_kill_during_the_first_start_does_not_spoil_the_directory() {
    let moments: [fn(&std::path::Path) -> bool; 3] = [
        |data| data.join("towpath.lock").exists(),
        |data| {
            data.read_dir().is_ok_and(|mut dir| dir.any(|e| e.is_ok_and(|e| e.path().join("base").exists())))
        },
        |data| data.join("postgres/postmaster.pid").exists(),
    ];
    for moment in moments {
        let place = Place::new();
        let mut up = towpath_testkit::victim::Victim::spawn(place.command(&["up"]));
        up.kill_when(async {
            while !moment(&place.data()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let mut up = place.up().await;
        up.terminate();
        assert_eq!(up.wait_exit().await.code(), Some(0));
        place.until_empty().await;
    }
}

/// A data directory that only root may enter: PostgreSQL's user gets another directory, and everything works.
/// Skipped for other users, who need no second user.
#[tokio::test]
async fn a_directory_that_only_root_may_enter_is_handled() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(&place.dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut up = place.up().await;
    let real = place.data().join("postgres").canonicalize().unwrap();
    assert!(real.starts_with("/var/lib/towpath"), "{}", real.display());
    up.terminate();
    up.wait_exit().await;
    // The second start finds the link.
    let mut up = place.up().await;
    up.terminate();
    up.wait_exit().await;
    std::fs::remove_dir_all(real.parent().unwrap()).unwrap();
}

/// O01: everything works for a user who is not root, too.
#[tokio::test]
async fn an_ordinary_user_can_run_it() {
    let place = Place::new();
    let mut command = place.command(&["up"]);
    if nix::unistd::Uid::effective().is_root() {
        command = place.command_as("postgres", &["up"]);
    }
    let mut up = towpath_testkit::victim::Victim::spawn(command);
    up.wait_for_line("towpath is ready").await;
    assert_eq!(place.get("/ready").await, 200);
    up.interrupt();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    place.until_empty().await;
}

/// Paths too long for a Unix socket work too.
#[tokio::test]
async fn a_very_long_path_is_handled() {
    let mut place = Place::new();
    let root = place.dir.clone();
    place.dir = root.join("a".repeat(60)).join("b".repeat(60));
    std::fs::create_dir_all(&place.dir).unwrap();
    let mut up = place.up().await;
    assert!(place.ok(&["gate", "list"]).contains("queue.worker.enabled"));
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    std::fs::remove_dir_all(root).unwrap();
}

/// Loopback only when asked for, with a password that is never printed.
#[tokio::test]
async fn the_loopback_port_needs_the_password() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = place.command(&["up"]);
    command.env("TOWPATH_POSTGRES_PORT", port.to_string());
    let mut up = towpath_testkit::victim::Victim::spawn(command);
    up.wait_for_line("towpath is ready").await;
    let url = place.ok(&["db", "url"]);
    let password = std::fs::read_to_string(place.data().join("postgres.password")).unwrap();
    assert!(url.contains(&password) && url.contains(&port.to_string()), "{url}");
    let _connected = tokio_postgres::connect(url.trim(), NoTls).await.unwrap();
    let without = url.trim().replace(&format!(":{password}"), "");
    assert!(tokio_postgres::connect(&without, NoTls).await.is_err());
    assert!(!up.lines().iter().any(|line| line.contains(&password)), "the password was printed");
    up.terminate();
    up.wait_exit().await;
}

/// P10: on the private PostgreSQL each program has its own login, and none stays connected as a
/// superuser. A login cannot get rights that it was not given.
#[tokio::test]
async fn every_program_has_a_login_of_its_own() {
    let place = Place::new();
    let mut up = towpath_testkit::victim::Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let url = place.ok(&["db", "url"]);
    let (admin, connection) = tokio_postgres::connect(url.trim(), NoTls).await.unwrap();
    tokio::spawn(connection);
    place.ok(&["job", "enqueue", "towpath.noop"]);
    place.ok(&["events", "emit", "orders", "placed"]);
    let done = "select (select count(*) from towpath.job_queue where state = 'succeeded')
                       + (select count(*) from towpath.event_position)";
    let logins =
        "select coalesce(string_agg(distinct usename, ' ' order by usename), '') from pg_stat_activity
                   where application_name = 'towpath'";
    let expected = "towpath_maintainer_login towpath_router_login towpath_server_login towpath_worker_login";
    let look = async || -> (i64, String) {
        let worked = admin.query_one(done, &[]).await.unwrap().get(0);
        (worked, admin.query_one(logins, &[]).await.unwrap().get(0))
    };
    let is_right = |(worked, seen): &(i64, String)| *worked == 2 && *seen == expected;
    wait::until("two jobs done and every role connected", look, is_right).await;
    for (login, forbidden) in [
        ("towpath_worker_login", "select towpath.fn_delivery_claim('w')"),
        ("towpath_router_login", "select towpath.fn_job_claim('towpath')"),
        ("towpath_maintainer_login", "select towpath.fn_gate_set('queue.worker.enabled', false, 'a', 'b')"),
        ("towpath_server_login", "select towpath.fn_delivery_claim('w')"),
    ] {
        let as_login = url.trim().replace("://postgres@", &format!("://{login}@"));
        let (client, connection) = tokio_postgres::connect(&as_login, NoTls).await.unwrap();
        tokio::spawn(connection);
        for sql in
            [forbidden, "set role towpath_owner", "set role postgres", "set session authorization postgres"]
        {
            let error = client.batch_execute(&format!("reset role; {sql}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{login}: {sql}");
        }
    }
    up.terminate();
    up.wait_exit().await;
}

/// Gates start closed; `--dev` opens them, prints that, and records it.
#[tokio::test]
async fn dev_opens_the_gates_and_says_so() {
    let place = Place::new();
    let mut up = towpath_testkit::victim::Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("--dev opened every gate").await;
    up.wait_for_line("towpath is ready").await;
    let gates: serde_json::Value = serde_json::from_str(&place.ok(&["--json", "gate", "list"])).unwrap();
    assert!(gates.as_array().unwrap().iter().all(|gate| gate["effective_value"] == "true"), "{gates}");
    place.ok(&["gate", "close", "queue.worker.enabled", "--why", "a test", "--by", "tester"]);
    let history = place.ok(&["config", "history", "queue.worker.enabled"]);
    assert!(history.contains("tester") && history.contains("a test"), "{history}");
    assert!(history.contains("towpath up --dev"), "{history}");
    up.terminate();
    up.wait_exit().await;
}

/// While a request is running, the first signal lets it finish.
#[tokio::test]
async fn requests_in_flight_finish_after_the_first_signal() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let place = Place::new();
    let mut up = place.up().await;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", place.port)).await.unwrap();
    // The first answer proves that the connection was accepted; the second request is
    // half-sent when the signal comes.
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /health HTTP/1.1\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    up.terminate();
    up.wait_for_line("shutting down").await;
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        let mut rest = vec![];
        stream.read_to_end(&mut rest).await.map(|_| rest)
    });
    assert!(ended.await.is_ok(), "an idle half-request must not hold the drain forever");
    assert_eq!(up.wait_exit().await.code(), Some(0));
    place.until_empty().await;
}

/// `up --dev` prints a token that registers, enqueues and emits, and keeps it across restarts in a file for its owner.
#[tokio::test]
async fn dev_prints_a_token() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let mut tokens = vec![];
    for _ in 0..2 {
        let mut up = towpath_testkit::victim::Victim::spawn(place.command(&["up", "--dev"]));
        let line = up.wait_for_line("export TOWPATH_URL=").await;
        let (url, token) =
            line.trim().split_once("TOWPATH_URL=").unwrap().1.split_once(" TOWPATH_TOKEN=").unwrap();
        let post = async |path: &str, body: serde_json::Value| {
            let request = reqwest::Client::new().post(format!("{url}{path}")).bearer_auth(token);
            request.body(body.to_string()).send().await.unwrap().status().as_u16()
        };
        let kinds = serde_json::json!({"kinds": ["resize"]});
        assert_eq!(post("/api/v1/executors/register", kinds).await, 200);
        assert_eq!(post("/api/v1/jobs/enqueue", serde_json::json!({"job_kind": "anything"})).await, 201);
        let event = serde_json::json!({"domain": "shop", "type": "paid"});
        assert_eq!(post("/api/v1/events", event).await, 201);
        tokens.push(token.to_owned());
        up.terminate();
        assert_eq!(up.wait_exit().await.code(), Some(0));
    }
    assert_eq!(tokens[0], tokens[1], "the next start keeps it");
    let file = place.data().join("dev-token");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), tokens[0]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// O01: `up` registers its own executor, so that with the gates open, by one command, a job runs.
#[tokio::test]
async fn without_dev_a_job_runs_once_the_gates_are_open() {
    let place = Place::new();
    let mut up = place.up().await;
    up.wait_for_line("registered executor towpath").await;
    let opened = place.ok(&["gate", "open", "--all", "--why", "a test"]);
    assert!(opened.contains("queue.worker.enabled is now open"), "{opened}");
    let two = ["queue.worker.enabled", "process.enabled"];
    let closed = place.ok(&["gate", "close", two[0], two[1], "--why", "a test"]);
    assert_eq!(closed.trim(), "queue.worker.enabled is now closed\nprocess.enabled is now closed");
    let misspelt = place.run(&["gate", "open", two[1], "worker", "--why", "a test"]);
    assert!(words(&misspelt).contains("did you mean queue.worker.enabled?"), "{}", words(&misspelt));
    place.ok(&["gate", "open", two[0], "--why", "a test"]);
    assert!(place.ok(&["gate", "list"]).contains("process.enabled"), "nothing else was opened");
    place.ok(&["job", "enqueue", "towpath.noop", "--watch"]);
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
}

/// `up --dev` sends webhooks to this machine, and `routes test` does what that server would do.
#[tokio::test(flavor = "multi_thread")]
async fn dev_allows_webhooks_to_this_machine() {
    let receiver = towpath_testkit::receiver::Receiver::content().await;
    for (arguments, code) in [(&["up"][..], 4), (&["up", "--dev"], 0)] {
        let place = Place::new();
        let mut up = towpath_testkit::victim::Victim::spawn(place.command(arguments));
        up.wait_for_line("towpath is ready").await;
        place.ok(&["gate", "open", "--all", "--why", "a test"]);
        place.ok(&["routes", "add", "here", "--to-webhook", &receiver.url(), "--domain", "orders"]);
        let tested = place.run(&["routes", "test", "here"]);
        assert_eq!(tested.status.code(), Some(code), "{arguments:?}: {}", words(&tested));
        up.terminate();
        up.wait_exit().await;
    }
}

/// O01: open dashboard tabs, readers of streams and long polls of the API do not hold up a stop: none of them has to be
/// cut after the grace period.
#[tokio::test(flavor = "multi_thread")]
async fn open_readers_do_not_hold_up_a_stop() {
    let place = Place::new();
    let mut up = towpath_testkit::victim::Victim::spawn(place.command(&["up", "--dev"]));
    let line = up.wait_for_line("export TOWPATH_URL=").await;
    let token = line.trim().split_once("TOWPATH_TOKEN=").unwrap().1.to_owned();
    place.ok(&["stream", "create", "notes"]);
    place.ok(&["executor", "add", "dev", "--executor", "external_worker", "--job-kind", "greet", "--enable"]);
    let job = place.ok(&["--json", "job", "enqueue", "greet", "--executor", "external_worker", "--at", "1d"]);
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let url = format!("http://127.0.0.1:{}", place.port);
    let http = reqwest::Client::new();
    let gets = [
        format!("{url}/ui/live"),
        format!("{url}/ui/live"),
        format!("{url}/v1/stream/notes?offset=-1&live=sse"),
        format!("{url}/v1/stream/notes?offset=now&live=long-poll"),
        format!("{url}/api/v1/jobs/{}?wait=60", job["job_id"].as_str().unwrap()),
    ];
    let claim =
        http.post(format!("{url}/api/v1/jobs/claim")).body(r#"{"kinds": ["greet"], "wait_seconds": 30}"#);
    let mut requests: Vec<_> = gets.iter().map(|url| http.get(url)).collect();
    requests[4] = http.get(&gets[4]).bearer_auth(&token);
    requests.push(claim.bearer_auth(&token));
    let open: Vec<_> = requests
        .into_iter()
        .map(|request| {
            tokio::spawn(async move {
                let response = request.send().await.unwrap();
                let status = response.status().as_u16();
                (status, response.bytes().await.is_ok())
            })
        })
        .collect();
    let connections = async || {
        let page = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
        let line =
            page.lines().find(|line| line.starts_with("towpath_http_connections ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    wait::until("six open connections and the one that asks", connections, |open| *open >= 7).await;
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    for ended in open {
        let (status, whole) = ended.await.unwrap();
        assert!([200, 204].contains(&status) && whole, "a reader was cut off: {status}");
    }
    let cut = up.lines().into_iter().find(|line| line.contains("did not finish in time"));
    assert_eq!(cut, None);
}

/// `GET /` leads to the dashboard.
#[tokio::test]
async fn the_root_leads_to_the_dashboard() {
    let place = Place::new();
    let mut up = place.up().await;
    let page = reqwest::get(format!("http://127.0.0.1:{}/", place.port)).await.unwrap();
    assert_eq!((page.status().as_u16(), page.url().path()), (200, "/ui"));
    up.terminate();
    up.wait_exit().await;
}
