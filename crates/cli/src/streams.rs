//! Streams: their settings, and the store in files or on a log in PostgreSQL.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, value_parser};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::cluster::private_dir;
use towpath_db::stream_intake::Routes;
use towpath_model::address::host_name;
use towpath_node::{Intake, Lease, PostgresLog};
use towpath_server::ReaderLimits;
use towpath_server::project::Projects;
use towpath_server::stream;
use towpath_server::tls::Tls;
use towpath_streams::FanOut;
use towpath_streams::embedded::{self, Embedded};

use crate::settings::Settings;

/// Where streams are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamStore {
    /// In files of the data directory.
    Embedded,
    /// As a log of commits in PostgreSQL. The data directory holds a cache.
    Postgres,
}

/// Settings of the stream routes.
#[derive(Args, Debug, Clone)]
pub(crate) struct StreamSettings {
    /// Where streams are stored: in files of the data directory, or in PostgreSQL with a cache there
    #[arg(long, value_name = "STORE", default_value = "embedded")]
    stream_store: StreamStore,
    /// PostgreSQL for streams, if another than database_url; towpath migrate must have run there
    #[arg(long, value_name = "URL", hide_env_values = true)]
    stream_database_url: Option<String>,
    /// Maximum request body
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20,
          value_parser = value_parser!(u32).range(1..=256 << 20))]
    stream_body_bytes_max: u32,
    /// Approximate maximum size of one read
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
          value_parser = value_parser!(u32).range(1024..=256 << 20))]
    stream_page_bytes_max: u32,
    /// How long a long poll waits for data
    #[arg(long, value_name = "MS", default_value_t = 20_000,
          value_parser = value_parser!(u32).range(1..=600_000))]
    stream_long_poll_ms: u32,
    /// How long one server-sent-events connection lasts before the client reconnects
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = value_parser!(u32).range(1..=86_400))]
    stream_sse_seconds: u32,
    /// Memory for data waiting on slow readers, in total; beyond it readers wait or reconnect
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20,
          value_parser = value_parser!(u32).range(1 << 20..=2 << 30))]
    reader_bytes_max: u32,
    /// Of that, maximum for the readers of one project
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20,
          value_parser = value_parser!(u32).range(1 << 20..=2 << 30))]
    reader_project_bytes_max: u32,
    /// Of that, maximum for one connection; also the largest read
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20,
          value_parser = value_parser!(u32).range(4 << 20..=256 << 20))]
    reader_connection_bytes_max: u32,
    /// Maximum live readers per project
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    stream_readers_max: u32,
    /// Maximum streams per project
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    stream_count_max: u32,
    /// URL at which clients and webhook receivers reach this server (default: http://LISTEN)
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Allow webhooks to this machine over http, for development
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    webhook_local: bool,
}

impl StreamSettings {
    /// Whether webhooks to this machine are allowed.
    pub(crate) fn webhook_local(&self) -> bool {
        self.webhook_local
    }

    /// Allows webhooks to this machine, whatever the setting.
    pub(crate) fn allow_webhook_local(&mut self) {
        self.webhook_local = true;
    }

    /// Converts to the server's settings.
    fn for_server(&self) -> stream::Settings {
        stream::Settings {
            long_poll: Duration::from_millis(self.stream_long_poll_ms.into()),
            sse_lifetime: Duration::from_secs(self.stream_sse_seconds.into()),
            body_bytes_max: self.stream_body_bytes_max as usize,
            page_bytes_max: self.stream_page_bytes_max as usize,
            live_readers_max: self.stream_readers_max as usize,
            streams_max: self.stream_count_max as usize,
            public_url: self.public_url.clone(),
            webhook_local: self.webhook_local,
            ..stream::Settings::default()
        }
    }
}

/// Memory limits for slow readers.
pub(crate) fn readers(settings: &Settings) -> ReaderLimits {
    let StreamSettings { reader_bytes_max, reader_project_bytes_max, reader_connection_bytes_max, .. } =
        settings.stream;
    ReaderLimits {
        server_bytes_max: reader_bytes_max as usize,
        project_bytes_max: reader_project_bytes_max as usize,
        connection_bytes_max: reader_connection_bytes_max as usize,
    }
}

/// All stream settings for the server.
pub(crate) fn for_server(settings: &Settings) -> anyhow::Result<stream::Settings> {
    Ok(stream::Settings {
        auth: settings.fan_out.auth(is_public(settings)),
        fan_out: settings.fan_out.for_server()?,
        ..settings.stream.for_server()
    })
}

