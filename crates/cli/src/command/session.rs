//! `towpath sessions | subscribe | unsubscribe | publish`: fan-out from the command line.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};

use super::stream::client::{Client, header};
use crate::output::{Exit, Output, done, table, table_or};
use crate::settings::Settings;

#[derive(Args)]
pub(crate) struct Sessions {
    /// The project
    #[arg(long, default_value = "default", global = true)]
    project: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List sessions of the project
    List {
        /// Only ids after this one
        #[arg(long)]
        after: Option<String>,
        /// Maximum number to show
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// List the streams that sessions follow, with lag
    Sources,
    /// Show one session and its subscriptions
    Show {
        /// The session
        session: String,
    },
    /// Extend a session's expiry
    Touch {
        /// The session
        session: String,
    },
    /// Delete a session with its stream and subscriptions
    Delete {
        /// The session
        session: String,
    },
}

#[derive(Args)]
pub(crate) struct Subscribe {
    /// The project
    #[arg(long, default_value = "default")]
    project: String,
    /// The session, a UUID
    session: String,
    /// The stream to subscribe to
    stream: String,
    /// Wrap messages in {stream, offset, data}, to tell several streams apart in one session
    #[arg(long)]
    envelope: bool,
}

#[derive(Args)]
pub(crate) struct Unsubscribe {
    /// The project
    #[arg(long, default_value = "default")]
    project: String,
    /// The session
    session: String,
    /// The stream to unsubscribe from
    stream: String,
}

#[derive(Args)]
pub(crate) struct Publish {
    /// The project
    #[arg(long, default_value = "default")]
    project: String,
    /// The stream
    stream: String,
    /// Message to publish (default: standard input)
    message: Option<String>,
    /// Content type (default: the stream's)
    #[arg(long)]
    content_type: Option<String>,
}

pub(crate) async fn sessions(sessions: Sessions, settings: &Settings, output: &Output) -> Exit {
    let client = Client::new(settings, sessions.project)?;
    match sessions.action {
        Action::List { after, limit } => {
            let mut path = format!("sessions?limit={limit}");
            if let Some(after) = after {
                path.push_str(&format!("&after={after}"));
            }
            let list = ask(&client, Method::GET, &path, None).await?;
            output.show(&list, list_in_words);
        }
        Action::Sources => {
            let list = ask(&client, Method::GET, "sources", None).await?;
            output.show(&list, sources_in_words);
        }
        Action::Show { session } => {
            let shown = ask(&client, Method::GET, &format!("session/{session}"), None).await;
            let shown = shown.map_err(|error| gone(error, &session))?;
            output.show(&shown, session_in_words);
        }
        Action::Touch { session } => {
            let touched = ask(&client, Method::POST, &format!("session/{session}/touch"), None).await?;
            output.show(&touched, |touched| {
                format!("session {session} expires at {}", moment(&touched["expiresAt"]))
            });
        }
        Action::Delete { session } => {
            let deleted = ask(&client, Method::DELETE, &format!("session/{session}"), None).await?;
            output.show(&deleted, |_| format!("deleted session {session}"));
        }
    }
    done()
}

pub(crate) async fn subscribe(args: Subscribe, settings: &Settings, output: &Output) -> Exit {
    let client = Client::new(settings, args.project)?;
    let mut body = json!({ "sessionId": args.session, "streamId": args.stream });
    if args.envelope {
        body["envelope"] = json!(true);
    }
    let answer = ask(&client, Method::POST, "subscribe", Some(body)).await?;
    output.show(&answer, |answer| {
        let path = answer["sessionStreamPath"].as_str().unwrap_or_default();
        format!("session {} subscribed to {}; read it at {path}", args.session, args.stream)
    });
    done()
}

pub(crate) async fn unsubscribe(args: Unsubscribe, settings: &Settings, output: &Output) -> Exit {
    let client = Client::new(settings, args.project)?;
    let body = json!({ "sessionId": args.session, "streamId": args.stream });
    let answer = ask(&client, Method::DELETE, "unsubscribe", Some(body)).await?;
    output.show(&answer, |answer| match answer["unsubscribed"] == true {
        true => format!("session {} unsubscribed from {}", args.session, args.stream),
        false => format!("session {} was not subscribed to {}", args.session, args.stream),
    });
    done()
}

pub(crate) async fn publish(args: Publish, settings: &Settings, output: &Output) -> Exit {
    let client = Client::new(settings, args.project)?;
    let content_type = match args.content_type {
        Some(content_type) => content_type,
        None => {
            let head = client.send(client.request(Method::HEAD, &args.stream)).await?;
            header(&head, "content-type").context("the server sent no content type")?
        }
    };
    let data = match args.message {
        Some(data) => data.into_bytes(),
        None if std::io::stdin().is_terminal() => {
            bail!("nothing to publish; pass the message as an argument or on standard input")
        }
        None => {
            tokio::task::spawn_blocking(|| {
                let mut data = vec![];
                std::io::stdin().lock().read_to_end(&mut data).map(|_| data)
            })
            .await??
        }
    };
    let request = client.at(Method::POST, &format!("publish/{}", args.stream));
    let response = client.send(request.header("content-type", content_type).body(data)).await?;
    let number = |name: &str| header(&response, name).and_then(|text| text.parse::<u64>().ok());
    let answer = json!({
        "stream": args.stream,
        "next_offset": header(&response, "stream-next-offset"),
        "count": number("stream-fanout-count"),
        "successes": number("stream-fanout-successes"),
        "failures": number("stream-fanout-failures"),
        "mode": header(&response, "stream-fanout-mode"),
    });
    output.show(&answer, |answer| {
        let mode = answer["mode"].as_str().unwrap_or("-");
        format!("{}: {} sessions, {mode}, {} delivered", args.stream, answer["count"], answer["successes"])
    });
    done()
}

async fn ask(client: &Client, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
    let request = client.at(method, path);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    client.send(request).await?.json().await.context("the server's response is not JSON")
}

/// The server's message names the session's stream.
fn gone(error: anyhow::Error, session: &str) -> anyhow::Error {
    match error.to_string().contains("there is no stream") {
        true => {
            anyhow::anyhow!("there is no session {session}; it may have ended; see: towpath sessions list")
        }
        false => error,
    }
}

fn list_in_words(list: &Value) -> String {
    let rows: Vec<_> = list["sessions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|session| {
            let streams: Vec<&str> =
                session["streams"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let id = session["sessionId"].as_str().unwrap_or("-").to_owned();
            [id, moment(&session["expiresAt"]), streams.join(", ")]
        })
        .collect();
    let head = ["SESSION", "EXPIRES", "STREAMS"];
    table_or("no sessions; create one with: towpath subscribe SESSION STREAM", head, rows)
}

fn sources_in_words(list: &Value) -> String {
    let rows = list["sources"].as_array().into_iter().flatten().map(|source| {
        let text = |name: &str| source[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| source[name].to_string();
        [text("streamId"), number("subscribers"), number("lagBytes"), text("circuit"), text("nextOffset")]
    });
    let head = ["STREAM", "SESSIONS", "LAG BYTES", "CIRCUIT", "NEXT OFFSET"];
    table_or("no session is subscribed to a stream", head, rows)
}

fn session_in_words(session: &Value) -> String {
    let text = |name: &str| session[name].as_str().unwrap_or("-").to_owned();
    let rows = session["subscriptions"].as_array().into_iter().flatten().map(|one| {
        let stream = one["streamId"].as_str().unwrap_or("-").to_owned();
        [stream, moment(&one["subscribedAt"]), one["startOffset"].as_str().unwrap_or("-").to_owned()]
    });
    format!(
        "session {} expires at {}, read it at {}\n{}",
        text("sessionId"),
        moment(&session["expiresAt"]),
        text("sessionStreamPath"),
        table(["STREAM", "SINCE", "FROM OFFSET"], rows)
    )
}

fn moment(milliseconds: &Value) -> String {
    let at = milliseconds.as_i64().and_then(|number| Timestamp::from_millisecond(number).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.to_string())
}
