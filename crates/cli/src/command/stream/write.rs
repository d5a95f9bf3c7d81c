//! `create`, `append`, `close` and `fork`.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::client::{Client, describe, header};
use super::retention::Limits;
use crate::progress;

#[derive(Args)]
pub(super) struct Create {
    /// The stream
    stream: String,
    /// Content type
    #[arg(long, default_value = "application/json")]
    content_type: String,
    #[command(flatten)]
    life: Life,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
struct Life {
    /// Delete it after this long without reads or writes
    #[arg(long, value_name = "SECONDS", conflicts_with = "expires_at")]
    ttl: Option<u64>,
    /// Delete it at this time, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

#[derive(Args)]
pub(super) struct Append {
    /// The stream
    stream: String,
    /// Message to append (default: standard input)
    message: Option<String>,
    /// Append each line of standard input as its own message, as it arrives
    #[arg(long, conflicts_with = "message")]
    lines: bool,
    /// Close the stream with this append
    #[arg(long)]
    close: bool,
    /// Append only if the tail is at this offset
    #[arg(long, value_name = "OFFSET", conflicts_with = "lines")]
    if_match: Option<String>,
    /// Sequence text; refused unless greater than every earlier one
    #[arg(long, value_name = "TEXT", conflicts_with = "lines")]
    stream_seq: Option<String>,
}

#[derive(Args)]
pub(super) struct Fork {
    /// The stream to fork
    source: String,
    /// The new stream
    stream: String,
    /// Offset to fork at (default: the tail)
    #[arg(long)]
    offset: Option<String>,
    /// How far after that offset: bytes, or messages of a JSON stream
    #[arg(long, requires = "offset")]
    sub_offset: Option<u64>,
    #[command(flatten)]
    life: Life,
}

pub(super) async fn create(client: &Client, create: Create) -> anyhow::Result<Value> {
    let request = client.request(Method::PUT, &create.stream).header("content-type", create.content_type);
    let response = client.send(create.limits.on(create.life.on(request))).await?;
    Ok(describe(&create.stream, &response))
}

pub(super) async fn fork(client: &Client, fork: Fork) -> anyhow::Result<Value> {
    let request =
        client.request(Method::PUT, &fork.stream).header("stream-forked-from", client.path(&fork.source));
    let request = with(request, "stream-fork-offset", fork.offset);
    let request = with(request, "stream-fork-sub-offset", fork.sub_offset);
    let response = client.send(fork.life.on(request)).await?;
    Ok(describe(&fork.stream, &response))
}

pub(super) async fn close(client: &Client, stream: &str) -> anyhow::Result<Value> {
    let request = client.request(Method::POST, stream).header("stream-closed", "true");
    Ok(describe(stream, &client.send(request).await?))
}

pub(super) async fn append(client: &Client, append: Append) -> anyhow::Result<Value> {
    let head = client.send(client.request(Method::HEAD, &append.stream)).await?;
    let content_type = header(&head, "content-type").context("the server sent no content type")?;
    if append.lines {
        return append_lines(client, &append, &content_type).await;
    }
    let data = match append.message {
        Some(data) => data.into_bytes(),
        None if std::io::stdin().is_terminal() => {
            bail!("nothing to append; pass the message as an argument or on standard input")
        }
        None => progress::patience("reading standard input", tokio::task::spawn_blocking(read_all)).await??,
    };
    let request =
        client.request(Method::POST, &append.stream).header("content-type", content_type).body(data);
    let request = with(request, "if-match", append.if_match);
    let request = with(request, "stream-seq", append.stream_seq);
    let request = with(request, "stream-closed", append.close.then_some("true"));
    Ok(describe(&append.stream, &progress::patience("appending", client.send(request)).await?))
}

fn read_all() -> std::io::Result<Vec<u8>> {
    let mut data = vec![];
    std::io::stdin().lock().read_to_end(&mut data)?;
    Ok(data)
}

/// One request per line, so that followers see each line as it arrives. A line of a byte stream keeps its
/// line break.
async fn append_lines(client: &Client, append: &Append, content_type: &str) -> anyhow::Result<Value> {
    use tokio::io::AsyncBufReadExt;
    let mut input = tokio::io::BufReader::new(tokio::io::stdin());
    // A user who types the lines needs no bar.
    let bar = (!std::io::stdin().is_terminal()).then(|| progress::count("lines appended"));
    let mut last = None;
    loop {
        let mut line = vec![];
        if input.read_until(b'\n', &mut line).await? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() && content_type.starts_with("application/json") {
            continue;
        }
        let request =
            client.request(Method::POST, &append.stream).header("content-type", content_type).body(line);
        last = Some(describe(&append.stream, &client.send(request).await?));
        if let Some(bar) = &bar {
            bar.inc(1);
        }
    }
    match (append.close, last) {
        (true, _) => close(client, &append.stream).await,
        (false, Some(last)) => Ok(last),
        (false, None) => bail!("standard input was empty"),
    }
}

impl Life {
    fn on(self, request: RequestBuilder) -> RequestBuilder {
        with(with(request, "stream-ttl", self.ttl), "stream-expires-at", self.expires_at)
    }
}

fn with(request: RequestBuilder, name: &str, value: Option<impl ToString>) -> RequestBuilder {
    match value {
        Some(value) => request.header(name, value.to_string()),
        None => request,
    }
}