/// The host names that the server accepts besides those of this machine.
pub(crate) fn hosts(settings: &Settings) -> Vec<String> {
    let listed = settings.hosts.iter().flat_map(|names| names.split(',')).map(str::trim);
    let public = settings.stream.public_url.iter().filter_map(|url| {
        let rest = url.split_once("://")?.1;
        Some(host_name(rest.split(['/', '?', '#']).next()?))
    });
    listed.chain(public).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether other machines can reach the server.
pub(crate) fn is_public(settings: &Settings) -> bool {
    !settings.listen.ip().is_loopback()
}

/// Whether clients connect over TLS, ended here or at a proxy.
pub(crate) fn is_reached_by_tls(settings: &Settings) -> bool {
    let public = settings.stream.public_url.as_deref().unwrap_or_default();
    settings.tls_cert.is_some() || public.to_ascii_lowercase().starts_with("https://")
}

/// Why a password is too weak for a public address.
fn weakness(password: &str) -> Option<&'static str> {
    let different: BTreeSet<char> = password.chars().collect();
    match (password.chars().count(), different.len()) {
        (..PASSWORD_CHARS_MIN, _) => Some("is too short: it needs 12 characters"),
        (_, ..PASSWORD_CHARS_DIFFERENT_MIN) => Some("is too repetitive: it needs 6 different characters"),
        _ => None,
    }
}

/// At ten guesses a minute per address, twelve characters are out of reach even for a large network.
const PASSWORD_CHARS_MIN: usize = 12;
const PASSWORD_CHARS_DIFFERENT_MIN: usize = 6;

/// Whether there is a dashboard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dashboard {
    /// It is served.
    Served,
    /// There is no database to show.
    Absent,
}

const ADD_A_KEY: &str = "create one with towpath project add NAME, or listen on 127.0.0.1";

/// A public server needs a password and a key. Checked before anything starts; creates no files in an empty
/// directory.
pub(crate) async fn require_keys(settings: &Settings, dashboard: Dashboard) -> anyhow::Result<()> {
    if !is_public(settings) {
        return Ok(());
    }
    let address = settings.listen;
    if dashboard == Dashboard::Served && settings.admin_password.is_none() {
        bail!(
            "{address} is public and the dashboard has no password; set one with \
             TOWPATH_ADMIN_PASSWORD, or listen on 127.0.0.1"
        );
    }
    if dashboard == Dashboard::Served {
        let passwords = [
            ("TOWPATH_ADMIN_PASSWORD", &settings.admin_password),
            ("TOWPATH_VIEWER_PASSWORD", &settings.viewer_password),
        ];
        for (name, password) in passwords {
            if let Some(weakness) = password.as_deref().and_then(weakness) {
                bail!(
                    "{address} is public and {name} {weakness}; generate one with: \
                     openssl rand -base64 18"
                );
            }
        }
    }
    if !any_key(settings).await? {
        bail!("{address} is public and no project has a key for tokens; {ADD_A_KEY}");
    }
    if settings.tls_cert.is_none() {
        tracing::warn!(
            "{address} is public and tokens are sent unencrypted; turn on TLS with --tls-cert and --tls-key"
        );
    }
    Ok(())
}

async fn any_key(settings: &Settings) -> anyhow::Result<bool> {
    if settings.stream.stream_store == StreamStore::Embedded && !settings.data.join("streams").exists() {
        return Ok(false);
    }
    // The private PostgreSQL does not run yet; `open` looks again.
    let is_private = settings.database_url.is_none() && settings.stream.stream_database_url.is_none();
    if settings.stream.stream_store == StreamStore::Postgres && is_private {
        return Ok(true);
    }
    let log_database = log_database(settings, None).await?;
    let store = open_store(settings, log_database.as_ref()).await?;
    let found = Projects::open(Arc::new(store.clone())).map(|projects| projects.any_key());
    shut_down(store).await;
    Ok(found?)
}

/// The open store, and its place if it is on a log that other nodes share.
pub(crate) struct OpenStreams {
    /// The store.
    pub(crate) store: Embedded,
    lease: Option<Lease>,
}

/// Opens the store of the settings. On a shared log it waits until no other node serves. `database` is the one that
/// the process has connected to.
pub(crate) async fn open(settings: &Settings, database: Option<&Database>) -> anyhow::Result<OpenStreams> {
    let log_database = log_database(settings, database).await?;
    let lease = match &log_database {
        Some(database) => Some(Lease::wait(database, &address(settings)).await.map_err(log_error)?),
        None => None,
    };
    let opened = OpenStreams { store: open_store(settings, log_database.as_ref()).await?, lease };
    if opened.lease.is_some() && is_public(settings) {
        let projects = Projects::open(Arc::new(opened.store.clone()))?;
        if !projects.any_key() {
            opened.shut_down().await;
            bail!("{} is public and no project has a key for tokens; {ADD_A_KEY}", settings.listen);
        }
    }
    Ok(opened)
}

