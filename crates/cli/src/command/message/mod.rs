//! `towpath message send | list | show`.

mod list;
mod send;
mod show;

use clap::Subcommand;

use crate::output::{Exit, Output};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Message {
    /// Send an e-mail, or with --sms an SMS
    Send(send::Send),
    /// List messages, newest first, without their text
    List(list::List),
    /// Show one message in full
    Show {
        /// Its number
        message: i64,
    },
}

pub(crate) async fn run(message: Message, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| match message {
        Message::Send(send) => send::run(send, &database, output).await,
        Message::List(list) => list::run(list, &database, output).await,
        Message::Show { message } => show::run(message, &database, output).await,
    })
    .await
}
