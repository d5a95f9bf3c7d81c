//! Streams of another process, over the open protocol.

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use towpath_model::token::Bearer;

use super::{Appending, EventAppend, Refused, Streams};
use crate::limits;
use crate::webhook::Error;

/// A stream server, by its address.
pub struct Remote {
    http: Client,
    url: String,
    bearer: Bearer,
}

impl Remote {
    /// The server at `url`, without a path, and the token for it.
    pub fn new(url: &str, bearer: Bearer) -> Result<Remote, Error> {
        // No redirects: the token must go only to the configured server.
        let http = Client::builder()
            .connect_timeout(limits::CONNECT_WAIT_MAX)
            .timeout(limits::STREAM_BATCH_MAX)
            .no_proxy()
            .redirect(Policy::none())
            .build()?;
        Ok(Remote { http, url: url.trim_end_matches('/').to_owned(), bearer })
    }

    fn request(&self, method: Method, append: &EventAppend) -> RequestBuilder {
        let url = format!("{}{}", self.url, append.name.path());
        let request = self.http.request(method, url).header(CONTENT_TYPE, "application/json");
        match self.bearer.of(&append.name.project) {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn post(&self, append: &EventAppend) -> Result<Response, Refused> {
        let request = self
            .request(Method::POST, append)
            .header("Producer-Id", &*append.producer.id)
            .header("Producer-Epoch", append.producer.epoch)
            .header("Producer-Seq", append.producer.seq)
            .body(append.body.clone());
        request.send().await.map_err(unreachable)
    }
}

impl Streams for Remote {
    fn append(&self, append: EventAppend) -> Appending<'_> {
        Box::pin(async move {
            let mut response = self.post(&append).await?;
            if response.status() == StatusCode::NOT_FOUND {
                let created = self.request(Method::PUT, &append).send().await.map_err(unreachable)?;
                if !created.status().is_success() {
                    return Err(judge(created.status(), None));
                }
                response = self.post(&append).await?;
            }
            if response.status().is_success() {
                return Ok(());
            }
            let newest = response.headers().get("Producer-Epoch").and_then(|value| value.to_str().ok());
            Err(judge(response.status(), newest.and_then(|text| text.parse().ok())))
        })
    }
}

fn unreachable(error: reqwest::Error) -> Refused {
    Refused::Later(format!("the stream server does not respond: {}", error.without_url()))
}

/// What an error status means. Only refusals of the protocol are permanent.
fn judge(status: StatusCode, newest: Option<u64>) -> Refused {
    let words = match (status.as_u16(), newest) {
        (401 | 403, None) => format!(
            "the stream server responded with {status}: it requires a token with scope write; check the settings \
             token and token_file"
        ),
        _ => format!("the stream server responded with {status}"),
    };
    match (status.as_u16(), newest) {
        (403, Some(newest)) => Refused::Seen { newest },
        (400 | 409 | 410 | 413 | 415, _) => Refused::Never(words),
        _ => Refused::Later(words),
    }
}
