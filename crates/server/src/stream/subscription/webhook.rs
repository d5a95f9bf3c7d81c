//! Webhooks of the subscription API: where they may go, and sending one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use serde::Deserialize;
use towpath_model::address::{is_loopback_host, is_public};

/// Answers are read this far; they hold one flag.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Who may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Public addresses by https.
    Public,
    /// Also this machine by http, for development.
    AndLocal,
}

/// What a receiver answered.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) done: bool,
}

/// Sends webhooks. The address that was checked is the one that is connected to, redirects are
/// not followed, and proxies of the environment are not used.
pub(super) struct Sender {
    http: reqwest::Client,
}

impl Sender {
    pub(super) fn new(reach: Reach) -> Result<Sender, reqwest::Error> {
        let http = reqwest::Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(Guarded(reach)))
            .user_agent(concat!("towpath/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Sender { http })
    }

    /// Sends, and answers what the receiver said, or why it did not arrive.
    pub(super) async fn send(
        &self,
        url: &str,
        body: String,
        signature: String,
        wait_max: Duration,
    ) -> Result<Answer, String> {
        let request = self.http.post(url).timeout(wait_max).header("content-type", "application/json");
        let sent = request.header("webhook-signature", signature).body(body).send().await;
        let mut response = sent.map_err(|error| error.without_url().to_string())?;
        if !response.status().is_success() {
            return Err(format!("the receiver responded with {}", response.status()));
        }
        let mut answer = vec![];
        while let Ok(Some(chunk)) = response.chunk().await {
            answer.extend_from_slice(&chunk);
            if answer.len() > ANSWER_BYTES_MAX {
                break;
            }
        }
        // Success with an answer that says nothing is success.
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }
}

/// Whether a URL may be called at all. Names are looked up, and judged, when it is called.
pub(super) fn check(text: &str, reach: Reach) -> Result<(), &'static str> {
    let url: Url = text.parse().map_err(|_| "webhook.url is not a URL")?;
    let local = match url.host() {
        None => return Err("webhook.url has no host"),
        Some(reqwest_host) => is_loopback_host(&reqwest_host.to_string()),
    };
    match (url.scheme(), reach) {
        ("https", _) => match literal(&url) {
            Some(address) if !is_public(address) => Err("webhook.url is not a public address"),
            _ if local => Err("webhook.url is not a public address"),
            _ => Ok(()),
        },
        ("http", Reach::AndLocal) if local => Ok(()),
        ("http", _) => Err("webhook.url must use https"),
        _ => Err("webhook.url must use https"),
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// Looks names up and drops every address that must not be connected to.
struct Guarded(Reach);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed = |address: &SocketAddr| {
                let local = reach == Reach::AndLocal && address.ip().is_loopback();
                is_public(address.ip()) || local
            };
            let addresses: Vec<SocketAddr> = found.filter(allowed).collect();
            match addresses.is_empty() {
                true => Err(format!("{} has no public address", name.as_str()).into()),
                false => Ok(Box::new(addresses.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_https_is_called() {
        let ok = |url| check(url, Reach::Public).is_ok();
        assert!(ok("https://example.com/hook"));
        assert!(ok("https://1.1.1.1/"));
        for url in [
            "http://example.com/",
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://localhost/",
            "https://0x7f000001/",
            "https://2130706433/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "nonsense",
        ] {
            assert!(!ok(url), "{url}");
        }
    }

    #[test]
    fn development_adds_this_machine_and_nothing_else() {
        let ok = |url| check(url, Reach::AndLocal).is_ok();
        assert!(ok("http://127.0.0.1:9/hook"));
        assert!(ok("http://localhost:9/hook"));
        assert!(!ok("http://10.0.0.1/hook"));
        assert!(!ok("http://169.254.169.254/"));
    }

    /// A name of a private address is refused when it is looked up to connect.
    #[tokio::test]
    async fn names_are_judged_by_their_addresses() {
        let sender = Sender::new(Reach::Public).unwrap();
        let sent =
            sender.send("https://localhost:1/", String::new(), "s".into(), Duration::from_secs(5)).await;
        assert!(sent.is_err());
    }
}
