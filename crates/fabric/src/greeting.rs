//! What an acceptor says of itself in its hello, so that one address is enough to find everything else.

/// A host's introduction. Clients use it to see whether they are on the same host, and where to ask on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The running kernel's boot id: equal on both ends means the same host, so memory can be shared. Zero:
    /// unknown.
    pub boot_id: [u8; 16],
    /// Path of the socket that hands out shared memory; empty: none.
    pub shared_memory_socket: String,
    /// Where the node's HTTP listens, as text; empty: nowhere.
    pub http_address: String,
}

impl Greeting {
    /// A greeting with this host's boot id, zero where the kernel gives none.
    #[must_use]
    pub fn of_this_host() -> Greeting {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Greeting { boot_id: parse_boot_id(&text).unwrap_or_default(), ..Greeting::default() }
    }
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_of_this_host_is_known() {
        assert_ne!(Greeting::of_this_host().boot_id, [0; 16]);
        assert_eq!(parse_boot_id("1"), None);
        assert_eq!(parse_boot_id("00000000-0000-0000-0000-000000000102\n").unwrap()[14..], [1, 2]);
    }
}
