//! Who may be bound and whom requests may name. A web page that points its own name at this machine must not
//! reach a node: only loopback addresses, `localhost` and names of the settings are taken for this node's.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Whether an address may be bound by whoever serves neither TLS nor asks for tokens.
pub(crate) fn is_local_address(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}

/// The hosts that requests may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// In small letters.
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    any_address: bool,
}

impl Hosts {
    /// `localhost`, loopback addresses, and these names and addresses, which commas separate.
    pub(crate) fn new(further: &str) -> Hosts {
        let mut hosts = Hosts::default();
        for name in further.split(',').map(|name| name_of(name.trim())).filter(|name| !name.is_empty()) {
            match name.parse() {
                Ok(address) => hosts.addresses.push(address),
                Err(_) => hosts.names.push(name.to_ascii_lowercase()),
            }
        }
        hosts
    }

    /// And the address that is bound. If that is every address of this machine, any address in numbers may be
    /// named: no page can point an address elsewhere, only a name.
    pub(crate) fn bound_to(mut self, address: SocketAddr) -> Hosts {
        self.addresses.push(address.ip());
        self.any_address = address.ip().is_unspecified();
        self
    }

    /// Whether a `Host` header names this node, with or without a port.
    pub(crate) fn permits(&self, host: &str) -> bool {
        let name = name_of(host);
        match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.any_address || self.addresses.contains(&address),
            Err(_) => {
                let is_it = |known: &str| known.eq_ignore_ascii_case(name);
                is_it("localhost") || self.names.iter().any(|known| is_it(known))
            }
        }
    }
}

/// Whether this is a host, with or without a port, in the form that a `Host` header has.
pub(crate) fn is_well_formed(host: &str) -> bool {
    let (is_name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            (address.parse::<Ipv6Addr>().is_ok(), port)
        }
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
            (!name.is_empty() && name.bytes().all(is_part), port)
        }
    };
    let is_number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok();
    let is_port = port.is_empty() || port == ":" || port.strip_prefix(':').is_some_and(is_number);
    is_name && is_port
}

/// A host without its port.
pub(crate) fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None if host.bytes().filter(|byte| *byte == b':').count() > 1 => host,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
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
    fn permits_this_machine_and_names_of_the_settings_only() {
        let hosts = Hosts::new("cell, Cell.example:7080,10.0.0.1");
        for host in [
            "localhost",
            "LOCALHOST:7080",
            "127.0.0.1:7080",
            "127.1.2.3",
            "[::1]:7080",
            "[::1]",
            "cell:7080",
            "cell.EXAMPLE",
            "10.0.0.1:7080",
        ] {
            assert!(hosts.permits(host), "{host}");
        }
        for host in
            ["", "foo", "evil.example", "127.0.0.1.evil.example:7080", "10.0.0.2", "[::2]", "localhost."]
        {
            assert!(!hosts.permits(host), "{host}");
        }
    }

    #[test]
    fn is_well_formed_a_name_or_an_address_with_or_without_a_port() {
        for host in ["localhost", "cell.example:7080", "127.0.0.1:1", "[::1]", "[::1]:65535", "a:", "x_1:0"] {
            assert!(is_well_formed(host), "{host}");
        }
        for host in [
            "",
            ":7080",
            "::1",
            "[::1",
            "[::1]x",
            "[localhost]",
            "a:b",
            "a:65536",
            "a:1:2",
            "a:+1",
            "a b",
            "a/b",
            "user@localhost",
            "localhost, evil.example:7080 ",
            "ä",
        ] {
            assert!(!is_well_formed(host), "{host}");
        }
    }

    /// With a search domain of an attacker, a name without a dot points wherever they like.
    #[test]
    fn permits_no_name_without_a_dot_by_itself() {
        assert!(!Hosts::new("").permits("foo:7080") && !Hosts::default().permits("cell"));
    }

    #[test]
    fn permits_the_bound_address_and_any_address_if_all_are_bound() {
        let one = Hosts::new("").bound_to("10.0.0.1:7080".parse().unwrap());
        assert!(one.permits("10.0.0.1:7080") && !one.permits("10.0.0.2:7080"));
        let all = Hosts::new("").bound_to("0.0.0.0:7080".parse().unwrap());
        assert!(all.permits("10.0.0.2:7080") && !all.permits("evil.example:7080"));
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
        assert!(
            is_local_address("127.0.0.1:1".parse().unwrap()) && is_local_address("[::1]:1".parse().unwrap())
        );
        assert!(
            !is_local_address("0.0.0.0:1".parse().unwrap())
                && !is_local_address("10.1.1.1:1".parse().unwrap())
        );
    }
}
