//! Who may be bound and who may be asked: loopback only, until TLS and tokens are there.

use std::net::{IpAddr, SocketAddr};

/// Whether an address may be bound.
pub(crate) fn is_permitted(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}

/// Whether a `Host` header can mean this machine: a name without a dot (`localhost`, a container's name) or a
/// loopback address, with or without a port. A web page that points its own name at 127.0.0.1 needs a dot in
/// it.
pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let is_label = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_label || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether an `Origin` header is of the host that the request was sent to: scheme, then the same name and
/// port. `null`, which sandboxed pages send, is of none.
pub(crate) fn is_origin(origin: &str, host: &str) -> bool {
    let named = origin.split_once("://").map(|(scheme, named)| (scheme.to_ascii_lowercase(), named));
    let Some((scheme, named)) = named.filter(|(_, named)| !named.is_empty()) else { return false };
    let usual = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let plain = |name: &str| name.strip_suffix(usual).unwrap_or(name).to_ascii_lowercase();
    plain(named) == plain(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_local_names_of_this_machine_only() {
        for host in
            ["localhost", "LOCALHOST:7080", "127.0.0.1:7080", "127.1.2.3", "cell", "[::1]:7080", "[::1]"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:7080", "10.0.0.1", "[::2]", "localhost.evil"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn is_origin_the_same_name_and_port_alone() {
        for (origin, host) in [
            ("http://127.0.0.1:7080", "127.0.0.1:7080"),
            ("HTTP://LocalHost:7080", "localhost:7080"),
            ("http://localhost", "localhost:80"),
            ("https://localhost:443", "localhost"),
            ("http://[::1]:7080", "[::1]:7080"),
        ] {
            assert!(is_origin(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost"),
            ("", ""),
            ("http://", ""),
            ("http://localhost:7081", "localhost:7080"),
            ("http://evil.example", "localhost"),
            ("http://localhost.evil.example:7080", "localhost:7080"),
            ("ftp://localhost:7080", "localhost:7080"),
        ] {
            assert!(!is_origin(origin, host), "{origin} {host}");
        }
    }

    #[test]
    fn is_permitted_loopback_only() {
        assert!(is_permitted("127.0.0.1:1".parse().unwrap()) && is_permitted("[::1]:1".parse().unwrap()));
        assert!(!is_permitted("0.0.0.0:1".parse().unwrap()) && !is_permitted("10.1.1.1:1".parse().unwrap()));
    }
}
