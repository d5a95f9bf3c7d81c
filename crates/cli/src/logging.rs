//! Log lines go to standard error; standard output carries data only.

use std::io::{IsTerminal, Write};

use towpath_model::mask::masked;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::settings::{LogFormat, Settings};

/// Reads `info` or `info,towpath_db=debug`.
pub(crate) fn parse_level(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|_| {
        "use error, warn, info, debug or trace, or a comma-separated list of module=level".to_owned()
    })
}

/// Starts logging for the rest of the process.
pub(crate) fn start(settings: &Settings) {
    let layer = fmt::layer().with_writer(|| Masked(std::io::stderr())).with_target(false);
    let layer = match settings.log_format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(settings.log_level.clone())).init();
}

/// Masks credentials in everything that is logged: driver and provider errors reach the log from many places.
/// Each line arrives whole.
struct Masked<W>(W);

impl<W: Write> Write for Masked<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(masked(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
