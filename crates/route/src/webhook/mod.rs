//! Webhooks: one signed request to a receiver we do not trust, and its result.
//!
//! The format is Standard Webhooks. The target is checked twice: the URL itself, and the address of its name when it
//! connects. Redirects are not followed and proxies of the environment are not used, because both would bypass the check.

mod guard;
mod retry_after;
mod sign;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use towpath_db::event::{DeliveryFailure, DeliveryOutcome, FailureClass, RouteTest};

pub use guard::{Forbidden, Found, Lookup, Reach, SystemLookup};

use crate::limits;
use guard::{Guarded, Scheme};

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare to send webhooks: {0}")]
pub struct Error(#[from] reqwest::Error);

/// Sends webhooks. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    https: reqwest::Client,
    http: reqwest::Client,
    reach: Arc<Reach>,
}

/// One webhook.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The URL.
    pub url: &'a str,
    /// The same for every attempt.
    pub webhook_id: &'a str,
    /// The route's own headers.
    pub headers: &'a BTreeMap<String, String>,
    /// The total timeout.
    pub timeout: Duration,
    /// The body, sent unchanged.
    pub body: &'a str,
    /// The signing keys, all of which sign: two during a rotation.
    pub signing_keys: &'a [String],
    /// Above 0 it is a replay, marked by a header.
    pub generation: i32,
}

/// The result of a webhook, as the database takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The attempt.
    pub outcome: DeliveryOutcome,
    /// Why it failed; none if the receiver responded with 2xx.
    pub failure: Option<DeliveryFailure>,
}

impl Client {
    /// A client that goes where `reach` allows.
    pub fn new(reach: Reach) -> Result<Client, Error> {
        Client::with_lookup(reach, &(Arc::new(SystemLookup) as Arc<dyn Lookup>))
    }

    /// A client with another name lookup. Its answers are checked too.
    pub fn with_lookup(reach: Reach, lookup: &Arc<dyn Lookup>) -> Result<Client, Error> {
        let reach = Arc::new(reach);
        let client = |scheme: Scheme| {
            reqwest::Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .referer(false)
                .connect_timeout(limits::CONNECT_WAIT_MAX)
                .dns_resolver(Arc::new(Guarded { lookup: lookup.clone(), reach: reach.clone(), scheme }))
                .user_agent(concat!("towpath/", env!("CARGO_PKG_VERSION")))
                .build()
        };
        Ok(Client { https: client(Scheme::Https)?, http: client(Scheme::Http)?, reach: reach.clone() })
    }
}

/// Sends one webhook and returns its result. A failure is a result, never an error.
pub async fn send_once(client: &Client, request: &Request<'_>) -> Report {
    let began = Instant::now();
    let mut outcome = DeliveryOutcome::default();
    let failure = attempt(client, request, &mut outcome).await.err();
    outcome.duration = began.elapsed();
    Report { outcome, failure }
}

/// Sends a route's test webhook like a real one.
pub async fn send_test(client: &Client, test: &RouteTest) -> Report {
    let request = Request {
        url: &test.url,
        webhook_id: &test.webhook_id,
        headers: &test.headers,
        timeout: Duration::from_secs(test.timeout_seconds.into()),
        body: &test.body,
        signing_keys: &test.signing_keys,
        generation: 0,
    };
    send_once(client, &request).await
}

async fn attempt(
    client: &Client,
    request: &Request<'_>,
    outcome: &mut DeliveryOutcome,
) -> Result<(), DeliveryFailure> {
    let (url, scheme) = guard::check(request.url, &client.reach).map_err(|refusal| match refusal {
        guard::Refusal::Unusable(words) => failed(FailureClass::Setup, words),
        guard::Refusal::Forbidden(forbidden) => failed(FailureClass::Forbidden, forbidden.to_string()),
    })?;
    let headers = headers(request).map_err(|words| failed(FailureClass::Setup, words))?;
    let client = match scheme {
        Scheme::Https => &client.https,
        Scheme::Http => &client.http,
    };
    let sending = client.post(url).timeout(request.timeout).headers(headers).body(request.body.to_owned());
    let mut response = sending.send().await.map_err(|error| from_reqwest(error, request.timeout))?;
    let status = response.status();
    outcome.status_code = Some(status.as_u16().into());
    outcome.address = response.remote_addr().map(|address| address.to_string());
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| retry_after::parse(text, Timestamp::now()));
    outcome.answer = Some(beginning(&mut response).await);
    if status.is_success() {
        return Ok(());
    }
    let words = match status.is_redirection() {
        true => format!(
            "the receiver responded with {status}; redirects are not followed, set the route's url to the final address"
        ),
        false => format!("the receiver responded with {status}"),
    };
    Err(DeliveryFailure { retry_after, ..failed(FailureClass::Status, words) })
}

fn headers(request: &Request<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("invalid header name {name:?}"))?;
        let value: HeaderValue = value.parse().map_err(|_| format!("invalid value of header {name}"))?;
        headers.insert(name, value);
    }
    let second = Timestamp::now().as_second();
    let signature = sign::signature(request.signing_keys, request.webhook_id, second, request.body)?;
    let mut set = |name: &'static str, value: String| {
        let value = HeaderValue::try_from(value).map_err(|_| format!("invalid value of {name}"))?;
        headers.insert(HeaderName::from_static(name), value);
        Ok::<(), String>(())
    };
    set("webhook-id", request.webhook_id.to_owned())?;
    set("webhook-timestamp", second.to_string())?;
    set("webhook-signature", signature)?;
    if request.generation > 0 {
        set("towpath-replay", request.generation.to_string())?;
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(headers)
}

/// The start of a response as text that PostgreSQL can store. The rest is not read, so that an endless response cannot
/// block the sender.
async fn beginning(response: &mut reqwest::Response) -> String {
    let mut bytes = vec![];
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = limits::ANSWER_BYTES_MAX - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() == limits::ANSWER_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.chars().filter(|letter| *letter != '\0').take(limits::ANSWER_CHARS_MAX).collect()
}

fn failed(class: FailureClass, words: impl Into<String>) -> DeliveryFailure {
    DeliveryFailure { class, error: words.into(), retry_after: None }
}

fn from_reqwest(error: reqwest::Error, wait_max: Duration) -> DeliveryFailure {
    let (timeout, builder) = (error.is_timeout(), error.is_builder());
    // The URL may contain a secret of the receiver.
    let error = error.without_url();
    if timeout {
        return failed(FailureClass::Timeout, format!("no response within {wait_max:?}"));
    }
    if builder {
        return failed(FailureClass::Setup, in_words(&error));
    }
    let mut cause = error.source();
    while let Some(found) = cause {
        if let Some(forbidden) = inner::<Forbidden>(found) {
            return failed(FailureClass::Forbidden, forbidden.to_string());
        }
        if let Some(tls) = inner::<rustls::Error>(found) {
            return failed(FailureClass::Tls, format!("TLS failed: {tls}"));
        }
        cause = found.source();
    }
    failed(FailureClass::Connect, in_words(&error))
}

/// The error as this type, also inside I/O errors, whose `source` skips the inner error.
fn inner<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref::<T>() {
        return Some(found);
    }
    let carried = error.downcast_ref::<std::io::Error>()?.get_ref()?;
    inner(carried)
}

/// The error and its causes, without repetitions.
fn in_words(error: &reqwest::Error) -> String {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(found) = cause {
        let text = found.to_string();
        if words.last() != Some(&text) {
            words.push(text);
        }
        cause = found.source();
    }
    words.join(": ").chars().filter(|letter| *letter != '\0').collect()
}
