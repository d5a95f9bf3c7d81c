//! Resend's HTTP API: one request per e-mail, with its idempotency key.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::{Client, Url};
use serde_json::{Map, Value, json};
use towpath_model::message::{Email, Keys, NotSent};
use towpath_model::redact::Secret;

use crate::transport::{Receipt, Trouble};
use crate::{Error, Transport, http, limits};

/// Resend stores an idempotency key for a day and sends nothing twice under it.
#[derive(Debug)]
pub struct Resend {
    client: Client,
    emails: Url,
    key: Secret,
    from: Option<String>,
}

impl Resend {
    /// Sends through the API at this address.
    pub fn new(url: &str, key: Secret, from: Option<String>, timeout: Duration) -> Result<Resend, Error> {
        let emails = http_url(url, "resend_url")?;
        let emails = emails.join("emails").map_err(|error| Error::invalid("resend_url", error))?;
        let client = http::client(timeout).map_err(|error| Error::invalid("resend_url", error))?;
        Ok(Resend { client, emails, key, from })
    }

    async fn ask(&self, email: &Email) -> Result<Receipt, Trouble> {
        let key = &email.idempotency_key;
        if key.is_empty() || key.len() > limits::RESEND_KEY_MAX {
            return Err(Trouble::permanent("Resend requires idempotency keys of 1 to 256 characters"));
        }
        let from = email.from.as_deref().or(self.from.as_deref());
        let from = from.ok_or_else(|| {
            Trouble::permanent("the e-mail has no sender; set from, or the setting mail_from")
        })?;
        let request = self
            .client
            .post(self.emails.clone())
            .bearer_auth(self.key.expose())
            .header("Idempotency-Key", key)
            .json(&body(email, from));
        let answer = http::ask(request, Keys::Honoured).await?;
        let id = answer["id"].as_str().map(str::to_owned);
        Ok(Receipt {
            transport: "resend",
            response: id.as_ref().map_or("accepted".to_owned(), |id| format!("accepted as {id}")),
            provider_id: id,
            idempotency_key: key.clone(),
        })
    }
}

/// The same e-mail gives the same bytes; otherwise Resend would treat a retry as another request.
fn body(email: &Email, from: &str) -> Value {
    let mut body = Map::new();
    body.insert("from".into(), json!(from));
    body.insert("to".into(), json!(email.to));
    body.insert("subject".into(), json!(email.subject));
    for (field, list) in [("cc", &email.cc), ("bcc", &email.bcc), ("reply_to", &email.reply_to)] {
        if !list.is_empty() {
            body.insert(field.into(), json!(list));
        }
    }
    for (field, text) in [("text", &email.text), ("html", &email.html)] {
        if let Some(text) = text {
            body.insert(field.into(), json!(text));
        }
    }
    if !email.headers.is_empty() {
        body.insert("headers".into(), json!(email.headers));
    }
    Value::Object(body)
}

impl Transport<Email> for Resend {
    fn name(&self) -> &'static str {
        "resend"
    }

    fn keys(&self) -> Keys {
        Keys::Honoured
    }

    fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }

    fn send<'a>(&'a self, email: &'a Email) -> BoxFuture<'a, Result<Receipt, NotSent>> {
        async { self.ask(email).await.map_err(|trouble| trouble.not_sent("resend", Keys::Honoured)) }.boxed()
    }
}

/// A URL that may carry credentials: https, or http on this machine.
pub(crate) fn http_url(text: &str, setting: &'static str) -> Result<Url, Error> {
    // A base URL without a trailing slash would lose its last part in a join.
    let text = if text.ends_with('/') { text.to_owned() } else { format!("{text}/") };
    let url: Url = text.parse().map_err(|error| Error::invalid(setting, error))?;
    let local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if local => Ok(url),
        _ => Err(Error::invalid(setting, "it is sent credentials: use https, or http on this machine")),
    }
}
