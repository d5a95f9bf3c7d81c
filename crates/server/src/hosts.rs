//! The host names a server answers to.
//!
//! A web page can make its own host name resolve to 127.0.0.1 and then send requests to a server there (DNS
//! rebinding). The `Host` header still has that name. So a server that listens on loopback, where requests may need
//! no password or token, answers only to names of this machine and to configured names.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{HOST, HeaderName};
use towpath_model::address::{host_name, is_loopback_host};

use crate::stream::Fields;

/// The names. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Hosts {
    /// Any: the address is public, and requests are authenticated.
    Any,
    /// The names of this machine, and these.
    Local(Arc<[String]>),
}

impl Hosts {
    /// For a listener at `address`.
    pub(crate) fn new(address: Option<SocketAddr>, names: &[String]) -> Hosts {
        match address {
            Some(address) if !address.ip().is_loopback() => Hosts::Any,
            _ => Hosts::Local(names.iter().map(|name| name.to_ascii_lowercase()).collect()),
        }
    }

    /// Whether the server answers a request with these fields and this authority of its target.
    pub(crate) fn allow(&self, fields: &impl Fields, authority: Option<&str>) -> bool {
        let Hosts::Local(names) = self else { return true };
        let mut said = fields.all(&HOST).chain(authority.map(str::as_bytes)).peekable();
        said.peek().is_some()
            && said.all(|host| {
                std::str::from_utf8(host).is_ok_and(|host| {
                    is_loopback_host(host)
                        || names.iter().any(|name| name.eq_ignore_ascii_case(host_name(host)))
                })
            })
    }
}

/// The headers of every answer but pages of the dashboard: no browser runs it as a page, whatever it contains.
pub(crate) const SAFE_FIELDS: [(HeaderName, &str); 2] =
    [(hyper::header::CONTENT_SECURITY_POLICY, "sandbox"), (hyper::header::X_CONTENT_TYPE_OPTIONS, "nosniff")];

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;

    use super::*;

    fn allows(hosts: &Hosts, said: &[&str]) -> bool {
        let mut fields = HeaderMap::new();
        for host in said {
            fields.append(HOST, host.parse().unwrap());
        }
        hosts.allow(&fields, None)
    }

    #[test]
    fn a_loopback_listener_answers_to_its_own_names() {
        let local = Hosts::new(Some("127.0.0.1:4437".parse().unwrap()), &["Towpath.test".to_owned()]);
        for host in ["localhost:4437", "127.0.0.1", "[::1]:4437", "towpath.test", "TOWPATH.test:443"] {
            assert!(allows(&local, &[host]), "{host}");
        }
        for host in ["evil.example", "a.towpath.test", ""] {
            assert!(!allows(&local, &[host]), "{host}");
        }
        assert!(!allows(&local, &[]), "a request must name a host");
        assert!(!allows(&local, &["localhost", "evil.example"]), "all of them must match");
        assert!(!local.allow(&HeaderMap::new(), Some("evil.example")));
        assert!(local.allow(&HeaderMap::new(), Some("localhost:4437")));
        let public = Hosts::new(Some("0.0.0.0:4437".parse().unwrap()), &[]);
        assert!(allows(&public, &["any.example"]));
    }
}
