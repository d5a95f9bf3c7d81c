//! Streams on this machine: their settings and the embedded store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, value_parser};
use towpath_db::cluster::private_dir;
use towpath_model::address::host_name;
use towpath_server::ReaderLimits;
use towpath_server::project::Projects;
use towpath_server::stream;
use towpath_server::tls::Tls;
use towpath_streams::embedded::{self, Embedded};

use crate::settings::Settings;

/// Settings of the stream routes.
#[derive(Args, Debug, Clone)]
pub(crate) struct StreamSettings {
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
        bail!(
            "{address} is public and no project has a key for tokens; create one with \
             towpath project add NAME, or listen on 127.0.0.1"
        );
    }
    if settings.tls_cert.is_none() {
        tracing::warn!(
            "{address} is public and tokens are sent unencrypted; turn on TLS with --tls-cert and --tls-key"
        );
    }
    Ok(())
}

async fn any_key(settings: &Settings) -> anyhow::Result<bool> {
    if !settings.data.join("streams").exists() {
        return Ok(false);
    }
    let store = open(settings).await?;
    let found = Projects::open(Arc::new(store.clone())).map(|projects| projects.any_key());
    shut_down(store).await;
    Ok(found?)
}

/// Opens the store in the data directory.
pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Embedded> {
    let directory = settings.data.join("streams");
    let shown = directory.display().to_string();
    private_dir(&settings.data).with_context(|| format!("cannot use {}", settings.data.display()))?;
    let opened =
        tokio::task::spawn_blocking(move || Embedded::open(embedded::Config::new(directory))).await?;
    opened.with_context(|| format!("cannot open the streams in {shown}"))
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
