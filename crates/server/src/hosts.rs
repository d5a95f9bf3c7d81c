//! The names a server answers to.
//!
//! A page on the web can make its own name mean 127.0.0.1 and then ask a server there as if it were its
//! own (DNS rebinding). The `Host` header still says that name. So a server that listens on loopback, where
//! no password or token may be needed, answers only to names of this machine and to those it was given.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{HOST, HeaderName};
use towpath_model::address::{host_name, is_loopback_host};

use crate::stream::Fields;

/// The names. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Hosts {
    /// Any: others than this machine reach the address, and show who they are.
    Any,
    /// Those of this machine, and these.
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

    /// Whether it answers a request with these fields, and the authority of its target if it has one.
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

/// What every answer that is no page of the dashboard carries: it never runs as one, whatever it holds.
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
        assert!(!allows(&local, &[]), "a request must say whom it asks");
        assert!(!allows(&local, &["localhost", "evil.example"]), "every one of them counts");
        assert!(!local.allow(&HeaderMap::new(), Some("evil.example")));
        assert!(local.allow(&HeaderMap::new(), Some("localhost:4437")));
        let public = Hosts::new(Some("0.0.0.0:4437".parse().unwrap()), &[]);
        assert!(allows(&public, &["any.example"]));
    }
}
