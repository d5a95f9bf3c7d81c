//! `read` and `tail`: print a stream's data.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{Client, header};
use crate::output::plain;
use crate::progress;

#[derive(Args)]
pub(super) struct Read {
    /// The stream
    stream: String,
    /// Start offset: -1 is the start, now is the tail
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offset: String,
}

#[derive(Args)]
pub(super) struct Tail {
    /// The stream
    stream: String,
    /// Start offset: -1 is the start, now is the tail
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    offset: String,
}

/// Prints page after page until there is no more.
pub(super) async fn read(client: &Client, read: Read) -> anyhow::Result<()> {
    let mut offset = read.offset;
    // On a terminal a bar would mix with the data.
    let bar = (!std::io::stdout().is_terminal()).then(|| progress::bytes("read"));
    loop {
        let page = page(client, &read.stream, &[("offset", offset)]).await?;
        if !page.print() || page.up_to_date {
            return Ok(());
        }
        if let Some(bar) = &bar {
            bar.inc(page.data.len() as u64);
        }
        offset = page.next;
    }
}

/// Prints new data until the stream is closed or standard output ends.
pub(super) async fn tail(client: &Client, tail: Tail) -> anyhow::Result<()> {
    let mut offset = tail.offset;
    let mut cursor = None;
    loop {
        let mut query = vec![("offset", offset), ("live", "long-poll".to_owned())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = page(client, &tail.stream, &query).await?;
        if !page.print() || page.closed {
            return Ok(());
        }
        (offset, cursor) = (page.next, page.cursor);
    }
}

/// A page of a stream.
pub(in crate::command) struct Page {
    data: Vec<u8>,
    is_json: bool,
    pub(in crate::command) next: String,
    pub(in crate::command) cursor: Option<String>,
    up_to_date: bool,
    pub(in crate::command) closed: bool,
}

pub(in crate::command) async fn page(
    client: &Client,
    stream: &str,
    query: &[(&str, String)],
) -> anyhow::Result<Page> {
    let mut url = client.url(stream);
    url.query_pairs_mut().extend_pairs(query);
    let mut request = client.request(Method::GET, stream).build()?;
    *request.url_mut() = url;
    let response = client.send_built(request).await?;
    let is_json = header(&response, "content-type").is_some_and(|text| text.starts_with("application/json"));
    Ok(Page {
        is_json: is_json && response.status() != StatusCode::NO_CONTENT,
        next: header(&response, "stream-next-offset").context("the server sent no next offset")?,
        cursor: header(&response, "stream-cursor"),
        up_to_date: header(&response, "stream-up-to-date").is_some(),
        closed: header(&response, "stream-closed").is_some(),
        data: response.bytes().await.context("the connection ended in the middle of a page")?.to_vec(),
    })
}

impl Page {
    /// Its messages, if they are JSON; those that are not of this type are left out.
    pub(in crate::command) fn json<T: DeserializeOwned>(&self) -> Vec<T> {
        let values: Vec<Value> =
            self.is_json.then(|| serde_json::from_slice(&self.data).ok()).flatten().unwrap_or_default();
        values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect()
    }

    /// JSON is printed one value per line, anything else as is; on a terminal without control characters. False
    /// when standard output is closed.
    fn print(&self) -> bool {
        let mut out = std::io::stdout().lock();
        let terminal = out.is_terminal();
        let values: Option<Vec<&RawValue>> =
            self.is_json.then(|| serde_json::from_slice(&self.data).ok()).flatten();
        let written = match values {
            Some(values) if terminal => {
                values.iter().try_for_each(|value| writeln!(out, "{}", plain(value.get())))
            }
            Some(values) => values.iter().try_for_each(|value| writeln!(out, "{value}")),
            None if terminal => write!(out, "{}", plain(&String::from_utf8_lossy(&self.data))),
            None => out.write_all(&self.data),
        };
        written.and_then(|()| out.flush()).is_ok()
    }
}
