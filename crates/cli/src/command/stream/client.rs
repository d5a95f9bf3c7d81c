//! A small client of the stream protocol.

use anyhow::{Context, anyhow, bail};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};

use crate::settings::Settings;

/// The server, and the project in it.
pub(in crate::command) struct Client {
    http: reqwest::Client,
    base: Url,
    project: String,
    token: Option<String>,
}

impl Client {
    pub(in crate::command) fn new(settings: &Settings, project: String) -> anyhow::Result<Client> {
        let token = settings.fan_out.bearer()?.of(&project);
        Client::of(settings, project, token)
    }

    /// The same with this token.
    pub(in crate::command) fn with_token(
        settings: &Settings,
        project: &str,
        token: String,
    ) -> anyhow::Result<Client> {
        Client::of(settings, project.to_owned(), Some(token))
    }

    fn of(settings: &Settings, project: String, token: Option<String>) -> anyhow::Result<Client> {
        let base = settings.url.clone().unwrap_or_else(|| format!("http://{}", settings.listen));
        let base = base.parse().with_context(|| format!("{base} is not a URL"))?;
        Ok(Client { http: reqwest::Client::builder().no_proxy().build()?, base, project, token })
    }

    /// A request to any path of the server.
    pub(in crate::command) fn path_request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut url = self.base.clone();
        url.set_path(path);
        self.with_bearer(method, url)
    }

    pub(in crate::command) fn request(&self, method: Method, stream: &str) -> RequestBuilder {
        self.with_bearer(method, self.url(stream))
    }

    /// A request to `/v1/{project}/{path}`.
    pub(in crate::command) fn at(&self, method: Method, path: &str) -> RequestBuilder {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.base.clone();
        url.set_path(&format!("/v1/{}/{}", self.project, towpath_model::stream::name::encode(path)));
        url.set_query((!query.is_empty()).then_some(query));
        self.with_bearer(method, url)
    }

    fn with_bearer(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(in crate::command) fn delete(&self, stream: &str) -> RequestBuilder {
        self.request(Method::DELETE, stream)
    }

    pub(in crate::command) fn list(&self, query: &[(&str, Option<String>)]) -> RequestBuilder {
        let mut url = self.base.clone();
        url.set_path(&format!("/v1/{}/streams", self.project));
        for (key, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        self.with_bearer(Method::GET, url)
    }

    /// The path of a stream, for use in other requests.
    pub(in crate::command) fn path(&self, stream: &str) -> String {
        self.url(stream).path().to_owned()
    }

    pub(in crate::command) fn url(&self, stream: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("/v1/{}/stream/{}", self.project, towpath_model::stream::name::encode(stream)));
        url
    }

    /// Sends, and turns a refusal into an error with the server's message.
    pub(in crate::command) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        self.send_built(request.build()?).await
    }

    pub(in crate::command) async fn send_built(&self, request: reqwest::Request) -> anyhow::Result<Response> {
        let asked = (request.method() == Method::HEAD).then(|| request.url().path().to_owned());
        let response = self.http.execute(request).await.map_err(|error| {
            let cause = root(&error);
            anyhow!(
                "cannot reach {}: {cause}; start the server with: towpath up, or choose another with --url",
                self.base
            )
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if let Some(path) = asked.filter(|_| status == StatusCode::NOT_FOUND) {
            bail!(
                "there is no stream at {path}; list them with: towpath stream list, or create it with: towpath stream create"
            );
        }
        let next = header(&response, "stream-next-offset").map(|next| format!(", next offset {next}"));
        let body: Value = response.json().await.unwrap_or_default();
        let detail = body["detail"].as_str().unwrap_or("no reason given");
        bail!("{detail} ({status}{})", next.unwrap_or_default())
    }
}

/// The innermost cause.
fn root(error: &dyn std::error::Error) -> &dyn std::error::Error {
    error.source().map_or(error, root)
}

pub(in crate::command) fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// What a response says about a stream.
pub(in crate::command) fn describe(stream: &str, response: &Response) -> Value {
    json!({
        "stream": stream,
        "next_offset": header(response, "stream-next-offset"),
        "content_type": header(response, "content-type"),
        "closed": header(response, "stream-closed").is_some(),
        "status": response.status().as_u16(),
    })
}
