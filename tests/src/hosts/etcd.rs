//! etcd on hosts: a member a host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Pid;

use crate::process;
use crate::wait;

use super::process::HostProcess;
use super::{Hosts, is_possible};

/// Where clients ask a member.
pub(super) const CLIENT_PORT: u16 = 2379;
/// Where a member says to its own host how it is, in the clear.
const METRICS_PORT: u16 = 2381;
/// How long a member may take to answer there: one that stands still does not.
const ANSWERS: Duration = Duration::from_secs(1);
/// Where a member keeps its data.
const DATA: &str = "/var/lib/cell-etcd";

/// How members are started.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// Whether members speak TLS, to clients and to each other, with the hosts' certificates.
    pub tls: bool,
    /// Further flags of each member.
    pub flags: Vec<String>,
}

/// Members of etcd, one on each host.
pub struct Etcd<'h> {
    hosts: &'h Hosts,
    options: EtcdOptions,
    /// By the host's number, less one; none: it is down.
    members: Mutex<Vec<Option<HostProcess>>>,
}

impl<'h> Etcd<'h> {
    /// Starts a member on each host and waits until one leads; `None`, said loudly, without etcd.
    ///
    /// # Panics
    /// If it is installed and does not come up.
    pub fn start(hosts: &'h Hosts, options: EtcdOptions) -> Option<Self> {
        if !is_possible("etcd on hosts in namespaces (apt install etcd-server)", &["etcd"]) {
            return None;
        }
        if options.tls {
            hosts.certify();
        }
        let members = hosts.numbers().map(|_| None).collect();
        let etcd = Self { hosts, options, members: Mutex::new(members) };
        hosts.numbers().for_each(|member| etcd.start_member(member));
        etcd.wait_leader();
        Some(etcd)
    }

    /// Where clients ask all members, for `etcd_endpoints`.
    pub fn endpoints(&self) -> String {
        let endpoints = self.hosts.numbers().map(|member| self.url(member, CLIENT_PORT));
        endpoints.collect::<Vec<_>>().join(",")
    }

    /// Whether members speak TLS.
    pub fn has_tls(&self) -> bool {
        self.options.tls
    }

    /// Starts a member, with the data that its host has of it.
    ///
    /// # Panics
    /// If it runs, or its host is down.
    pub fn start_member(&self, member: u16) {
        self.start_member_with(member, &[]);
    }

    /// As [`Etcd::start_member`], with flags that come last: of one whose host was replaced, say.
    ///
    /// # Panics
    /// As for [`Etcd::start_member`].
    pub fn start_member_with(&self, member: u16, flags: &[&str]) {
        let mut members = self.members();
        let place = &mut members[usize::from(member - 1)];
        // One whose host was cut has ended, or is about to.
        if let Some(mut before) = place.take() {
            before.wait_end();
        }
        let (clients, peers) = (self.url(member, CLIENT_PORT), self.url(member, 2380));
        let of_all = self.hosts.numbers().map(|peer| format!("host-{peer}={}", self.url(peer, 2380)));
        let scheme = self.scheme();
        let mut all = ["etcd", "--data-dir", DATA].map(str::to_owned).to_vec();
        let mut flag = |name: &str, value: String| all.extend([format!("--{name}"), value]);
        flag("name", format!("host-{member}"));
        flag("listen-client-urls", format!("{scheme}://0.0.0.0:{CLIENT_PORT}"));
        flag("advertise-client-urls", clients);
        flag("listen-peer-urls", format!("{scheme}://0.0.0.0:2380"));
        flag("initial-advertise-peer-urls", peers);
        flag("initial-cluster", of_all.collect::<Vec<_>>().join(","));
        flag("listen-metrics-urls", format!("http://127.0.0.1:{METRICS_PORT}"));
        if self.options.tls {
            let file = |name: &str| format!("/etc/cell/tls/{name}");
            flag("cert-file", file("node.crt"));
            flag("key-file", file("node.key"));
            flag("peer-cert-file", file("node.crt"));
            flag("peer-key-file", file("node.key"));
            flag("peer-trusted-ca-file", file("ca.crt"));
            all.push("--peer-client-cert-auth".to_owned());
        }
        all.extend(self.options.flags.iter().cloned());
        all.extend(flags.iter().map(|&flag| flag.to_owned()));
        *place = Some(self.hosts.host(member).spawn("etcd", &all));
    }

    /// `kill -9` of a member.
    pub fn kill(&self, member: u16) {
        let found = self.members()[usize::from(member - 1)].take();
        found.into_iter().for_each(|mut member| member.kill());
    }

    /// SIGSTOP: the member stands still.
    ///
    /// # Panics
    /// If it does not run.
    pub fn stop(&self, member: u16) {
        process::stop(self.pid(member));
    }

    /// SIGCONT: it goes on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn cont(&self, member: u16) {
        let members = self.members();
        members[usize::from(member - 1)].as_ref().expect("the member runs").cont();
    }

    /// The member that leads, as it says itself; none at the moment, perhaps.
    pub fn leader(&self) -> Option<u16> {
        self.hosts.numbers().find(|member| self.leads(*member))
    }

    /// Whether a member says that it leads.
    pub fn leads(&self, member: u16) -> bool {
        self.says(member, "etcd_server_is_leader 1")
    }

    /// Waits until a member leads that others follow.
    ///
    /// # Panics
    /// If none ever does.
    pub fn wait_leader(&self) -> u16 {
        wait::until_some("a member of etcd leads", || {
            let members = self.members().iter().flatten().count();
            let following =
                self.hosts.numbers().filter(|member| self.says(*member, "etcd_server_has_leader 1"));
            (following.count() >= members.min(2)).then(|| self.leader()).flatten()
        })
    }

    /// Whether a member's metrics have this line now. One whose host is down, or that does not answer, has
    /// none.
    pub fn says(&self, member: u16, line: &str) -> bool {
        let host = self.hosts.host(member);
        host.is_up() && host.within(metrics).is_some_and(|text| text.lines().any(|found| found == line))
    }

    /// A member's process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pid(&self, member: u16) -> Pid {
        let members = self.members();
        members[usize::from(member - 1)].as_ref().expect("the member runs").pid()
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<HostProcess>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scheme(&self) -> &'static str {
        if self.options.tls { "https" } else { "http" }
    }

    fn url(&self, member: u16, port: u16) -> String {
        format!("{}://{}:{port}", self.scheme(), self.hosts.host(member).name())
    }
}

/// The metrics of the member of the host that this thread is on.
fn metrics() -> Option<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], METRICS_PORT));
    let mut stream = TcpStream::connect_timeout(&address, ANSWERS).ok()?;
    stream.set_read_timeout(Some(ANSWERS)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
