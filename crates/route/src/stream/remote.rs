//! Streams of another process, over the open protocol.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode};

use super::{Append, Appending, Refused, Streams};
use crate::limits;
use crate::webhook::Error;

/// A stream server, by its address.
pub struct Remote {
    http: Client,
    url: String,
}

impl Remote {
    /// The server at `url`, without a path.
    pub fn new(url: &str) -> Result<Remote, Error> {
        let http = Client::builder()
            .connect_timeout(limits::CONNECT_WAIT_MAX)
            .timeout(limits::STREAM_BATCH_MAX)
            .no_proxy()
            .build()?;
        Ok(Remote { http, url: url.trim_end_matches('/').to_owned() })
    }

    async fn post(&self, append: &Append) -> Result<Response, Refused> {
        let request = self
            .http
            .post(format!("{}{}", self.url, append.name.path()))
            .header(CONTENT_TYPE, "application/json")
            .header("Producer-Id", &*append.producer.id)
            .header("Producer-Epoch", append.producer.epoch)
            .header("Producer-Seq", append.producer.seq)
            .body(append.body.clone());
        request.send().await.map_err(unreachable)
    }
}

impl Streams for Remote {
    fn append(&self, append: Append) -> Appending<'_> {
        Box::pin(async move {
            let mut response = self.post(&append).await?;
            if response.status() == StatusCode::NOT_FOUND {
                let url = format!("{}{}", self.url, append.name.path());
                let create = self.http.put(url).header(CONTENT_TYPE, "application/json");
                let created = create.send().await.map_err(unreachable)?;
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
    Refused::Later(format!("the stream server does not answer: {}", error.without_url()))
}

/// What a status other than success means. Only the protocol's own refusals are for good.
fn judge(status: StatusCode, newest: Option<u64>) -> Refused {
    let words = format!("the stream server answered {status}");
    match (status.as_u16(), newest) {
        (403, Some(newest)) => Refused::Seen { newest },
        (400 | 409 | 410 | 413 | 415, _) => Refused::Never(words),
        _ => Refused::Later(words),
    }
}
