//! Which addresses a server may connect to on behalf of a client, and which names mean this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The remote address of a request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// Whether an address is on the public internet. Everything else (this machine, its networks, tunnels into
/// them, special ranges) is off limits for clients.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

/// Only global unicast; an address with an embedded IPv4 address is checked by that.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    let [a, b, c, d, _, _, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // NAT64 and 6to4.
        (0x64, 0xff9b) => c == 0 && d == 0 && v4(g, h),
        (0x2002, high) => v4(high, c),
        // IETF protocol assignments (Teredo, ORCHID, benchmarking, …) and documentation.
        (0x2001, 0..=0x1ff | 0xdb8) => false,
        (0x3fff, 0..=0xfff) => false,
        _ => a & 0xe000 == 0x2000,
    }
}

/// The name in a `Host` header or an authority, without its port.
pub fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a `Host` header, with or without a port, names this machine itself.
pub fn is_loopback_host(host: &str) -> bool {
    let name = host_name(host);
    let bare = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').unwrap_or_default(),
        None => name,
    };
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an `Origin` header names a page that this machine serves.
pub fn is_loopback_origin(origin: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(is_loopback_host)
}

#[cfg(test)]
mod tests {
    use super::{is_loopback_host, is_loopback_origin, is_public};

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LocalHost:4437", "127.0.0.1:4437", "[::1]:4437", "[::1]", "127.9.9.9"] {
            assert!(is_loopback_host(host), "{host}");
            assert!(is_loopback_origin(&format!("http://{host}")), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:4437",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[2001:db8::1]:80",
            "[127.0.0.1",
            "localhost/@evil.example",
            "evil.example:80@localhost",
        ] {
            assert!(!is_loopback_host(host), "{host}");
            assert!(!is_loopback_origin(&format!("https://{host}")), "{host}");
        }
        for origin in ["null", "", "file://", "localhost", "chrome-extension://localhost"] {
            assert!(!is_loopback_origin(origin), "{origin}");
        }
    }

    #[test]
    fn only_the_internet_is_public() {
        for address in ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "2002:808:808::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