/// Opens the store for one command. Another node that serves it would not notice its changes.
pub(crate) async fn open_alone(settings: &Settings) -> anyhow::Result<OpenStreams> {
    let log_database = log_database(settings, None).await?;
    let lease = match &log_database {
        Some(database) => match Lease::take(database, &address(settings)).await.map_err(log_error)? {
            Ok(lease) => Some(lease),
            Err(other) => bail!("the node at {other} serves the streams; run this on its machine"),
        },
        None => None,
    };
    Ok(OpenStreams { store: open_store(settings, log_database.as_ref()).await?, lease })
}

impl OpenStreams {
    /// The store if its files hold everything; none if they are a cache of a shared log.
    pub(crate) fn files(&self) -> Option<Embedded> {
        self.lease.is_none().then(|| self.store.clone())
    }

    /// Keeps the place of this node, and takes messages of SQL transactions in, until `shutdown`. A node that loses its
    /// place orders `shutdown`.
    pub(crate) fn work(
        &self,
        settings: &Settings,
        database: Option<Database>,
        routes: Routes,
        shutdown: &CancellationToken,
    ) -> Vec<JoinHandle<()>> {
        let mut running = Vec::new();
        if let Some(lease) = self.lease.clone() {
            running.push(tokio::spawn(lease.keep(shutdown.clone())));
        }
        if let Some(database) = database {
            let fan_out = match settings.fan_out.sessions_elsewhere() {
                true => FanOut::LATER,
                false => FanOut::AT_ONCE,
            };
            let intake = Intake::new(database, Arc::new(self.store.clone()), fan_out, &address(settings));
            let intake = if routes == Routes::Here { intake.with_routes() } else { intake };
            running.push(tokio::spawn(intake.run(shutdown.clone())));
        }
        running
    }

    /// Flushes pending writes, closes the store and gives its place up.
    pub(crate) async fn shut_down(self) {
        shut_down(self.store).await;
        if let Some(lease) = &self.lease {
            lease.release().await;
        }
    }
}

/// Where this node is, for others.
fn address(settings: &Settings) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let public = settings.stream.public_url.clone();
    public.unwrap_or_else(|| format!("{} ({})", settings.listen, host.to_string_lossy()))
}

/// The database with the log of commits, if streams are there.
async fn log_database(settings: &Settings, own: Option<&Database>) -> anyhow::Result<Option<Database>> {
    if settings.stream.stream_store == StreamStore::Embedded {
        return Ok(None);
    }
    let url = match (&settings.stream.stream_database_url, own, &settings.database_url) {
        (Some(url), _, _) => url,
        (None, Some(database), _) => return Ok(Some(database.clone())),
        (None, None, Some(url)) => url,
        (None, None, None) => bail!(
            "--stream-store postgres needs a database; name one with DATABASE_URL or --stream-database-url"
        ),
    };
    Ok(Some(Database::connect(url).await.context("cannot reach the database for streams")?))
}

async fn open_store(settings: &Settings, log_database: Option<&Database>) -> anyhow::Result<Embedded> {
    let name = if log_database.is_some() { "stream-cache" } else { "streams" };
    let directory = settings.data.join(name);
    let shown = directory.display().to_string();
    private_dir(&settings.data).with_context(|| format!("cannot use {}", settings.data.display()))?;
    let mut config = embedded::Config::new(directory);
    if let Some(database) = log_database {
        let log = PostgresLog::open(database.clone()).await.map_err(log_error)?;
        config.clock = log.clock();
        config.log = Some(Arc::new(log));
    }
    let opened = tokio::task::spawn_blocking(move || Embedded::open(config)).await?;
    opened.with_context(|| format!("cannot open the streams in {shown}"))
}

fn log_error(error: towpath_db::Error) -> anyhow::Error {
    anyhow::Error::new(error).context("cannot use the stream log; has towpath migrate run on its database?")
}

/// Flushes pending writes and closes the store.
pub(crate) async fn shut_down(store: Embedded) {
    let _ = tokio::task::spawn_blocking(move || store.shut_down()).await;
}

/// TLS, if there is a certificate.
pub(crate) fn tls(settings: &Settings) -> anyhow::Result<Option<Tls>> {
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificates), Some(key)) => Ok(Some(Tls::read(certificates, key)?)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O03: a public server refuses passwords that are short or repetitive.
    #[test]
    fn weak_passwords_are_named() {
        for weak in ["", "secret", "elevenchars", "aaaaaaaaaaaaaaaa", "121212121212"] {
            assert!(weakness(weak).is_some(), "{weak}");
        }
        for strong in ["correct horse battery", "Zm9vYmFyYmF6cXV4", "äöüßéèàç-1234"] {
            assert!(weakness(strong).is_none(), "{strong}");
        }
    }
}
