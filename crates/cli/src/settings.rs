//! Settings: flags override `TOWPATH_*` variables, which override a TOML file, which overrides defaults.
//!
//! One name per setting everywhere: `--log-level`, `TOWPATH_LOG_LEVEL`, `log_level`. The
//! file's values become the flags' defaults, so clap checks them all the same way.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum, value_parser};
use serde::Serialize;
use towpath_model::nearest::nearest;

use crate::fanout::FanOutArgs;
use crate::messages::MessageSettings;
use crate::metrics::MetricsSettings;
use crate::program::RoleSettings;
use crate::route::RouteSettings;
use crate::streams::StreamSettings;
use crate::trace::TraceSettings;

/// Every setting of the process.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// TOML file with settings (default: ./towpath.toml if there is one)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory for data on this machine
    #[arg(long, value_name = "DIR", default_value = "./.towpath")]
    pub(crate) data: PathBuf,
    /// PostgreSQL to use; without it a private one runs in the data directory
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    /// Address the HTTP server listens on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4437", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Log level: error, warn, info, debug, trace, or per module as in info,towpath_db=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::logging::parse_level)]
    pub(crate) log_level: tracing_subscriber::filter::Targets,
    /// Log format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Directory with the PostgreSQL programs for the private PostgreSQL (default: searched for)
    #[arg(long, value_name = "DIR")]
    pub(crate) postgres_bin: Option<PathBuf>,
    /// Loopback port for the private PostgreSQL (default: none, socket only)
    #[arg(long, value_name = "PORT", value_parser = value_parser!(u16).range(1..))]
    pub(crate) postgres_port: Option<u16>,
    /// User the private PostgreSQL runs as when towpath is root (default: postgres)
    #[arg(long, value_name = "USER")]
    pub(crate) postgres_user: Option<String>,
    /// Comma-separated host names, besides localhost, that a server on a loopback address accepts; the host in
    /// public_url is always accepted
    #[arg(long, value_name = "NAMES")]
    pub(crate) hosts: Option<String>,
    /// Maximum open connections; more are refused with 503
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) connections_max: u32,
    /// Maximum connections per remote address; 0 means no separate limit
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub(crate) connections_per_address_max: u32,
    /// TLS certificate chain in PEM, the server's own first; turns on TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// TLS private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Server that `towpath stream` and `towpath route` talk to (default: http://LISTEN)
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Dashboard password with full access (default: none, open on loopback)
    #[arg(long, value_name = "PASSWORD", hide_env_values = true)]
    pub(crate) admin_password: Option<String>,
    /// Dashboard password with read-only access
    #[arg(long, value_name = "PASSWORD", hide_env_values = true, requires = "admin_password")]
    pub(crate) viewer_password: Option<String>,
    /// File with the master key of encrypted payloads, mode 0600 (default: none)
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_master_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) roles: RoleSettings,
    #[command(flatten)]
    pub(crate) message: MessageSettings,
    #[command(flatten)]
    pub(crate) stream: StreamSettings,
    #[command(flatten)]
    pub(crate) fan_out: FanOutArgs,
    #[command(flatten)]
    pub(crate) route: RouteSettings,
    #[command(flatten)]
    pub(crate) metrics: MetricsSettings,
    #[command(flatten)]
    pub(crate) trace: TraceSettings,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines, one object per line.
    Json,
}

/// The file's own path cannot be set in the file.
const CONFIG: &str = "config";
/// URLs that may contain a password.
const SECRET_ADDRESSES: [&str; 3] = ["database_url", "smtp_url", "stream_database_url"];
/// Values that are secrets.
const SECRETS: [&str; 7] = [
    "admin_password",
    "viewer_password",
    "metrics_token",
    "resend_api_key",
    "twilio_auth_token",
    "token",
    "sessions_token",
];

/// The settings: key, and environment variable, which is the key in capitals.
fn known() -> Vec<(String, String)> {
    let command = Settings::augment_args(clap::Command::new("towpath"));
    let keys = command.get_arguments().map(|argument| argument.get_id().to_string());
    let with_variable = |key: String| match key.as_str() {
        "database_url" => (key, "DATABASE_URL".to_owned()),
        _ => (key.clone(), format!("TOWPATH_{}", key.to_uppercase())),
    };
    keys.map(with_variable).collect()
}

/// Every setting can be given to every command, and as a variable.
pub(crate) fn with_variables(command: clap::Command) -> clap::Command {
    known().into_iter().fold(command, |command, (key, variable)| {
        // Names live as long as the command, which is as long as the process.
        let variable: &'static str = variable.leak();
        command.mut_arg(key, |argument| argument.global(true).env(variable))
    })
}

/// Refuses an unknown `TOWPATH_*` variable, which would otherwise be a silent typo.
pub(crate) fn refuse_unknown_environment() -> anyhow::Result<()> {
    let known = known();
    let variables = || known.iter().map(|(_, variable)| variable.as_str());
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("TOWPATH_")) else { continue };
        // The test kit's own variables are not settings.
        if variables().any(|known| known == name) || name.starts_with("TOWPATH_TEST_") {
            continue;
        }
        match nearest(name, variables()) {
            Some(near) => bail!("unknown environment variable {name}; did you mean {near}?"),
            None => bail!("unknown environment variable {name}; see: towpath settings"),
        }
    }
    Ok(())
}

/// The settings file, read and checked for unknown keys.
#[derive(Default)]
pub(crate) struct File {
    path: Option<PathBuf>,
    values: BTreeMap<String, String>,
}

