//! Shared by the HTTP providers: the client, and the parsing of responses.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use towpath_model::message::{HttpAnswer, Keys, Outcome, classify_http, retry_after};

use crate::limits;
use crate::transport::Trouble;

/// A client without redirects, which could leak credentials, and without the environment's proxies.
pub(crate) fn client(timeout: Duration) -> Result<Client, reqwest::Error> {
    Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(timeout.min(Duration::from_secs(10)))
        .timeout(timeout)
        .user_agent(concat!("towpath/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Sends, and returns the provider's JSON if it accepted.
///
/// A request without a connection was not sent. Any other failure without a response is uncertain: the bytes may have
/// been sent.
pub(crate) async fn ask(request: RequestBuilder, keys: Keys) -> Result<Value, Trouble> {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) if error.is_builder() => {
            return Err(Trouble::permanent(in_words(&error)).code(Some("request")));
        }
        Err(error) if error.is_connect() => {
            return Err(Trouble::new(Outcome::Transient, in_words(&error)).code(Some("connect")));
        }
        Err(error) => {
            let code = if error.is_timeout() { "timeout" } else { "no_answer" };
            return Err(Trouble::new(classify_http(keys, None), in_words(&error)).code(Some(code)));
        }
    };
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let after = retry_after(after);
    let text = read(response).await;
    let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if status.is_success() {
        // It was accepted, even if the rest of the response is lost.
        return Ok(answer);
    }
    let name = name(&answer);
    let outcome = classify_http(keys, Some(HttpAnswer { status: status.as_u16(), name: name.as_deref() }));
    let said = answer["message"].as_str().map_or(text.as_str(), |message| message);
    let message = match &name {
        Some(name) => format!("{} {name}: {said}", status.as_u16()),
        None => format!("{}: {said}", status.as_u16()),
    };
    let mut trouble = Trouble::new(outcome, message).code(Some(name.unwrap_or(status.as_u16().to_string())));
    trouble.retry_after_seconds = after.map(|wait| wait.as_secs_f64());
    Err(trouble)
}

/// Resend names its errors, Twilio numbers them.
fn name(answer: &Value) -> Option<String> {
    match (&answer["name"], &answer["code"]) {
        (Value::String(name), _) => Some(name.clone()),
        (_, Value::Number(code)) => Some(code.to_string()),
        _ => None,
    }
}

async fn read(mut response: reqwest::Response) -> String {
    let mut bytes = vec![];
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limits::ANSWER_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// reqwest has the cause in its source, and the URL, which may contain a secret, in its message.
fn in_words(error: &reqwest::Error) -> String {
    let mut words = match error {
        error if error.is_builder() => "the request cannot be built".to_owned(),
        error if error.is_connect() => "cannot connect".to_owned(),
        error if error.is_timeout() => "timeout".to_owned(),
        _ => "the connection failed".to_owned(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
