//! Database connections: a pool, opened once.

use std::str::FromStr;
use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use towpath_model::doctor::SERVER_MAJOR_MIN;
use towpath_model::payload::MasterKeys;

use crate::answer::read_field;
use crate::audit::{Note, RECORD};
use crate::job::Numbers;
use crate::{Error, limits, tls};

/// A parameter of a statement.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A connected database of a supported version. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    address: Option<Address>,
    numbers: Numbers,
    master_keys: Option<Arc<MasterKeys>>,
    /// The action of the next call, to be audited in its transaction.
    note: Option<Arc<Note>>,
}

/// How to open a connection outside the pool.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: MakeRustlsConnect,
}

impl Database {
    /// Connects, and refuses servers that are too old. Does not check the schema.
    pub async fn connect(url: &str) -> Result<Database, Error> {
        let (config, tls) = parse_url(url)?;
        Database::open(Address { config, tls }).await
    }

    /// Uses a pool that the caller made. It cannot open connections outside of it, so it cannot listen or change its
    /// role.
    pub async fn from_pool(pool: Pool) -> Result<Database, Error> {
        let client = pool.get().await?;
        refuse_old_server(&client).await?;
        Ok(Database { pool, address: None, numbers: Numbers::default(), master_keys: None, note: None })
    }

    /// The same database in another role, which the login must be a member of: every connection starts as that role
    /// and has only its privileges.
    pub async fn as_role(&self, role: &str) -> Result<Database, Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if role.is_empty() || !role.chars().all(plain) {
            return Err(Error::Invalid(format!(
                "invalid role name {role:?}: use lower-case letters, digits and _"
            )));
        }
        let Address { mut config, tls } = self.address()?.clone();
        let before = config.get_options().unwrap_or_default();
        let options = format!("{before} -c role={role}");
        config.options(options.trim());
        self.again(Address { config, tls }).await
    }

    /// The same database with another connection, sharing this one's metrics.
    pub(crate) async fn again(&self, address: Address) -> Result<Database, Error> {
        let opened = Database::open(address).await?;
        Ok(Database { numbers: self.numbers.clone(), master_keys: self.master_keys.clone(), ..opened })
    }

    /// The same database, with the keys for encrypted payloads.
    pub fn with_master_keys(mut self, keys: MasterKeys) -> Database {
        self.master_keys = Some(Arc::new(keys));
        self
    }

    /// What unwraps the keys of projects.
    pub(crate) fn master_keys(&self) -> Option<&MasterKeys> {
        self.master_keys.as_deref()
    }

    async fn open(address: Address) -> Result<Database, Error> {
        let Address { config, tls } = &address;
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config.clone(), tls.clone(), manager_config))
            .max_size(limits::POOL_CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(limits::POOL_WAIT_MAX),
                create: Some(limits::CONNECT_WAIT_MAX),
                recycle: Some(limits::CONNECT_WAIT_MAX),
            })
            // Prefer recently used connections: their plans are cached.
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| Error::Unreachable(error.to_string()))?;
        let client = pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => Error::unreachable(&error, &whom(config)),
            other => Error::Unreachable(format!(
                "cannot connect to {}: {other}; check DATABASE_URL and that the server is running",
                whom(config)
            )),
        })?;
        refuse_old_server(&client).await?;
        drop(client);
        Ok(Database {
            pool,
            address: Some(address),
            numbers: Numbers::default(),
            master_keys: None,
            note: None,
        })
    }

    /// A pooled connection, for this crate's own calls.
    pub(crate) async fn client(&self) -> Result<deadpool_postgres::Object, Error> {
        Ok(self.pool.get().await?)
    }

    /// Calls one public SQL function that returns jsonb.
    pub(crate) async fn call(&self, sql: &str, params: &[Parameter<'_>]) -> Result<Value, Error> {
        if let Some(note) = self.note.as_ref().filter(|note| !note.is_written()) {
            return self.call_noted(note, sql, params).await;
        }
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query_one(&statement, params).await?.get(0))
    }

    /// The same, with an audit row in the same transaction. A refusal is recorded too.
    async fn call_noted(&self, note: &Note, sql: &str, params: &[Parameter<'_>]) -> Result<Value, Error> {
        let mut client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        let transaction = client.transaction().await?;
        let answer: Value = transaction.query_one(&statement, params).await?.get(0);
        let outcome = match answer["ok"] {
            Value::Bool(true) => "ok".to_owned(),
            _ => Error::refused(&answer).to_string(),
        };
        let row = transaction.query_one(RECORD, &note.params(&outcome)).await?;
        read_field::<i64>(row.get(0), "audit_id")?;
        transaction.commit().await?;
        note.set_written();
        Ok(answer)
    }

    /// The same database, whose next call is audited.
    pub(crate) fn with_note(&self, note: Arc<Note>) -> Database {
        Database { note: Some(note), ..self.clone() }
    }

    pub(crate) fn note(&self) -> Option<&Note> {
        self.note.as_deref()
    }

    /// Metrics of job calls through this database, in any role.
    pub fn job_numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn pool_status(&self) -> deadpool_postgres::Status {
        self.pool.status()
    }

    /// What opens a connection outside the pool.
    pub(crate) fn address(&self) -> Result<&Address, Error> {
        let none = "this needs connections outside of the pool; connect with a URL instead of a pool";
        self.address.as_ref().ok_or_else(|| Error::Invalid(none.into()))
    }

    /// Whether it can listen for notifications, which needs a connection outside the pool.
    pub fn can_listen(&self) -> bool {
        self.address.is_some()
    }

    /// The login of its connections.
    pub async fn login(&self) -> Result<String, Error> {
        Ok(self.client().await?.query_one("select session_user::text", &[]).await?.get(0))
    }

    /// Checks that the database responds.
    pub async fn ping(&self) -> Result<(), Error> {
        self.client().await?.simple_query("select 1").await?;
        Ok(())
    }

    /// Closes the pool: later calls fail, connections in use close after their call.
    pub fn close(&self) {
        self.pool.close();
    }
}

