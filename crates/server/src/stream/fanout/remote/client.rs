//! The six requests of the protocol that session streams need.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::{StreamName, encode};
use towpath_model::stream::offset::Offset;
use towpath_model::token::Bearer;
use towpath_streams::Error;

use super::super::session_streams::{NewStream, SessionHead};
use super::Load;

pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    bearer: Bearer,
}

/// The result of an append.
pub(super) enum Reply {
    /// It is there, from now or from before.
    Fine,
    /// The stream was deleted or closed.
    Gone,
    /// Unknown; try again.
    Failed(String),
}

/// Where a session's stream is on the server at `base`.
pub(in super::super) fn url(base: &str, session: &StreamName) -> String {
    let base = base.trim_end_matches('/');
    let id = encode(&session.id);
    match base.contains("{project}") {
        true => format!("{}/{id}", base.replace("{project}", &session.project)),
        false => format!("{base}/v1/{}/stream/{id}", session.project),
    }
}

impl Client {
    pub(super) fn new(base: &str, bearer: Bearer, wait_max: Duration) -> Result<Client, Error> {
        // No proxy from the environment and no redirects: only the configured server gets requests.
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(wait_max)
            .build()
            .map_err(|error| failure("cannot create a client for the session server", &error))?;
        Ok(Client { http, base: base.to_owned(), bearer })
    }

    pub(super) async fn head(&self, session: &StreamName) -> Result<SessionHead, Error> {
        let response = self.send(self.request(Method::HEAD, session)).await?;
        if is_gone(response.status()) {
            return Err(Error::NotFound(session.clone()));
        }
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let content_type = text("content-type").and_then(ContentType::parse).unwrap_or_default();
        let next_offset = text("stream-next-offset").unwrap_or_default().to_owned();
        match response.status().is_success() {
            true => Ok(SessionHead { content_type, next_offset, path: url(&self.base, session) }),
            false => Err(status(response.status())),
        }
    }

    /// Creates the stream. Of one that exists, only the content type must be the same.
    pub(super) async fn create(&self, session: &StreamName, new: NewStream) -> Result<bool, Error> {
        let request = self
            .request(Method::PUT, session)
            .header("content-type", new.content_type.as_str())
            .header("stream-ttl", new.ttl_seconds)
            // Towpath reserves the name for its own sessions; other servers ignore the header.
            .header("stream-session-host", "true");
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::CREATED => Ok(true),
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(false),
            StatusCode::CONFLICT => match self.head(session).await?.content_type == new.content_type {
                true => Ok(false),
                false => Err(Error::Conflict { name: session.clone(), what: "content type" }),
            },
            other => Err(status(other)),
        }
    }

    /// Renews the life of the stream. The protocol has no request for that, but a read does it, and
    /// this one answers no data.
    pub(super) async fn touch(&self, session: &StreamName) -> Result<(), Error> {
        let response = self.send(self.request_at(Method::GET, session, "?offset=now")).await?;
        match response.status() {
            fine if fine.is_success() => Ok(()),
            gone if is_gone(gone) => Err(Error::NotFound(session.clone())),
            other => Err(status(other)),
        }
    }

    pub(super) async fn append(
        &self,
        session: &StreamName,
        load: &Load<'_>,
        end: Offset,
        body: Bytes,
    ) -> Reply {
        let request = self
            .request(Method::POST, session)
            .header("content-type", load.content_type.as_str())
            .header("producer-id", format!("fanout:{}:{}", encode(&load.source.id), load.life.0))
            .header("producer-epoch", end.bytes())
            .header("producer-seq", 0)
            .body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Reply::Failed(error.to_string()),
        };
        judge(&response, end)
    }

    pub(super) async fn delete(&self, session: &StreamName) -> Result<(), Error> {
        let response = self.send(self.request(Method::DELETE, session)).await?;
        match response.status() {
            gone if gone.is_success() || is_gone(gone) => Ok(()),
            other => Err(status(other)),
        }
    }

    fn request(&self, method: Method, session: &StreamName) -> RequestBuilder {
        self.request_at(method, session, "")
    }

    fn request_at(&self, method: Method, session: &StreamName, query: &str) -> RequestBuilder {
        let request = self.http.request(method, url(&self.base, session) + query);
        match self.bearer.of(&session.project) {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        request.send().await.map_err(|error| failure("cannot reach the session server", &error))
    }
}

/// 403 with a later epoch: this message and later ones are there already.
fn judge(response: &Response, end: Offset) -> Reply {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let epoch = header("producer-epoch").and_then(|text| text.parse::<u64>().ok());
    match response.status() {
        fine if fine.is_success() => Reply::Fine,
        gone if is_gone(gone) => Reply::Gone,
        StatusCode::FORBIDDEN if epoch.is_some_and(|epoch| epoch > end.bytes()) => Reply::Fine,
        StatusCode::CONFLICT if header("stream-closed").is_some() => Reply::Gone,
        other => Reply::Failed(other.to_string()),
    }
}

fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

fn status(status: StatusCode) -> Error {
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let context =
            "the session server requires a token with scope write; check the setting sessions_token_file";
        return failure(context, &status);
    }
    failure("the session server refused the request", &status)
}

fn failure(context: &str, why: &dyn std::fmt::Display) -> Error {
    let kind = std::io::ErrorKind::NotConnected;
    Error::Io { context: context.to_owned(), message: why.to_string(), kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_fit_any_server() {
        let session = StreamName::new("shop", "session:a b").unwrap();
        assert_eq!(url("http://h:1/", &session), "http://h:1/v1/shop/stream/session:a%20b");
        assert_eq!(
            url("http://h:1/v1/stream/{project}", &session),
            "http://h:1/v1/stream/shop/session:a%20b"
        );
    }
}
