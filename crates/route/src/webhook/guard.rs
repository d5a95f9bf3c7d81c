//! Where a webhook may go.
//!
//! A URL that names an address is judged as it stands; a name is judged by the addresses it
//! leads to, each time it is looked up, and only those that passed are dialled. So a name that
//! is public when the route is made and private later leads nowhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use towpath_model::address::is_public;

/// What may be dialled besides public addresses by https, which always may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// This machine, also by http: for development.
    pub local: bool,
    /// These networks, also by http.
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

/// An address that must not be dialled.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(String);

/// Why a URL is not even tried.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It cannot be called by anybody.
    Unusable(String),
    /// It must not be called by us.
    Forbidden(Forbidden),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
}

/// Reads a URL and refuses what can be refused without looking a name up. Reading turns every
/// way to write an IPv4 address (decimal, octal, hexadecimal, short) into that address.
pub(super) fn check(text: &str, reach: &Reach) -> Result<(Url, Scheme), Refusal> {
    let forbidden = |words: String| Refusal::Forbidden(Forbidden(words));
    let url: Url =
        text.parse().map_err(|error| Refusal::Unusable(format!("the url cannot be read: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Unusable("the url holds a user name; use a header of the route".to_owned()));
    }
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        "http" if reach.is_public_only() => {
            return Err(forbidden(
                "the url must use https; http is for webhook_local and webhook_networks".to_owned(),
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
        Scheme::Http => format!("{host} may not be called by http; use https"),
    }
}

/// The addresses of a name, when they come.
pub type Found = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A way to look names up.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name.
    fn lookup(&self, name: &str) -> Found;
}

/// The operating system's way.
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

/// Looks names up and forgets every address that must not be dialled.
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
