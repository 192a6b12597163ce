//! Who listens where, and which folders there are.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// The coordinator's socket in a cluster's folder.
pub(crate) const COORDINATOR_SOCKET: &str = "coordinator.socket";
/// HTTP of node i is on P + 80 + i.
pub(crate) const HTTP_OFFSET: u16 = 80;

/// Addresses and folders of a development cluster, or of the processes of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    dir: PathBuf,
    coordinator: PathBuf,
    /// The number of the first node.
    first: u32,
    /// Where the first node serves clients.
    fabric: SocketAddr,
    /// Where it serves HTTP.
    http: SocketAddr,
    drills: bool,
    tls: bool,
    /// It is for real work.
    machine: bool,
    /// Where drills reach it as the agent of its host.
    agent: Option<SocketAddr>,
}

impl Plan {
    /// With first port P (at most 65000, so that every port fits).
    pub(crate) fn new(dir: PathBuf, port: u16) -> Plan {
        let coordinator = dir.join(COORDINATOR_SOCKET);
        let (fabric, http) = (local(port), local(port + HTTP_OFFSET));
        Plan {
            dir,
            coordinator,
            first: 0,
            fabric,
            http,
            drills: false,
            tls: false,
            machine: false,
            agent: None,
        }
    }

    /// Of the processes of one machine, from this number and from these addresses on; their ports fit.
    pub(crate) fn of_machine(
        dir: PathBuf,
        coordinator: PathBuf,
        first: u32,
        (fabric, http): (SocketAddr, SocketAddr),
    ) -> Plan {
        Plan { coordinator, first, fabric, http, machine: true, ..Plan::new(dir, 0) }
    }

    /// The number of the node in this place.
    pub(crate) fn id(&self, place: u16) -> u32 {
        self.first + u32::from(place)
    }

    /// The place of the node of this number, if it comes after the first one.
    pub(crate) fn place(&self, node: u16) -> Option<usize> {
        u32::from(node).checked_sub(self.first).and_then(|place| usize::try_from(place).ok())
    }

    /// The same with an agent that listens there.
    pub(crate) fn with_agent(self, address: SocketAddr) -> Plan {
        Plan { agent: Some(address), ..self }
    }

    /// Where the agent of its host listens, if it has one.
    pub(crate) fn agent(&self) -> Option<SocketAddr> {
        self.agent
    }

    /// Whether it is of the processes of one machine, for real work.
    pub(crate) fn is_of_machine(&self) -> bool {
        self.machine
    }

    /// The same with drills allowed.
    pub(crate) fn with_drills(self) -> Plan {
        Plan { drills: true, ..self }
    }

    /// The same with HTTP over TLS.
    pub(crate) fn with_tls(self) -> Plan {
        Plan { tls: true, ..self }
    }

    /// The address of a page of a node.
    pub(crate) fn page(&self, node: u16, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.http(node))
    }

    /// Whether faults may be injected.
    pub(crate) fn allows_drills(&self) -> bool {
        self.drills
    }

    /// Where they are asked for.
    pub(crate) fn drill_socket(&self) -> PathBuf {
        cell_drill::drill_socket(&self.dir)
    }

    /// Where nodes are added and taken away.
    pub(crate) fn scale_socket(&self) -> PathBuf {
        super::scale_wire::socket(&self.dir)
    }

    /// Everything is below it.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where processes report what they do.
    pub(crate) fn messages_dir(&self) -> PathBuf {
        self.dir.join("messages")
    }

    /// The file of a node's messages.
    pub(crate) fn node_messages(&self, node: u16) -> PathBuf {
        self.messages_dir().join(format!("node-{node}.log"))
    }

    /// The file of the supervisor's messages.
    pub(crate) fn supervisor_messages(&self) -> PathBuf {
        self.messages_dir().join("supervisor.log")
    }

    /// Where the coordinator is asked.
    pub(crate) fn coordinator(&self) -> PathBuf {
        self.coordinator.clone()
    }

    /// The coordinator's table.
    pub(crate) fn coordinator_dir(&self) -> PathBuf {
        self.dir.join("coordinator")
    }

    /// Where clients reach a node.
    pub(crate) fn fabric(&self, node: u16) -> SocketAddr {
        shifted(self.fabric, node)
    }

    /// A node's HTTP.
    pub(crate) fn http(&self, node: u16) -> SocketAddr {
        shifted(self.http, node)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

/// An address with a port that is so much higher.
fn shifted(address: SocketAddr, by: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_ports_are_as_documented() {
        let plan = Plan::new("d".into(), 7000);
        assert_eq!([plan.fabric(2), plan.http(2)].map(|address| address.port()), [7002, 7082]);
        assert_eq!(plan.coordinator(), Path::new("d/coordinator.socket"));
    }

    #[test]
    fn place_is_counted_from_the_first_number() {
        let addresses = (local(7000), local(7080));
        let plan = Plan::of_machine("d".into(), "c.socket".into(), 3, addresses);
        assert_eq!([2, 3, 5].map(|node| plan.place(node)), [None, Some(0), Some(2)]);
        assert_eq!(plan.id(2), 5);
    }
}
