//! A database per test, cloned from a migrated template, with a clock that tests set.
//!
//! `./dev test` starts one throwaway PostgreSQL for the whole run and names it in
//! `TOWPATH_TEST_DATABASE_URL`. A test run by itself starts its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};
use towpath_db::Database;
use towpath_db::cluster::{self, Cluster, Durability};
use towpath_db::migrate::{self, Mode};

use crate::wait::{until, until_true};

/// The variable that names the server tests share.
pub const SERVER_VARIABLE: &str = "TOWPATH_TEST_DATABASE_URL";
/// The variable that names the programs of another PostgreSQL; the binary under test reads it too.
pub const PROGRAMS_VARIABLE: &str = "TOWPATH_POSTGRES_BIN";
/// The advisory lock under which one test process creates the template.
const TEMPLATE_LOCK: i64 = 0x7465_6d70_6c61_7465;

/// A database for one test. Dropping the value drops it.
pub struct TestDb {
    name: String,
    server: String,
    /// Idle connections of a superuser, reused because a new one starts with cold caches.
    idle: Mutex<Vec<Client>>,
}

impl TestDb {
    /// A migrated database with closed gates, as after an installation.
    pub async fn new() -> TestDb {
        let server = server_url().await;
        let template = template(&server).await;
        TestDb::create(server, Some(&template)).await
    }

    /// A migrated database with every gate open.
    pub async fn open() -> TestDb {
        let db = TestDb::new().await;
        db.execute("update towpath.config set value = 'true' where kind = 'gate'").await;
        db
    }

    /// An empty database.
    pub async fn empty() -> TestDb {
        TestDb::create(server_url().await, None).await
    }

