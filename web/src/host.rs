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
    fn is_permitted_loopback_only() {
        assert!(is_permitted("127.0.0.1:1".parse().unwrap()) && is_permitted("[::1]:1".parse().unwrap()));
        assert!(!is_permitted("0.0.0.0:1".parse().unwrap()) && !is_permitted("10.1.1.1:1".parse().unwrap()));
    }
}