impl File {
    /// Reads the file named by the arguments or the environment, or `./towpath.toml` if it exists.
    pub(crate) fn read(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<File> {
        let named = named_file(arguments).or_else(|| std::env::var_os("TOWPATH_CONFIG").map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None if PathBuf::from("towpath.toml").exists() => PathBuf::from("towpath.toml"),
            None => return Ok(File::default()),
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the settings file {}", path.display()))?;
        let values = parse(&text).with_context(|| format!("in the settings file {}", path.display()))?;
        Ok(File { path: Some(path), values })
    }

    /// The command with this file's values as its defaults.
    pub(crate) fn as_defaults(&self, command: clap::Command) -> clap::Command {
        self.values.iter().fold(command, |command, (key, value)| {
            // Defaults live as long as the command, which is as long as the process.
            let value: &'static str = value.clone().leak();
            command.mut_arg(key, |argument| argument.default_value(value))
        })
    }
}

/// `--config FILE` or `--config=FILE`, anywhere on the line.
fn named_file(arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        match text.strip_prefix("--config") {
            Some("") => return arguments.next().map(PathBuf::from),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].into()),
            _ if text == "--" => return None,
            _ => {}
        }
    }
    None
}

/// Only flat keys with plain values are valid; anything else is reported.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        anyhow::anyhow!("line {line} is not TOML: {}", error.message())
    })?;
    let known = known();
    let keys = || known.iter().map(|(key, _)| key.as_str()).filter(|key| *key != CONFIG);
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !keys().any(|known| known == key) {
            match nearest(&key, keys()) {
                Some(near) => bail!("unknown key {key}; did you mean {near}?"),
                None => bail!("unknown key {key}; known keys: {}", keys().collect::<Vec<_>>().join(", ")),
            }
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            other => bail!("{key} takes a plain value, not {}", other.type_str()),
        };
        values.insert(key, value);
    }
    Ok(values)
}

/// One setting in effect, without secrets.
#[derive(Serialize)]
pub(crate) struct Origin {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    /// `flag`, the variable's name, the file's path, or `default`.
    pub(crate) from: String,
    /// The value as it was given, with secrets.
    #[serde(skip)]
    pub(crate) raw: Option<String>,
}

impl Origin {
    /// Whether a flag or a variable gave it.
    pub(crate) fn is_given(&self) -> bool {
        self.from == "flag" || self.from.contains("TOWPATH_") || self.from == "DATABASE_URL"
    }
}

/// Where every setting came from.
pub(crate) struct Origins(pub(crate) Vec<Origin>);

impl Origins {
    pub(crate) fn new(matches: &ArgMatches, file: &File) -> Origins {
        Origins(known().into_iter().map(|(key, variable)| origin(matches, file, key, variable)).collect())
    }

    /// Those that are not defaults on one line, for the log.
    pub(crate) fn in_words(&self) -> String {
        let given = self.0.iter().filter(|origin| origin.from != "default").filter_map(|origin| {
            let value = origin.value.as_ref()?;
            Some(format!("{}={value} ({})", origin.key, origin.from))
        });
        let given: Vec<_> = given.collect();
        if given.is_empty() { "default settings".to_owned() } else { given.join(" ") }
    }
}

fn origin(matches: &ArgMatches, file: &File, key: String, variable: String) -> Origin {
    let raw = matches.get_raw(&key).and_then(|mut values| values.next());
    let raw = raw.map(|value| value.to_string_lossy().into_owned());
    let value = raw.clone();
    let value = match key.as_str() {
        key if SECRET_ADDRESSES.contains(&key) => value.map(|url| towpath_model::redact::url(&url)),
        key if SECRETS.contains(&key) => value.map(|_| "***".to_owned()),
        _ => value,
    };
    let from = match matches.value_source(&key) {
        Some(ValueSource::CommandLine) => "flag".to_owned(),
        Some(ValueSource::EnvVariable) => variable,
        _ if file.values.contains_key(&key) => {
            file.path.as_ref().map_or_else(String::new, |path| path.display().to_string())
        }
        _ => "default".to_owned(),
    };
    Origin { key, value, from, raw }
}

/// A port alone is one of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse()
        .map_err(|_| "expected an address and a port, such as 127.0.0.1:4437 or [::1]:4437".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_nearest() {
        let message = parse("log_levle = 'debug'").unwrap_err().to_string();
        assert_eq!(message, "unknown key log_levle; did you mean log_level?");
        let message = parse("[serve]\nlisten = 'x'").unwrap_err().to_string();
        assert!(message.starts_with("unknown key serve"), "{message}");
        let message = parse("listen = ['a']").unwrap_err().to_string();
        assert_eq!(message, "listen takes a plain value, not array");
    }

    #[test]
    fn garbage_is_an_error_that_names_the_line() {
        let message = parse("listen = '127.0.0.1:1'\n]]garbage").unwrap_err().to_string();
        assert!(message.starts_with("line 2 is not TOML"), "{message}");
    }

    #[test]
    fn the_file_may_be_named_anywhere_on_the_line() {
        let find = |line: &str| named_file(line.split(' ').map(OsString::from));
        assert_eq!(find("towpath up --config a.toml"), Some("a.toml".into()));
        assert_eq!(find("towpath --config=b.toml up"), Some("b.toml".into()));
        assert_eq!(find("towpath up"), None);
        assert_eq!(find("towpath up -- --config c.toml"), None);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        crate::command_line().debug_assert();
    }

    /// An argument with a setting's name would be read as the setting.
    #[test]
    fn no_command_reuses_the_name_of_a_setting() {
        fn walk(command: &clap::Command, settings: &[(String, String)]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let taken = settings.iter().any(|(key, _)| argument.get_id() == key.as_str());
                assert!(!taken, "{} has an argument {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(|command| walk(command, settings));
        }
        walk(&crate::command_line(), &known());
    }
}
