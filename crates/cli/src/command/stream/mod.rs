//! `towpath stream …`: streams of a running server.

pub(super) mod client;
mod read;
mod retention;
mod write;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::output::{Exit, Output, done, table_or};
use crate::settings::Settings;
pub(in crate::command) use client::Client;
pub(in crate::command) use read::page;

#[derive(Args)]
pub(crate) struct Stream {
    /// Project of the stream
    #[arg(long, default_value = "default", global = true)]
    project: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a stream
    Create(write::Create),
    /// Append a message from the argument or standard input
    Append(write::Append),
    /// Read from an offset to the tail
    Read(read::Read),
    /// Follow a stream from an offset, until interrupted or closed
    Tail(read::Tail),
    /// Show or change a stream's retention
    Retention(retention::Retention),
    /// Close a stream; nothing more can be appended
    Close {
        /// The stream
        stream: String,
    },
    /// Delete a stream and its data
    Delete {
        /// The stream
        stream: String,
    },
    /// List streams of the project
    List {
        /// Only ids that start with this
        #[arg(long, default_value = "")]
        prefix: String,
        /// Only ids after this one
        #[arg(long)]
        after: Option<String>,
        /// Maximum number to show
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Fork a stream: a new stream that shares its data so far
    Fork(write::Fork),
    /// Back up all streams of the data directory into a new directory, while the server runs
    Backup {
        /// Directory to write; on the server's machine
        directory: PathBuf,
    },
    /// Restore a backup into a data directory without streams; no server may run on it
    Restore {
        /// Directory that `stream backup` wrote
        directory: PathBuf,
    },
}

pub(crate) async fn run(stream: Stream, settings: &Settings, output: &Output) -> Exit {
    match &stream.action {
        Action::Backup { directory } => return crate::backup::write(directory, settings, output).await,
        Action::Restore { directory } => return crate::backup::restore(directory, settings, output).await,
        _ => {}
    }
    let client = Client::new(settings, stream.project)?;
    match stream.action {
        Action::Backup { .. } | Action::Restore { .. } => unreachable!("handled above"),
        Action::Create(create) => output.show(&write::create(&client, create).await?, in_words),
        Action::Append(append) => output.show(&write::append(&client, append).await?, in_words),
        Action::Fork(fork) => output.show(&write::fork(&client, fork).await?, in_words),
        Action::Retention(wanted) => {
            output.show(&retention::retention(&client, wanted).await?, retention::in_words);
        }
        Action::Read(read) => read::read(&client, read).await?,
        Action::Tail(tail) => read::tail(&client, tail).await?,
        Action::Close { stream } => output.show(&write::close(&client, &stream).await?, in_words),
        Action::Delete { stream } => {
            client.send(client.delete(&stream)).await?;
            output
                .show(&json!({ "stream": stream, "deleted": true }), |_| format!("deleted stream {stream}"));
        }
        Action::List { prefix, after, limit } => {
            let query = [("prefix", Some(prefix)), ("after", after), ("limit", Some(limit.to_string()))];
            let list: Value = client
                .send(client.list(&query))
                .await?
                .json()
                .await
                .context("the server's response is not JSON")?;
            output.show(&list, list_in_words);
        }
    }
    done()
}

/// A stream after a change.
fn in_words(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let closed = if answer["closed"] == true { ", closed" } else { "" };
    format!("{}: next offset {}{closed}", text("stream"), text("next_offset"))
}

fn list_in_words(list: &Value) -> String {
    let rows: Vec<_> = list["streams"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|stream| {
            let text = |key: &str| stream[key].as_str().unwrap_or("-").to_owned();
            let state = if stream["closed"] == true { "closed" } else { "open" };
            [text("id"), text("content_type"), text("next_offset"), state.to_owned(), text("expires_at")]
        })
        .collect();
    let head = ["STREAM", "TYPE", "NEXT OFFSET", "STATE", "EXPIRES"];
    table_or("no streams; create one with: towpath stream create NAME", head, rows)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    /// An argument with a setting's name would only fail when it is used.
    #[test]
    fn every_action_can_be_typed() {
        for line in [
            "create a --ttl 5 --content-type text/plain --max-bytes 9",
            "retention a --max-age 7d --max-bytes none",
            "retention a",
            "append a hello --close --if-match x",
            "append a --lines",
            "read a --offset -1",
            "tail a --offset now",
            "close a",
            "delete a",
            "list --prefix p --after q --limit 5",
            "fork a b --offset x --sub-offset 3",
        ] {
            let words = ["towpath", "stream", "--project", "p"].into_iter().chain(line.split(' '));
            let matches = crate::Cli::command().try_get_matches_from(words).unwrap();
            crate::Cli::from_arg_matches(&matches).unwrap();
        }
    }
}
