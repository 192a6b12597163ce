//! What each of a machine's processes gets of it: numbers, ports and memory. Pure.

use std::fmt;
use std::net::SocketAddr;

use crate::exit::Failure;
use crate::settings::{LEFT_PART, SUPERVISOR_BYTES};

/// Nodes of a cluster, at most.
pub(crate) const CLUSTER_NODES_MAX: u64 = 1_024;
const MIB: u64 = 1 << 20;

/// The number of the first node, if those of all processes fit.
pub(crate) fn first_id(first: u64, processes: u16) -> Result<u32, Failure> {
    let last = first + u64::from(processes) - 1;
    match u32::try_from(first) {
        Ok(first) if last < CLUSTER_NODES_MAX => Ok(first),
        _ => {
            let what = format!(
                "{processes} processes from node_id {first} on would end at {last}: numbers end at {}",
                CLUSTER_NODES_MAX - 1
            );
            Err(Failure::usage(what).next("give a smaller node_id or fewer --processes"))
        }
    }
}

/// Refuses ports of the setting `name` that are not all there.
pub(crate) fn check_ports(
    name: &str,
    first: &dyn fmt::Display,
    port: u16,
    processes: u16,
) -> Result<(), Failure> {
    let last = u32::from(port) + u32::from(processes) - 1;
    if port == 0 {
        let what = format!("`{name}` cannot be `{first}` with --processes: ports are in a row from it on");
        return Err(Failure::usage(what).next("give the first of them"));
    }
    if last > u32::from(u16::MAX) {
        let what = format!(
            "{processes} processes from `{name}` {first} on would need port {last}: ports end at 65535"
        );
        return Err(Failure::usage(what).next(format!("give a smaller port as {name}, or fewer --processes")));
    }
    Ok(())
}

/// Refuses ports for clients and for HTTP of which one is both. Each of them fits.
pub(crate) fn check_apart(fabric: SocketAddr, http: SocketAddr, processes: u16) -> Result<(), Failure> {
    let same_ip = fabric.ip() == http.ip() || fabric.ip().is_unspecified() || http.ip().is_unspecified();
    let apart = fabric.port().abs_diff(http.port()) >= processes;
    if apart || !same_ip {
        return Ok(());
    }
    let what = format!(
        "the ports of {processes} processes from listen_address {fabric} and http_address {http} on collide"
    );
    Err(Failure::usage(what).next(format!("give them ports that are at least {processes} apart")))
}

/// What each process may hold in memory, of the limit that was given for all (0: none) or of what the machine
/// has; `None` where nobody says how much that is. `smallest` is what each needs.
pub(crate) fn memory_share(
    given: u64,
    total: Option<u64>,
    processes: u16,
    smallest: u64,
) -> Result<Option<u64>, Failure> {
    let all = match (given, total) {
        (0, None) => return Ok(None),
        (0, Some(total)) => total - total / LEFT_PART,
        (given, _) => given,
    };
    let share = all.saturating_sub(SUPERVISOR_BYTES) / u64::from(processes);
    if share >= smallest {
        return Ok(Some(share));
    }
    let needed = smallest * u64::from(processes) + SUPERVISOR_BYTES;
    let what = format!(
        "{} MiB of memory are too few for {processes} processes: each needs {} MiB, the supervisor {}",
        all / MIB,
        smallest.div_ceil(MIB),
        SUPERVISOR_BYTES / MIB
    );
    let next =
        format!("give a memory_limit_bytes of at least {} MiB, or fewer --processes", needed.div_ceil(MIB));
    Err(Failure::usage(what).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn first_id_of_numbers_that_fit_is_it_and_others_are_refused() {
        assert_eq!(first_id(960, 64).unwrap(), 960);
        assert_eq!(first_id(1_023, 1).unwrap(), 1_023);
        let refused = first_id(961, 64).unwrap_err();
        assert!(refused.what.contains("would end at 1024: numbers end at 1023"), "{refused}");
    }

    #[test]
    fn ports_end_at_the_last_one_and_do_not_collide() {
        check_ports("http_address", &"127.0.0.1:65472", 65472, 64).unwrap();
        let past = check_ports("http_address", &"127.0.0.1:65473", 65473, 64).unwrap_err();
        assert!(past.what.contains("would need port 65536"), "{past}");
        assert!(check_ports("listen_address", &"127.0.0.1:0", 0, 2).is_err());

        let fabric = at("127.0.0.1:7000");
        check_apart(fabric, at("127.0.0.1:7080"), 64).unwrap();
        check_apart(fabric, at("127.0.0.1:7003"), 3).unwrap();
        check_apart(fabric, at("127.0.0.2:7001"), 3).unwrap();
        for http in ["127.0.0.1:7002", "127.0.0.1:6998", "127.0.0.1:7000", "0.0.0.0:7001"] {
            let refused = check_apart(fabric, at(http), 3).unwrap_err();
            assert!(refused.what.contains("collide"), "{refused}");
        }
    }

    #[test]
    fn memory_shares_and_supervisor_are_the_limit_and_too_little_is_refused_with_what_is_enough() {
        let smallest = 100 * MIB;
        let enough = 3 * smallest + SUPERVISOR_BYTES;
        assert_eq!(memory_share(enough, Some(1), 3, smallest).unwrap(), Some(smallest));
        let refused = memory_share(enough - 1, None, 3, smallest).unwrap_err();
        let next = refused.next.clone().unwrap();
        assert!(next.contains(&format!("at least {} MiB", enough / MIB)), "{next}");
        assert_eq!(memory_share(0, None, 3, smallest).unwrap(), None);
        let of_machine = memory_share(0, Some(16 << 30), 4, smallest).unwrap();
        assert_eq!(of_machine, Some(((15 << 30) - SUPERVISOR_BYTES) / 4));
    }
}
