//! The text form of addresses, as the region table, flags and logs have it.
//!
//! | text | means |
//! |---|---|
//! | `127.0.0.1:7000` or `[::1]:7000` | that TCP address |
//! | `shm:/path` or `shm:@name` | shared memory on this host, handed out by that unix socket |
//! | `verbs:127.0.0.1:7000` | RDMA, where queue pairs are exchanged over that TCP address |
//! | `sim:5` | the simulated host 5 |

use std::str::FromStr;

use crate::address::Address;
use crate::error::FabricError;
use crate::socket_name::SocketName;

impl FromStr for Address {
    type Err = FabricError;

    fn from_str(text: &str) -> Result<Address, FabricError> {
        let address = match text.split_once(':') {
            Some(("shm", name)) => SocketName::new(name).map(Address::Shm),
            Some(("verbs", socket)) => socket.parse().ok().map(Address::Verbs),
            Some(("sim", number)) => number.parse().ok().map(Address::Sim),
            _ => text.parse().ok().map(Address::Tcp),
        };
        address.ok_or(FabricError::AddressInvalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_text_round_trips() {
        for text in [
            "127.0.0.1:7000",
            "[::1]:7000",
            "verbs:127.0.0.1:7000",
            "verbs:[::1]:7000",
            "sim:5",
            "shm:/a/3",
            "shm:@b",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn address_text_nonsense_is_refused() {
        for text in [
            "",
            "localhost:7000",
            "127.0.0.1",
            "127.0.0.1:7000/",
            "127.0.0.1:7000/3",
            "sim:x",
            "sim:5/3",
            "/1",
            "shm:a",
            "shm:@b#7",
            "verbs:",
            "verbs:7000",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
