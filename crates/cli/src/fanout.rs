//! Settings of sessions and their fan-out, under the names of the source document.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use towpath_model::circuit;
use towpath_model::fanout::Limits;
use towpath_model::token::Bearer;
use towpath_server::project::Auth;
use towpath_server::stream;

use crate::bearer;

/// Settings of sessions.
#[derive(Args, Debug, Clone)]
pub(crate) struct FanOutArgs {
    /// Who needs a token: clients of registered projects, or everybody; always everybody on a public address
    #[arg(long, value_name = "WHO", default_value = "registered")]
    pub(crate) auth: Who,
    /// Token that commands send to the server
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// File with that token, or with one PROJECT TOKEN pair per line; read again when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long an unused session lives
    #[arg(long, value_name = "SECONDS", default_value_t = 1800,
          value_parser = value_parser!(u32).range(1..=31_536_000))]
    session_ttl_seconds: u32,
    /// How often to log expired sessions
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = value_parser!(u32).range(1..=86_400))]
    session_clean_seconds: u32,
    /// Server that hosts session streams, if not this one
    #[arg(long, value_name = "URL")]
    sessions_url: Option<String>,
    /// Token for that server
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    sessions_token: Option<String>,
    /// File with that token, or with one PROJECT TOKEN pair per line; read again when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "sessions_token")]
    sessions_token_file: Option<PathBuf>,
    /// Queue deliveries to many sessions; when false, sessions above max_inline_fanout are skipped
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    fanout_queue: bool,
    /// Above this number of sessions, deliveries are queued (default: no limit; 200 with sessions_url)
    #[arg(long, value_name = "N")]
    fanout_queue_threshold: Option<u32>,
    /// With fanout_queue off, sessions above this number are skipped (default: no limit; 1000 with sessions_url)
    #[arg(long, value_name = "N")]
    max_inline_fanout: Option<u32>,
    /// Concurrent deliveries per source to another server
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u16).range(1..=1000))]
    fanout_batch_size: u16,
    /// Timeout of one delivery to another server
    #[arg(long, value_name = "MS", default_value_t = 10_000,
          value_parser = value_parser!(u32).range(1..=600_000))]
    fanout_rpc_timeout_ms: u32,
    /// Consecutive failed batches that open a source's circuit
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    circuit_breaker_failure_threshold: u32,
    /// How long a circuit stays open before it is tried again
    #[arg(long, value_name = "MS", default_value_t = 60_000,
          value_parser = value_parser!(u32).range(1..=86_400_000))]
    circuit_breaker_recovery_ms: u32,
}

/// Who needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// Clients of registered projects.
    Registered,
    /// Everybody.
    Everybody,
}

impl FanOutArgs {
    /// Converts to the server's settings.
    pub(crate) fn for_server(&self) -> anyhow::Result<stream::FanOutSettings> {
        let milliseconds = |number: u32| Duration::from_millis(number.into());
        Ok(stream::FanOutSettings {
            limits: self.limits(),
            circuit: circuit::Limits {
                failures_max: self.circuit_breaker_failure_threshold,
                recovery: milliseconds(self.circuit_breaker_recovery_ms),
            },
            session_ttl_seconds: self.session_ttl_seconds.into(),
            clean_every: Duration::from_secs(self.session_clean_seconds.into()),
            sessions_url: self.sessions_url.clone(),
            sessions_bearer: bearer::from_settings(
                self.sessions_token.as_ref(),
                self.sessions_token_file.as_ref(),
            )?,
            batch: self.fanout_batch_size.into(),
            delivery_wait_max: milliseconds(self.fanout_rpc_timeout_ms),
        })
    }

    /// Sessions here have no limit unless one is set: a delivery costs the same for any number of them.
    fn limits(&self) -> Limits {
        let defaults = if self.sessions_elsewhere() { Limits::REMOTE } else { Limits::LOCAL };
        let or = |set: Option<u32>, default| set.map_or(default, |number| number as usize);
        Limits {
            queue_threshold: or(self.fanout_queue_threshold, defaults.queue_threshold),
            queue: self.fanout_queue,
            inline_max: or(self.max_inline_fanout, defaults.inline_max),
        }
    }

    /// Whether the streams of sessions are on another server.
    pub(crate) fn sessions_elsewhere(&self) -> bool {
        self.sessions_url.is_some()
    }

    /// The token that commands and a separate route role send to the server at `url`.
    pub(crate) fn bearer(&self) -> anyhow::Result<Bearer> {
        bearer::from_settings(self.token.as_ref(), self.token_file.as_ref())
    }

    /// On a public address everybody needs a token.
    pub(crate) fn auth(&self, is_public: bool) -> Auth {
        match self.auth {
            Who::Registered if !is_public => Auth::Local,
            _ => Auth::Required,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        fan_out: FanOutArgs,
    }

    fn limits(arguments: &[&str]) -> Limits {
        Command::parse_from([&["test"], arguments].concat()).fan_out.limits()
    }

    /// F03, F11: sessions of the same store have no limit by default; both thresholds count once they are set.
    #[test]
    fn sessions_here_have_no_limit_unless_one_is_set() {
        assert_eq!(limits(&[]), Limits::LOCAL);
        assert_eq!(limits(&["--sessions-url", "http://127.0.0.1:1"]), Limits::REMOTE);
        let set = ["--fanout-queue-threshold", "7", "--max-inline-fanout", "9", "--fanout-queue=false"];
        assert_eq!(limits(&set), Limits { queue_threshold: 7, queue: false, inline_max: 9 });
    }
}
