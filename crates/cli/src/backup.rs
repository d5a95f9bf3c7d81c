//! `towpath stream backup | restore`: the stream store as a directory of files, taken while the server runs.
//!
//! A running server writes the backup itself, because it alone knows where its log ends. Without one, the command opens
//! the store.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use towpath_streams::embedded::{self, Backup, Embedded};

use crate::output::{Exit, Output, done};
use crate::server_file::ServerFile;
use crate::settings::Settings;
use crate::streams::OpenStreams;
use crate::{progress, streams};

const PATH: &str = "/streams/backup";

const IN_POSTGRES: &str = "the streams are in PostgreSQL, and files are only a cache; back that database up";

/// `POST /admin/v1/streams/backup`: the body names a directory of the server's machine.
pub(crate) fn router(streams: &OpenStreams) -> Router {
    let store = streams.files();
    Router::new().route(PATH, post(move |body: String| write_named(store.clone(), body)))
}

async fn write_named(store: Option<Embedded>, body: String) -> (StatusCode, String) {
    let refuse = |status: StatusCode, why: String| (status, json!({ "detail": why }).to_string());
    let Some(store) = store else {
        return refuse(StatusCode::CONFLICT, IN_POSTGRES.to_owned());
    };
    let directory = PathBuf::from(body.trim());
    if !directory.is_absolute() {
        return refuse(StatusCode::BAD_REQUEST, "name an absolute directory".to_owned());
    }
    match tokio::task::spawn_blocking(move || store.backup(&directory)).await {
        Ok(Ok(backup)) => (StatusCode::OK, as_json(&backup).to_string()),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, error.to_string()),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the backup failed".to_owned()),
    }
}

fn as_json(backup: &Backup) -> Value {
    json!({ "files": backup.files, "bytes": backup.bytes, "commit": backup.commit })
}

/// `towpath stream backup DIR`.
pub(crate) async fn write(directory: &Path, settings: &Settings, output: &Output) -> Exit {
    let directory = std::path::absolute(directory)?;
    let work = async {
        match ServerFile::find(&settings.data) {
            Some(server) => match ask(&server, &directory).await? {
                Some(answer) => Ok(answer),
                None => by_itself(&directory, settings).await,
            },
            None => by_itself(&directory, settings).await,
        }
    };
    let answer = progress::patience("writing the backup", work).await?;
    output.show(&answer, |answer| {
        format!("wrote {} bytes in {} files to {}", answer["bytes"], answer["files"], directory.display())
    });
    done()
}

/// Asks the running server; none if it does not run any more.
async fn ask(server: &ServerFile, directory: &Path) -> anyhow::Result<Option<Value>> {
    // The certificate of a server on this machine names another host.
    let http = reqwest::Client::builder().no_proxy().danger_accept_invalid_certs(true).build()?;
    let url = format!("{}/admin/v1{PATH}", server.url);
    let body = directory.to_str().context("the name of the directory is not UTF-8")?.to_owned();
    let response = match http.post(url).bearer_auth(&server.token).body(body).send().await {
        Ok(response) => response,
        Err(error) if error.is_connect() => return Ok(None),
        Err(error) => return Err(error).context("the server did not answer"),
    };
    let is_success = response.status().is_success();
    let answer: Value = serde_json::from_str(&response.text().await?).unwrap_or_default();
    match is_success {
        true => Ok(Some(answer)),
        false => bail!("{}", answer["detail"].as_str().unwrap_or("the server refused the backup")),
    }
}

async fn by_itself(directory: &Path, settings: &Settings) -> anyhow::Result<Value> {
    if !settings.data.join("streams").exists() {
        bail!("there are no streams in {}; give the server's directory with --data", settings.data.display());
    }
    let streams = streams::open_alone(settings).await?;
    let Some(store) = streams.files() else {
        streams.shut_down().await;
        bail!("{IN_POSTGRES}");
    };
    let directory = directory.to_owned();
    let written = tokio::task::spawn_blocking(move || store.backup(&directory)).await;
    streams.shut_down().await;
    Ok(as_json(&written??))
}

/// `towpath stream restore DIR`.
pub(crate) async fn restore(directory: &Path, settings: &Settings, output: &Output) -> Exit {
    let place = settings.data.join("streams");
    towpath_db::cluster::private_dir(&settings.data)
        .with_context(|| format!("cannot use {}", settings.data.display()))?;
    let (from, into) = (directory.to_owned(), place.clone());
    let work = tokio::task::spawn_blocking(move || embedded::restore(&from, &into));
    let restored = progress::patience("restoring", work).await?;
    let restored = restored.with_context(|| format!("cannot restore into {}", place.display()))?;
    output.show(&as_json(&restored), |_| {
        format!("restored {} bytes in {} files into {}", restored.bytes, restored.files, place.display())
    });
    done()
}
