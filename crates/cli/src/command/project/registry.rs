//! The registry of projects: through the running server, or in the store if none is running.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use towpath_server::project::{Change, Mint, Projects};

use crate::server_file::ServerFile;
use crate::settings::Settings;
use crate::streams::{self, OpenStreams};

pub(super) enum Registry {
    /// Changes take effect at once.
    Running { http: reqwest::Client, server_file: ServerFile },
    /// No server is running here.
    Stored { projects: Projects, opened: Box<OpenStreams> },
}

impl Registry {
    pub(super) async fn open(settings: &Settings) -> anyhow::Result<Registry> {
        if let Some(server_file) = ServerFile::find(&settings.data) {
            // The certificate of a server on this machine names another host.
            let http = reqwest::Client::builder()
                .no_proxy()
                .danger_accept_invalid_certs(true)
                .timeout(Duration::from_secs(10))
                .build()?;
            let registry = Registry::Running { http, server_file };
            if registry.is_reached().await {
                return Ok(registry);
            }
        }
        let opened = streams::open_alone(settings).await.context(
            "no server responds for this data directory, and its streams cannot be opened; \
             run this on the server's machine, with its --data",
        )?;
        let projects = Projects::open(Arc::new(opened.store.clone()))?;
        Ok(Registry::Stored { projects, opened: Box::new(opened) })
    }

    pub(super) async fn close(self) {
        if let Registry::Stored { opened, .. } = self {
            opened.shut_down().await;
        }
    }

    pub(super) async fn list(&self) -> anyhow::Result<Value> {
        match self {
            Registry::Running { .. } => Ok(self.ask(Method::GET, "", None).await?["projects"].take()),
            Registry::Stored { projects, .. } => {
                let list = projects.list();
                Ok(list.iter().map(|(name, record)| record.describe(name)).collect())
            }
        }
    }

    pub(super) async fn change(&self, project: &str, change: Change) -> anyhow::Result<Value> {
        match self {
            Registry::Running { .. } => self.ask(Method::POST, project, Some(json!(change))).await,
            Registry::Stored { projects, .. } => {
                let after = projects.change(project, change).await?;
                Ok(after.map_or(Value::Null, |record| record.describe(project)))
            }
        }
    }

    pub(super) async fn mint(&self, project: &str, mint: &Mint) -> anyhow::Result<String> {
        match self {
            Registry::Running { .. } => {
                let answer = self.ask(Method::POST, &format!("{project}/token"), Some(json!(mint))).await?;
                Ok(answer["token"].as_str().context("the server's response has no token")?.to_owned())
            }
            Registry::Stored { projects, .. } => Ok(projects.mint(project, mint)?),
        }
    }

    async fn is_reached(&self) -> bool {
        match self.request(Method::GET, "") {
            Some(request) => request.send().await.is_ok_and(|response| response.status().is_success()),
            None => false,
        }
    }

    fn request(&self, method: Method, path: &str) -> Option<RequestBuilder> {
        let Registry::Running { http, server_file } = self else { return None };
        let slash = if path.is_empty() { "" } else { "/" };
        let url = format!("{}/admin/v1/projects{slash}{path}", server_file.url);
        Some(http.request(method, url).bearer_auth(&server_file.token))
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let request = self.request(method, path).context("only a running server can be asked")?;
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = request.send().await.context("the server does not respond")?;
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        match status.is_success() {
            true => Ok(body),
            false => bail!("{}", body["detail"].as_str().unwrap_or("the server refused the request")),
        }
    }
}