    async fn create(server: String, template: Option<&str>) -> TestDb {
        let name = format!("test_{}", uuid::Uuid::now_v7().simple());
        let sql = match template {
            // Ten times faster than the default in memory: nothing goes through the WAL.
            Some(template) => format!("create database {name} template {template} strategy file_copy"),
            None => format!("create database {name}"),
        };
        connect(&server).await.batch_execute(&sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        TestDb { name, server, idle: Mutex::default() }
    }

    /// A database on another server, restored from a dump: `restore` gets the URL and the dump's file. Our roles
    /// exist already, as an operator would have created them.
    pub async fn restored(server: &TestServer, dump: &[u8], restore: impl FnOnce(&str, &Path)) -> TestDb {
        let server = server.url().to_owned();
        migrate::run(&server, Mode::Apply).await.unwrap_or_else(|error| panic!("the roles: {error}"));
        let db = TestDb::create(server, None).await;
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), dump).expect("room for a dump");
        restore(&db.url(), file.path());
        db
    }

    /// Its URL.
    pub fn url(&self) -> String {
        database_url(&self.server, &self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A typed client, as a superuser.
    pub async fn database(&self) -> Database {
        Database::connect(&self.url()).await.expect("a test database can be connected to")
    }

    /// A plain client, as a superuser.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// A plain client with the rights of one of our roles and no others.
    pub async fn client_as(&self, role: &str) -> Client {
        let client = self.client().await;
        let sql = format!("set session authorization {role}");
        client.batch_execute(&sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        client
    }

    /// A typed client as a login that has only one of our roles, and the login's name.
    pub async fn database_as(&self, role: &str) -> (Database, String) {
        let login = format!("{}_{role}", self.name);
        self.execute(&format!(
            "do $$ begin
                 if not exists (select 1 from pg_roles where rolname = '{login}') then
                     create role {login} login;
                     grant {role} to {login};
                 end if;
             end $$"
        ))
        .await;
        let mut url = self.url();
        // The last `user` parameter counts.
        url.push_str(if url.contains('?') { "&" } else { "?" });
        let database = Database::connect(&format!("{url}user={login}")).await;
        (database.expect("a login of ours can connect"), login)
    }

    /// The Unix socket of its server.
    pub async fn socket(&self) -> PathBuf {
        let directory = "split_part(current_setting('unix_socket_directories'), ',', 1)";
        self.text(&format!("{directory} || '/.s.PGSQL.' || current_setting('port')")).await.into()
    }

    /// Runs statements as a superuser.
    pub async fn execute(&self, sql: &str) {
        let client = self.take().await;
        client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        self.give_back(client).await;
    }

    /// The single value of a query, as text.
    pub async fn text(&self, sql: &str) -> String {
        let client = self.take().await;
        let sql = format!("select ({sql})::text");
        let row = client.query_one(&sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        self.give_back(client).await;
        row.get::<_, Option<String>>(0).unwrap_or_else(|| "null".to_owned())
    }

    async fn take(&self) -> Client {
        let idle = self.idle.lock().expect("nothing panics here").pop().filter(|client| !client.is_closed());
        match idle {
            Some(client) => client,
            None => self.client().await,
        }
    }

    /// Resets a connection and keeps it for the next call; drops it if it is broken.
    async fn give_back(&self, client: Client) {
        if client.batch_execute("discard all").await.is_ok() {
            self.idle.lock().expect("nothing panics here").push(client);
        }
    }

    /// The single jsonb value of a query.
    pub async fn json(&self, sql: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(sql).await).expect("the query answers jsonb")
    }

    /// The answer of a public function, written without its schema; it may refuse.
    pub async fn ask(&self, function: &str) -> serde_json::Value {
        self.json(&format!("towpath.{function}")).await
    }

    /// The answer of a public function that must not refuse.
    pub async fn call(&self, function: &str) -> serde_json::Value {
        let answer = self.ask(function).await;
        assert_eq!(answer["ok"], true, "{function}: {answer}");
        answer
    }

    /// Waits until a query returns this text.
    pub async fn until(&self, sql: &str, wanted: &str) {
        until(format!("{sql} = {wanted}"), async || self.text(sql).await, |text| text == wanted).await;
    }

    /// Moves the database's clock forward.
    pub async fn advance(&self, by: Duration) {
        let seconds = by.as_secs_f64();
        self.execute(&format!(
            "update testkit.clock set shift = shift + make_interval(secs => {seconds:.6}), \
             frozen_at = frozen_at + make_interval(secs => {seconds:.6})"
        ))
        .await;
    }

    /// Stops the database's clock at a moment; `advance` still moves it.
    pub async fn freeze(&self, at: Timestamp) {
        self.execute(&format!("update testkit.clock set frozen_at = '{at}'")).await;
    }
}

impl Drop for TestDb {
    /// Dropping needs a connection and `drop` is not async: a thread of its own does it.
    fn drop(&mut self) {
        let (server, sql) =
            (self.server.clone(), format!("drop database if exists {} with (force)", self.name));
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&server, NoTls).await.ok()?;
                tokio::spawn(connection);
                client.batch_execute(&sql).await.ok()
            })
        });
        // If the server has stopped, there is nothing to drop.
        let _ = dropper.join();
    }
}

/// A throwaway PostgreSQL and the directory it lives in.
pub struct TestServer {
    cluster: Cluster,
    dir: PathBuf,
}

impl TestServer {
    /// Starts one in a fresh temporary directory, after removing what earlier runs left.
    pub async fn start() -> TestServer {
        let root = memory().unwrap_or_else(std::env::temp_dir);
        sweep(&root);
        let dir = scratch_in(&root, "towpath-test-");
        let config = cluster::Config {
            data: dir.clone(),
            bin: programs(),
            durability: Durability::Throwaway,
            ..Default::default()
        };
        let cluster = Cluster::start(&config).await.unwrap_or_else(|error| panic!("no test server: {error}"));
        TestServer { cluster, dir }
    }

    /// Its URL, as a superuser on the database `towpath`.
    pub fn url(&self) -> &str {
        self.cluster.url()
    }

    /// Stops it and removes everything.
    pub async fn stop(self) {
        self.cluster.stop().await;
        let _ = std::fs::remove_dir_all(self.dir);
    }
}

/// The directory of the PostgreSQL programs under test, if one was chosen.
pub fn programs() -> Option<PathBuf> {
    std::env::var_os(PROGRAMS_VARIABLE).map(PathBuf::from)
}

