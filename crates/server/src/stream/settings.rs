//! Settings of streams, with defaults.

use std::time::Duration;

use super::fanout::FanOutSettings;
use crate::project::Auth;

/// Limits and time limits of the stream routes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a long poll waits for data.
    pub long_poll: Duration,
    /// How long one server-sent-events connection lasts before the client reconnects. The
    /// protocol suggests about a minute, so that caches can merge readers again.
    pub sse_lifetime: Duration,
    /// The largest body of one request.
    pub body_bytes_max: usize,
    /// Approximate size of one page; whole messages, at least one.
    pub page_bytes_max: usize,
    /// Concurrent live readers of one project.
    pub live_readers_max: usize,
    /// Streams of one project.
    pub streams_max: usize,
    /// The URL at which clients and webhook receivers reach this server; `None` is its own address.
    pub public_url: Option<String>,
    /// Webhooks of subscriptions may go to this machine over plain HTTP. For development.
    pub webhook_local: bool,
    /// Who needs a token.
    pub auth: Auth,
    /// Sessions and their fan-out.
    pub fan_out: FanOutSettings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            long_poll: Duration::from_secs(20),
            sse_lifetime: Duration::from_secs(60),
            body_bytes_max: 8 * 1024 * 1024,
            page_bytes_max: 1024 * 1024,
            live_readers_max: 10_000,
            streams_max: 1_000_000,
            public_url: None,
            webhook_local: false,
            auth: Auth::default(),
            fan_out: FanOutSettings::default(),
        }
    }
}
