//! `towpath top`: a live overview, refreshed every second.
//!
//! It reads the database, and streams from the server if one responds; it changes nothing.

mod draw;
mod frame;
mod look;
mod screen;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::stream::client::Client;
use crate::output::{Exit, Output, done};
use crate::server_file::ServerFile;
use crate::settings::Settings;
use draw::{Pane, View};
use frame::Frame;
use look::Looker;

/// Between two refreshes.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Top {
    /// Print one frame and exit, for scripts; rates are measured over one second
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(top: Top, settings: &Settings, output: &Output) -> Exit {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !top.once && (!terminal || output.is_json()) {
        bail!("towpath top needs a terminal; in scripts use: towpath top --once --json");
    }
    let mut settings = settings.clone();
    settings.url =
        settings.url.or_else(|| ServerFile::find(&settings.data).map(|server_file| server_file.url));
    let client = Client::new(&settings, "default".into())?;
    super::with_database(&settings, async |database| {
        let mut looker = Looker::new(database, client);
        if !top.once {
            return screen::run(looker).await;
        }
        looker.look().await?;
        tokio::time::sleep(EVERY).await;
        let frame = looker.look().await?;
        output.show(&frame, in_words);
        done()
    })
    .await
}

/// The first pane as text.
fn in_words(frame: &Frame) -> String {
    const SIZE: (u16, u16) = (100, 36);
    let view = View { pane: Pane::Overview, ..View::default() };
    draw::as_text(frame, &view, SIZE)
}
