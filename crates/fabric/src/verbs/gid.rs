#![allow(unsafe_code)] // one call of libibverbs
//! Which of a port's addresses packets come from: on Ethernet the one that the connection's socket has at
//! this end, so that packets go by the network that the connection was made over.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;

use ibverbs_sys as ffi;

use super::error::VerbsError;
use super::port::Port;

/// An address of a port, in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) index: u8,
    pub(super) bytes: [u8; 16],
    /// Routed Ethernet: packets that switches and routers know.
    roce_v2: bool,
}

impl Gid {
    /// How well it serves where the operator named none: more is better.
    fn rank(&self) -> u8 {
        let address = Ipv6Addr::from(self.bytes);
        let with_address = u8::from(!address.is_unicast_link_local());
        let with_ipv4 = u8::from(address.to_ipv4_mapped().is_some());
        4 * u8::from(self.roce_v2) + 2 * with_ipv4 + with_address
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.bytes).to_canonical().fmt(f)
    }
}

/// Those of a port, as they were when the device was opened.
#[derive(Debug)]
pub(super) struct Gids {
    /// The one that the operator named, or that serves best.
    chosen: Gid,
    /// All of them, where connections go by their addresses: not where the operator has named one, nor over
    /// InfiniBand, whose GIDs are no addresses of sockets.
    by_address: Option<Vec<Gid>>,
}

impl Gids {
    /// Those of a port; only the one of that index if there is one.
    pub(super) fn read(
        context: NonNull<ffi::ibv_context>,
        device: &str,
        port: &Port,
        wanted: Option<u32>,
    ) -> Result<Gids, VerbsError> {
        let found = candidates(device, port.gids, wanted)?.filter_map(|index| query(context, port, index));
        let goes_by_address = port.is_ethernet && wanted.is_none();
        Gids::of(found.collect(), goes_by_address).ok_or_else(|| VerbsError::NoGid {
            device: device.to_owned(),
            port: port.number,
            which: wanted.map_or_else(String::new, |index| format!(" {index}")),
        })
    }

    fn of(found: Vec<Gid>, goes_by_address: bool) -> Option<Gids> {
        let chosen = best(found.iter().copied())?;
        Some(Gids { chosen, by_address: goes_by_address.then_some(found) })
    }

    /// The one for a connection whose socket has this address here; none: the port sends no packets from it.
    /// Both ends of a connection over loopback are on this machine, so any will do.
    pub(super) fn of_address(&self, address: IpAddr) -> Option<Gid> {
        let address = address.to_canonical();
        let gids = self.by_address.as_ref().filter(|_| !address.is_loopback());
        let Some(gids) = gids else { return Some(self.chosen) };
        let bytes = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        best(gids.iter().copied().filter(|gid| gid.bytes == bytes))
    }
}

/// The one, or all addresses.
impl fmt::Display for Gids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(gids) = &self.by_address else {
            return write!(f, "gid {} ({})", self.chosen.index, self.chosen);
        };
        let mut addresses: Vec<String> = gids.iter().map(Gid::to_string).collect();
        addresses.dedup(); // most stand there twice, once for each kind of packets
        f.write_str(&addresses.join(", "))
    }
}

/// The indexes to look at in a table of so many GIDs. A queue pair names its GID in eight bits.
fn candidates(
    device: &str,
    gids: u32,
    wanted: Option<u32>,
) -> Result<impl Iterator<Item = u8> + use<>, VerbsError> {
    if let Some(index) = wanted.filter(|index| u8::try_from(*index).is_err()) {
        return Err(VerbsError::GidNotAddressable { device: device.to_owned(), index });
    }
    let is_there = move |index: &u8| u32::from(*index) < gids;
    Ok((0..=u8::MAX)
        .filter(is_there)
        .filter(move |index| wanted.is_none_or(|wanted| wanted == u32::from(*index))))
}

/// The one that serves best, the first among equals.
fn best(gids: impl Iterator<Item = Gid>) -> Option<Gid> {
    gids.reduce(|best, next| if next.rank() > best.rank() { next } else { best })
}

