//! Which addresses a webhook may reach.
//!
//! An IP address in a URL is checked directly; a host name is checked by its addresses each time it is resolved, and
//! only allowed addresses are connected to. A name that becomes private later is therefore rejected.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use towpath_model::address::is_public;

/// What is allowed besides public addresses over https.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// This machine, also over http, for development.
    pub local: bool,
    /// These networks, also over http.
    pub networks: Vec<IpNet>,
}

impl Reach {
    fn allows(&self, address: IpAddr, scheme: Scheme) -> bool {
        let listed = self.networks.iter().any(|network| network.contains(&address));
        let own = (self.local && address.is_loopback()) || listed;
        own || (scheme == Scheme::Https && is_public(address))
    }

    fn is_public_only(&self) -> bool {
        !self.local && self.networks.is_empty()
    }
}

/// A forbidden address.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(String);

/// Why a URL is rejected.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is invalid.
    Unusable(String),
    /// It is forbidden.
    Forbidden(Forbidden),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
}

/// Parses a URL and rejects what can be rejected without resolving its name. Parsing normalises every notation of an
/// IPv4 address (decimal, octal, hexadecimal, short).
pub(super) fn check(text: &str, reach: &Reach) -> Result<(Url, Scheme), Refusal> {
    let forbidden = |words: String| Refusal::Forbidden(Forbidden(words));
    let url: Url = text.parse().map_err(|error| Refusal::Unusable(format!("invalid url: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Unusable(
            "the url contains a user name; use a header of the route instead".to_owned(),
        ));
    }
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        "http" if reach.is_public_only() => {
            return Err(forbidden(
                "the url must use https; http is allowed only with webhook_local or webhook_networks"
                    .to_owned(),
            ));
        }
        "http" => Scheme::Http,
        other => return Err(forbidden(format!("the url must use https, not {other}"))),
    };
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return Err(Refusal::Unusable("the url has no host".to_owned()));
    };
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>()
        && !reach.allows(address, scheme)
    {
        return Err(forbidden(not_allowed(&address.to_string(), scheme)));
    }
    Ok((url, scheme))
}

fn not_allowed(host: &str, scheme: Scheme) -> String {
    match scheme {
        Scheme::Https => format!("{host} is not a public address; allow its network with webhook_networks"),
        Scheme::Http => format!("{host} cannot be called over http; use https"),
    }
}

/// A pending name resolution.
pub type Found = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name.
    fn lookup(&self, name: &str) -> Found;
}

/// The operating system's resolver.
#[derive(Debug, Clone, Copy)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> Found {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Resolves names and drops forbidden addresses.
pub(super) struct Guarded {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) reach: Arc<Reach>,
    pub(super) scheme: Scheme,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.lookup.lookup(name.as_str());
        let (reach, scheme, name) = (self.reach.clone(), self.scheme, name.as_str().to_owned());
        Box::pin(async move {
            let allowed: Vec<SocketAddr> = found
                .await?
                .into_iter()
                .filter(|address| reach.allows(*address, scheme))
                // The port is the URL's; this one is a placeholder.
                .map(|address| SocketAddr::new(address, 0))
                .collect();
            match allowed.is_empty() {
                true => Err(Forbidden(not_allowed(&name, scheme)).into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}