/// A new directory that any user may enter: the server may not run as us.
pub fn scratch(prefix: &str) -> PathBuf {
    scratch_in(&std::env::temp_dir(), prefix)
}

/// The in-memory file system of Linux, if a test run fits into it: cloning a database creates about 300 files,
/// which takes 10 ms there and 250 ms on a virtual disk.
fn memory() -> Option<PathBuf> {
    const ROOM_BYTES_MIN: u64 = 2 << 30;
    let stat = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    (stat.blocks_available() * stat.fragment_size() >= ROOM_BYTES_MIN).then(|| "/dev/shm".into())
}

fn scratch_in(root: &Path, prefix: &str) -> PathBuf {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(root).expect("a temporary directory").keep();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}

/// Removes the directories of test servers that no process owns.
fn sweep(root: &Path) {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("towpath-test-")) {
        let path = entry.path();
        if path.join("towpath.lock").exists() && cluster::owner(&path).is_none() {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

async fn server_url() -> String {
    // Runs as long as the process: its leash stops it, and the next run removes its directory.
    static OWN: OnceCell<TestServer> = OnceCell::const_new();
    match std::env::var(SERVER_VARIABLE) {
        Ok(url) => url,
        Err(_) => OWN.get_or_init(own_server).await.url().to_owned(),
    }
}

/// Starts a server on a runtime that outlives the first test.
async fn own_server() -> TestServer {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let _ = send.send(TestServer::start().await);
            std::future::pending::<()>().await;
        });
    });
    receive.await.expect("the test server starts")
}

/// The migrated template of this build's schema, created once per server.
async fn template(server: &str) -> String {
    static NAME: OnceCell<String> = OnceCell::const_new();
    NAME.get_or_init(|| async {
        let name = format!("template_{}", &migrate::checksum()[..16]);
        let admin = connect(server).await;
        admin.execute("select pg_advisory_lock($1)", &[&TEMPLATE_LOCK]).await.expect("a lock");
        let exists = admin.query_opt("select 1 from pg_database where datname = $1", &[&name]).await;
        if exists.expect("the catalogue answers").is_none() {
            build_template(server, &admin, &name).await;
        }
        admin.execute("select pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await.expect("an unlock");
        name
    })
    .await
    .clone()
}

async fn build_template(server: &str, admin: &Client, name: &str) {
    let unfinished = format!("{name}_unfinished");
    for sql in [format!("drop database if exists {unfinished}"), format!("create database {unfinished}")] {
        admin.batch_execute(&sql).await.expect("the template's place");
    }
    let url = database_url(server, &unfinished);
    migrate::run(&url, Mode::Apply).await.unwrap_or_else(|error| panic!("the schema installs: {error}"));
    let client = connect(&url).await;
    client.batch_execute(CLOCK).await.unwrap_or_else(|error| panic!("the clock: {error:?}"));
    drop(client);
    // A template must have no connections, and the one above may still be closing.
    let alone = "select count(*) from pg_stat_activity where datname = $1";
    until_true("the end of the connection", async || {
        admin.query_one(alone, &[&unfinished]).await.expect("an answer").get::<_, i64>(0) == 0
    })
    .await;
    let rename = format!("alter database {unfinished} rename to {name}");
    admin.batch_execute(&rename).await.expect("the template's name");
}

/// Replaces `fn_now` by a clock that tests set. A security definer, because the roles under test may not read the
/// table.
const CLOCK: &str = "
    create schema testkit authorization towpath_owner;
    set role towpath_owner;
    create table testkit.clock (shift interval not null default '0', frozen_at timestamptz);
    insert into testkit.clock default values;
    create or replace function towpath.fn_now() returns timestamptz
        language sql volatile parallel safe security definer
        set search_path = pg_catalog, pg_temp
    as $$ select coalesce(frozen_at, clock_timestamp() + shift) from testkit.clock $$;
    reset role";

async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    tokio::spawn(connection);
    client
}

/// The URL of another database on the same server.
fn database_url(server: &str, database: &str) -> String {
    let (before, query) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = before.rsplit_once('/').expect("a test server's address names a database");
    format!("{host}/{database}?{query}")
}