fn query(context: NonNull<ffi::ibv_context>, port: &Port, index: u8) -> Option<Gid> {
    let mut entry = ffi::ibv_gid_entry::default();
    let (number, bytes) = (u32::from(port.number), size_of::<ffi::ibv_gid_entry>());
    // SAFETY: the context is open; the call writes at most `bytes` bytes to the entry, which outlives it.
    let answer =
        unsafe { ffi::_ibv_query_gid_ex(context.as_ptr(), number, index.into(), &raw mut entry, 0, bytes) };
    // SAFETY: of the union any sixteen bytes are good.
    let raw = unsafe { entry.gid.raw };
    let is_there = answer == 0 && raw != [0; 16];
    is_there.then_some(Gid { index, bytes: raw, roce_v2: entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u8, address: &str, roce_v2: bool) -> Gid {
        let address: Ipv6Addr = address.parse().unwrap();
        Gid { index, bytes: address.octets(), roce_v2 }
    }

    /// A connection by one network sent its packets by another, which may lead nowhere.
    #[test]
    fn of_address_is_the_gid_of_that_address_for_packets_that_are_routed() {
        let found = vec![
            gid(0, "fe80::1", true),
            gid(1, "::ffff:10.9.0.1", false),
            gid(2, "::ffff:10.9.0.1", true),
            gid(3, "2001:db8::1", false),
            gid(4, "2001:db8::1", true),
            gid(5, "::ffff:10.8.0.1", true),
        ];
        let of = |gids: &Gids, address: &str| gids.of_address(address.parse().unwrap()).map(|gid| gid.index);
        let gids = Gids::of(found.clone(), true).unwrap();
        for (address, index) in [
            ("10.9.0.1", Some(2)),
            ("::ffff:10.9.0.1", Some(2)),
            ("10.8.0.1", Some(5)),
            ("2001:db8::1", Some(4)),
            ("fe80::1", Some(0)),
            ("10.9.0.2", None),
            ("2001:db8::2", None),
            ("127.0.0.1", Some(2)),
            ("::1", Some(2)),
        ] {
            assert_eq!(of(&gids, address), index, "{address}");
        }
        let words = "fe80::1, 10.9.0.1, 2001:db8::1, 10.8.0.1";
        assert_eq!(gids.to_string(), words);
        // One that was named is used for all, and so is InfiniBand's.
        let named = Gids::of(found[5..].to_vec(), false).unwrap();
        assert_eq!(["10.9.0.1", "2001:db8::2"].map(|address| of(&named, address)), [Some(5); 2]);
        assert_eq!(named.to_string(), "gid 5 (10.8.0.1)");
        assert!(Gids::of(Vec::new(), true).is_none());
    }

    #[test]
    fn best_gid_is_routed_and_has_an_ipv4_address() {
        let gids = [
            gid(0, "fe80::1", false),
            gid(1, "fe80::1", true),
            gid(2, "::ffff:10.9.0.1", false),
            gid(3, "::ffff:10.9.0.1", true),
            gid(4, "::ffff:10.9.0.2", true),
        ];
        let chosen = |count: usize| best(gids[..count].iter().copied()).map(|gid| gid.index);
        assert_eq!([0, 1, 2, 3, 4, 5].map(chosen), [None, Some(0), Some(1), Some(1), Some(3), Some(3)]);
    }

    /// Such an index became GID 0.
    #[test]
    fn candidates_beyond_what_a_queue_pair_can_name_are_refused() {
        let of = |gids, wanted| candidates("rxe0", gids, wanted).map(Iterator::collect::<Vec<_>>);
        assert_eq!(of(4, Some(2)).unwrap(), [2]);
        assert_eq!(of(300, Some(255)).unwrap(), [255]);
        assert_eq!((of(4, Some(4)).unwrap(), of(2, None).unwrap()), (vec![], vec![0, 1]));
        assert_eq!(of(300, None).unwrap().len(), 256);
        let error = of(300, Some(256)).unwrap_err().to_string();
        assert!(error.contains("256") && error.contains("rxe0") && error.contains("_verbs_gid"), "{error}");
    }
}
