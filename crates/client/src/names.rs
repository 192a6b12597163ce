//! Servers that are named: `name:port` in place of an address.

use cell_fabric::Address;

/// Whether this is `name:port`, and so has to be looked up: what is an address already is none.
pub(crate) fn is_name(text: &str) -> bool {
    let is_address = text.parse::<Address>().is_ok();
    !is_address
        && text.rsplit_once(':').is_some_and(|(host, port)| {
            let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_name_of_a_host_and_a_port_alone() {
        for name in ["localhost:7000", "node-3.example.org:1"] {
            assert!(is_name(name), "{name}");
        }
        for address in ["127.0.0.1:7000", "[::1]:7000", "sim:5", "verbs:127.0.0.1:7000", "shm:/a/b"] {
            assert!(!is_name(address), "{address}");
        }
        for other in ["localhost", ":7000", "localhost:x", "verbs:a:7000"] {
            assert!(!is_name(other), "{other}");
        }
    }
}