/// One connection outside any pool, driven by its own task.
pub(crate) async fn connect_once(url: &str) -> Result<Client, Error> {
    let (config, tls) = parse_url(url)?;
    let (client, connection) =
        config.connect(tls).await.map_err(|error| Error::unreachable(&error, &whom(&config)))?;
    tokio::spawn(connection);
    refuse_old_server(&client).await?;
    Ok(client)
}

fn parse_url(url: &str) -> Result<(Config, MakeRustlsConnect), Error> {
    let (plain, trust) = tls::split(url);
    let mut config = Config::from_str(&plain).map_err(|error| {
        Error::Invalid(format!(
            "DATABASE_URL is not a PostgreSQL address: {error}; \
             expected a form such as postgresql://user:password@host:5432/database"
        ))
    })?;
    if config.get_hosts().is_empty() {
        return Err(Error::Invalid("DATABASE_URL has no host; add @host:5432".into()));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::CONNECT_WAIT_MAX);
    }
    if config.get_application_name().is_none() {
        config.application_name("towpath");
    }
    Ok((config, trust.connector()?))
}

/// The server and database, without user or password.
pub(crate) fn whom(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let host = config.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or(config.get_user()).unwrap_or("its default");
    format!("database {database} on {}:{port}", host.unwrap_or_default())
}

async fn refuse_old_server(client: &Client) -> Result<(), Error> {
    let row = client.query_one("select current_setting('server_version_num')::integer / 10000", &[]).await?;
    let major: i32 = row.get(0);
    if major < SERVER_MAJOR_MIN {
        return Err(Error::Unsupported(format!(
            "the server is PostgreSQL {major}, but {SERVER_MAJOR_MIN} or newer is required; \
             upgrade it, or unset DATABASE_URL to use a private one"
        )));
    }
    Ok(())
}
