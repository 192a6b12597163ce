//! Hosts of a test's own on this machine: each is a process in network, mount, process and host name
//! namespaces of its own, with a disk of its own. They are joined by a bridge in a further namespace, so that
//! nothing of them is in the machine's network, and several tests have such hosts side by side.
//!
//! The hosts' names are `host-1.test`, `host-2.test`, and so on, and `client.test`; their addresses are
//! `10.79.0.1` and on. It takes root, iproute2, nftables and util-linux.

mod etcd;
mod far;
mod gluster;
mod groups;
mod host;
mod network;
mod process;
mod store;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::getuid;
use tempfile::TempDir;

use crate::reaper;

pub use etcd::{Etcd, EtcdOptions};
pub use far::Far;
pub use gluster::Gluster;
pub use groups::HostGroups;
pub use host::Host;
pub use network::Network;
pub use process::HostProcess;
pub use store::{NODE_PORT, Store, StoreOptions, pairs_of, runs_of};

/// The last byte of the client's address.
const CLIENT: u16 = 9;
/// Most hosts: those that `host.sh` has names for.
const HOSTS_MAX: u16 = 5;
/// What they are made with.
const PROGRAMS: [&str; 7] = ["unshare", "nsenter", "ip", "nft", "tc", "mount", "hostname"];

/// Hosts, and the network between them. All of it is gone when dropped, or when the test's process has ended.
pub struct Hosts {
    hosts: Vec<Host>,
    client: Host,
    network: Network,
    // Removed after the hosts, which have it mounted.
    folder: TempDir,
}

impl Hosts {
    /// Starts hosts 1 to `count`, and a host for clients; `None`, said loudly, where the machine lacks what
    /// it takes.
    ///
    /// # Panics
    /// If everything is there and they still do not come up.
    pub fn start(count: u16) -> Option<Self> {
        Self::start_with(count, &[])
    }

    /// As [`Hosts::start`], where host i has run for so many seconds more than this machine, by its clock of
    /// the time since its start, as the i-th of `booted_s` says.
    ///
    /// # Panics
    /// As for [`Hosts::start`].
    pub fn start_with(count: u16, booted_s: &[u32]) -> Option<Self> {
        assert!(count <= HOSTS_MAX, "host.sh names {HOSTS_MAX} hosts");
        if !is_possible("hosts in namespaces", &PROGRAMS) {
            return None;
        }
        if !has_overlay() {
            println!("SKIPPED: hosts in namespaces: the kernel has no overlay file system");
            return None;
        }
        groups::remove_left();
        let folder = TempDir::with_prefix("cell-hosts-disk-").expect("a temporary folder can be made");
        reaper::remove(folder.path());
        for name in ["logs", "shared"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder can be made");
        }
        let network = Network::start(folder.path());
        let host = |number: u16, name: String| {
            let booted_s = booted_s.get(usize::from(number - 1)).copied().unwrap_or(0);
            Host::start(folder.path(), number, name, booted_s, network.switch())
        };
        let hosts = (1..=count).map(|number| host(number, format!("host-{number}.test"))).collect();
        let client = host(CLIENT, "client.test".to_owned());
        Some(Self { hosts, client, network, folder })
    }

    /// A host by its number, from 1 on.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host(&self, number: u16) -> &Host {
        let found = self.hosts.iter().find(|host| host.number() == number);
        found.unwrap_or_else(|| panic!("there is no host {number}"))
    }

    /// The host for clients.
    pub fn client(&self) -> &Host {
        &self.client
    }

    /// The numbers of all hosts but the client's.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u16> {
        1..=u16::try_from(self.hosts.len()).unwrap_or(HOSTS_MAX)
    }

    /// The network, to do something to it.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// All is let through again, in the network and on each host.
    pub fn heal(&self) {
        self.network.heal();
        self.hosts.iter().for_each(Host::open_ports);
    }

    /// The test's folder, which all hosts see under this path: logs of their processes lie in `logs`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A folder in which all hosts see the same files, as if it were a file system of the network.
    pub fn shared(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// The certificates by which the hosts' own are trusted, once [`Hosts::certify`] has made them.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca/ca.crt")
    }

    /// Gives each host a key and a certificate, `node.key`, `node.crt` and `ca.crt` in `/etc/cell/tls`, by
    /// `cell certificates make`. Those that a host has stay.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn certify(&self) {
        let ca = self.folder.path().join("ca");
        for host in self.hosts.iter().chain([&self.client]) {
            if host.has("/etc/cell/tls/node.crt") {
                continue;
            }
            let names = format!("{},{},localhost,127.0.0.1", host.name(), host.address());
            let ca = ca.display().to_string();
            let made = ["cell", "certificates", "make", "--ca", &ca, "--host", &names];
            let said = host.run(made.iter().chain(&["--out", "/etc/cell/tls"]));
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
}

/// Whether this process is root and these programs are installed; if not it says so of `what`.
pub fn is_possible(what: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| !is_installed(name)).collect();
    let is_possible = getuid().is_root() && missing.is_empty();
    if !is_possible {
        println!("SKIPPED: {what}: it needs root, iproute2, nftables and util-linux; missing: {missing:?}");
    }
    is_possible
}

/// Whether the kernel can lay a host's disk over this machine's, by a module perhaps.
fn has_overlay() -> bool {
    let is_listed = || std::fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("overlay"));
    let load =
        || Command::new("modprobe").arg("overlay").stdout(Stdio::null()).stderr(Stdio::null()).status();
    is_listed() || (load().is_ok() && is_listed())
}

fn is_installed(program: &str) -> bool {
    let look = format!("PATH=$PATH:/usr/sbin:/sbin; command -v {program}");
    let found = Command::new("sh").args(["-c", &look]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
