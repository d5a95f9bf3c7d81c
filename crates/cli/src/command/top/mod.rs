//! `towpath top`: everything on one screen, every second.
//!
//! It reads the database, and the streams from the server if one answers; it changes nothing.

mod draw;
mod frame;
mod look;
mod screen;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use super::stream::client::Client;
use crate::door::Door;
use crate::output::Output;
use crate::settings::Settings;
use draw::{Pane, View};
use frame::Frame;
use look::Looker;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Top {
    /// Print one frame and end, for scripts; rates are measured over a second
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(top: Top, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !top.once && (!terminal || output.is_json()) {
        bail!("towpath top draws on a terminal; for scripts use: towpath top --once --json");
    }
    let mut settings = settings.clone();
    settings.url = settings.url.or_else(|| Door::find(&settings.data).map(|door| door.url));
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
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// The first pane as text.
fn in_words(frame: &Frame) -> String {
    const SIZE: (u16, u16) = (100, 36);
    let view = View { pane: Pane::Overview, ..View::default() };
    draw::as_text(frame, &view, SIZE)
}
