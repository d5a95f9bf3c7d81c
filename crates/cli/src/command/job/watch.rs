//! `towpath job watch`: watches a job until it has finished.
//!
//! Follows the job's stream on the server, the same one that pages in browsers read: its changes, and what its
//! handler appends. The database makes the token. Without a server of this database, it polls the database
//! instead and shows the changes only. Changes go to standard output, one line each; a bar on standard error shows
//! progress.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::job_stream::JobStatus;
use towpath_model::id::JobId;
use towpath_model::job_state::JobState;

use super::show::progress;
use crate::command::stream::{Client, page};
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output, one_line, plain};
use crate::settings::Settings;

/// Often enough for a person; four cheap reads a second for the database.
const POLL: Duration = Duration::from_millis(250);
/// A server on this machine or near it answers sooner.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that a token is valid.
const TOKEN_LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// The project of the streams of jobs.
const PROJECT: &str = "jobs";

#[derive(Args)]
pub(crate) struct Watch {
    /// Its id
    job: JobId,
    /// Stop watching after this many seconds and exit with code 3
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// One message of the stream.
#[derive(Deserialize)]
struct Message {
    r#type: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Value,
}

pub(crate) async fn run(watch: Watch, settings: &Settings, database: &Database, output: &Output) -> Exit {
    follow(watch.job, watch.timeout.map(Duration::from_secs), settings, database, output).await
}

/// Exits with 0 if the job succeeded, 4 if it ended otherwise, 3 on timeout.
pub(crate) async fn follow(
    job_id: JobId,
    timeout: Option<Duration>,
    settings: &Settings,
    database: &Database,
    output: &Output,
) -> Exit {
    let mut screen = Screen { bar: crate::progress::percent(), output, seen: None };
    let watching = async {
        let job = database.job_status(job_id).await?;
        let ended = match stream(job_id, settings, database).await {
            Some(client) => follow_stream(&client, job, database, &mut screen).await,
            None => None,
        };
        match ended {
            Some(state) => anyhow::Ok(state),
            None => poll(job_id, database, &mut screen).await,
        }
    };
    let ended = match timeout {
        Some(timeout) => tokio::time::timeout(timeout, watching).await,
        None => Ok(watching.await),
    };
    screen.bar.finish_and_clear();
    let state = match ended {
        Ok(state) => state?,
        Err(_) => {
            let job = database.job_status(job_id).await?;
            screen.show(&job);
            job.state
        }
    };
    Ok(match state {
        JobState::Succeeded | JobState::Cleaned => ExitCode::SUCCESS,
        state if state.ended() => ExitCode::from(EXIT_FAILURES),
        _ => ExitCode::from(EXIT_TO_DO),
    })
}

/// The server that has the job's stream; none if there is no server, or it is not one of this database.
async fn stream(job_id: JobId, settings: &Settings, database: &Database) -> Option<Client> {
    let token = database.job_token(job_id, TOKEN_LIFETIME).await.ok()?;
    let client = Client::with_token(settings, PROJECT, token).ok()?;
    // This also has the server create the stream.
    let asked = client.path_request(Method::GET, &format!("/api/v1/jobs/{job_id}")).timeout(SERVER_TIMEOUT);
    let told: Value = client.send(asked).await.ok()?.json().await.ok()?;
    told["stream"].is_string().then_some(client)
}

/// Shows message after message until the stream is closed. None if the server goes away: the database knows the rest.
async fn follow_stream(
    client: &Client,
    mut job: JobStatus,
    database: &Database,
    screen: &mut Screen<'_>,
) -> Option<JobState> {
    let name = format!("job/{}", job.id);
    let (mut offset, mut cursor) = ("-1".to_owned(), None);
    loop {
        let mut query = vec![("offset", offset), ("live", "long-poll".to_owned())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = page(client, &name, &query).await.ok()?;
        for message in page.json::<Message>() {
            match message.r#type.as_str() {
                "job" => {
                    job = changed(job, &message.value)?;
                    if job.state == JobState::RetryWaiting {
                        job.scheduled_at = database.job_status(job.id).await.ok()?.scheduled_at;
                    }
                    screen.show(&job);
                }
                "chunk" => screen.show_chunk(job.id, &message),
                _ => {}
            }
        }
        if page.closed {
            return job.state.ended().then_some(job.state);
        }
        (offset, cursor) = (page.next, page.cursor);
    }
}

/// The job with what a message says of it.
fn changed(job: JobStatus, value: &Value) -> Option<JobStatus> {
    let mut now = serde_json::to_value(job).ok()?;
    now.as_object_mut()?.extend(value.as_object()?.clone());
    serde_json::from_value(now).ok()
}

async fn poll(job_id: JobId, database: &Database, screen: &mut Screen<'_>) -> anyhow::Result<JobState> {
    loop {
        let job = database.job_status(job_id).await?;
        screen.show(&job);
        if job.state.ended() {
            return Ok(job.state);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What has been shown.
struct Screen<'a> {
    bar: ProgressBar,
    output: &'a Output,
    seen: Option<Value>,
}

impl Screen<'_> {
    /// Shows the job if something about it is new.
    fn show(&mut self, job: &JobStatus) {
        let now = json!([job.state, job.attempt, job.percent, job.message]);
        if self.seen.as_ref() == Some(&now) {
            return;
        }
        self.bar.suspend(|| report(job, self.output));
        self.bar.set_position(u64::from(job.percent.unwrap_or(0).unsigned_abs()));
        self.bar.set_message(one_line(&format!("{} {}", job.kind, job.state)).into_owned());
        self.seen = Some(now);
    }

    fn show_chunk(&self, job_id: JobId, message: &Message) {
        let Message { key, value, .. } = message;
        let data = json!({ "job_id": job_id, "key": key, "appended": value });
        self.bar.suspend(|| self.output.event(&data, |_| plain(&format!("  {value}")).into_owned()));
    }
}

fn report(job: &JobStatus, output: &Output) {
    let JobStatus {
        id: job_id,
        state,
        attempt,
        percent,
        message,
        result,
        error,
        scheduled_at,
        finished_at,
        ..
    } = job;
    let data = json!({
        "job_id": job_id, "state": state, "attempt": attempt, "percent": percent, "message": message,
        "result": result, "error": error, "scheduled_at": scheduled_at, "finished_at": finished_at,
    });
    output.event(&data, |_| {
        let mut line = format!("{:.0} {state}", finished_at.unwrap_or_else(Timestamp::now));
        if let Some(percent) = percent.filter(|_| !state.ended()) {
            let percent = i16::try_from(percent).unwrap_or(0);
            line += &format!(", {}", progress(percent, message.as_deref()));
        }
        if *attempt > 1 {
            line += &format!(", attempt {attempt} of {}", job.max_attempts);
        }
        if let (JobState::RetryWaiting, Some(at)) = (state, scheduled_at) {
            line += &format!(", next attempt at {at:.0}");
        }
        match (error, result, state) {
            (Some(error), _, JobState::RetryWaiting | JobState::DeadLetter | JobState::Cancelled) => {
                format!("{line}: {error}")
            }
            (_, Some(result), JobState::Succeeded) => format!("{line}: {}", one_line(&result.to_string())),
            _ => line,
        }
    });
}
