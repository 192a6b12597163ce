//! A cluster over hosts: a node on each, coordinated by etcd, with TLS and tokens as addresses beyond
//! loopback need them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cell_client::{ClientOptions, Transport};
use cell_fabric::TlsTrust;
use rustix::process::Pid;
use serde_json::Value;

use crate::process::children;
use crate::program::Said;
use crate::wait;

use super::process::HostProcess;
use super::{Etcd, Host, Hosts};

/// Where a node's fabric listens.
pub const NODE_PORT: u16 = 7000;
/// Where a node's HTTP listens.
const HTTP_PORT: u16 = 7080;
/// Where the agent of a host listens.
const AGENT_PORT: u16 = 7090;
/// How many seconds HTTP may take.
const HTTP_SECONDS: &str = "60";
const KEEPER: &str = include_str!("node.sh");
/// Who has it may do everything.
const TOKEN: &str = "the-token-of-tests-with-hosts-in-namespaces";
/// Where each host has the log root, unless a test says otherwise.
const LOG_ROOT: &str = "/mnt/cell";
/// Small regions and segments, because tests run side by side.
const SMALL: [(&str, &str); 7] = [
    ("node_region_bytes", "\"64 MiB\""),
    ("slot_bytes", "\"16 MiB\""),
    ("extent_region_bytes", "\"128 MiB\""),
    ("populate_chunk_bytes", "\"8 MiB\""),
    ("log_segment_bytes", "\"8 MiB\""),
    ("ready_memory_bytes", "0"),
    // What moves pairs is what a test does.
    ("balance", "\"off\""),
];

/// How nodes are started.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How long a lease lasts.
    pub lease_ms: u64,
    /// Where each host has the cluster's log root mounted; none: in a folder of this machine's.
    pub log_root: Option<PathBuf>,
    /// Whether an agent supervises each node, and takes drills of it.
    pub agents: bool,
    /// Further settings, each with its value as TOML has it; they come instead of the small defaults.
    pub settings: Vec<(String, String)>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        // As `lease.rs` says; on etcd at least three times what it takes to elect.
        Self { lease_ms: 3_000, log_root: None, agents: false, settings: Vec::new() }
    }
}

/// A cluster of one node on each host; node N - 1 is on host N. A node that ends is started again.
pub struct Store<'h> {
    hosts: &'h Hosts,
    /// What keeps each node, by the host's number, less one; none: it is down.
    nodes: Mutex<Vec<Option<HostProcess>>>,
    options: StoreOptions,
    endpoints: String,
    etcd_tls: bool,
}

impl<'h> Store<'h> {
    /// Starts a node on each host, and waits until all serve.
    ///
    /// # Panics
    /// If they do not.
    pub fn start(hosts: &'h Hosts, etcd: &Etcd<'_>, options: StoreOptions) -> Self {
        hosts.certify();
        let nodes = Mutex::new(hosts.numbers().map(|_| None).collect());
        let (endpoints, etcd_tls) = (etcd.endpoints(), etcd.has_tls());
        let store = Self { hosts, nodes, options, endpoints, etcd_tls };
        hosts.numbers().for_each(|host| store.start_node(host));
        store.wait_served();
        store
    }

    /// Starts a host's node, also on a host that was started again or replaced.
    ///
    /// # Panics
    /// If it runs, or the host is down.
    pub fn start_node(&self, number: u16) {
        let host = self.hosts.host(number);
        self.hosts.certify();
        if self.options.log_root.is_none() {
            let shared = self.hosts.shared().display().to_string();
            let mount = "mkdir -p \"$1\" && { mountpoint -q \"$1\" || mount --bind \"$0\" \"$1\"; }";
            host.done(["sh", "-c", mount, &shared, LOG_ROOT]);
        }
        let tokens = "printf 'admin,operator,reader,writer,viewer tests %s\\n' \
                      \"$(printf %s \"$0\" | sha256sum | cut -d' ' -f1)\" >/etc/cell/tokens \
                      && chmod 600 /etc/cell/tokens";
        host.done(["sh", "-c", tokens, TOKEN]);
        let config = format!("/etc/cell/node-{number}.toml");
        host.write(&config, &self.config(host));
        let mut nodes = self.nodes();
        let place = &mut nodes[usize::from(number - 1)];
        // One whose host was cut has ended, or is about to.
        if let Some(mut before) = place.take() {
            before.wait_end();
        }
        let runs: &[&str] = if self.options.agents { &["agent", "--allow-drills"] } else { &["node"] };
        let all = [&["sh", "-c", KEEPER, "keeper"][..], runs, &["--config", &config]].concat();
        *place = Some(host.spawn("node", &all));
    }

    fn config(&self, host: &Host) -> String {
        let text = |value: &str| format!("\"{value}\"");
        let (name, address) = (host.name(), host.address());
        let root = self.options.log_root.clone().unwrap_or_else(|| PathBuf::from(LOG_ROOT));
        let mut settings: BTreeMap<&str, String> =
            SMALL.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        settings.extend([
            ("node_id", (host.number() - 1).to_string()),
            ("cluster_nodes", self.hosts.numbers().count().to_string()),
            ("lease_ms", text(&format!("{} ms", self.options.lease_ms))),
            ("data_dir", text("/var/lib/cell")),
            ("log_root", text(&root.display().to_string())),
            ("listen_address", text(&format!("0.0.0.0:{NODE_PORT}"))),
            ("advertise_address", text(&format!("{name}:{NODE_PORT}"))),
            ("http_address", text(&format!("{address}:{HTTP_PORT}"))),
            ("tls_certificate_file", text("/etc/cell/tls/node.crt")),
            ("tls_key_file", text("/etc/cell/tls/node.key")),
            ("tls_trust_file", text("/etc/cell/tls/ca.crt")),
            ("tokens_file", text("/etc/cell/tokens")),
            ("coordinator_address", text("etcd")),
            ("etcd_endpoints", text(&self.endpoints)),
        ]);
        if self.options.agents {
            settings.insert("agent_address", text(&format!("0.0.0.0:{AGENT_PORT}")));
        }
        if self.etcd_tls {
            settings.insert("etcd_ca_file", text("/etc/cell/tls/ca.crt"));
        }
        settings.extend(self.options.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
        settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
    }

    /// The nodes' addresses, for `--server` and clients.
    pub fn servers(&self) -> String {
        let servers = self.hosts.numbers().map(|host| self.server(host));
        servers.collect::<Vec<_>>().join(",")
    }

    /// The address of a host's node.
    pub fn server(&self, host: u16) -> String {
        format!("{}:{NODE_PORT}", self.hosts.host(host).name())
    }

    /// What a client that does everything connects with.
    ///
    /// # Panics
    /// If the hosts have no certificates.
    pub fn client_options(&self) -> ClientOptions {
        let trust = TlsTrust::open(&self.hosts.ca()).expect("a store's hosts have certificates");
        let token = TOKEN.as_bytes().to_vec();
        ClientOptions { trust: Some(trust), token, transport: Transport::Tcp, ..ClientOptions::default() }
    }

    /// Runs a client command of `cell` on a host against one node or several.
    ///
    /// # Panics
    /// If nsenter cannot be started.
    pub fn cell(&self, on: &Host, servers: &str, arguments: &[&str]) -> Said {
        let mut cell = self.command(on, &[arguments, &["--server", servers]].concat());
        cell.output().expect("nsenter can be started").into()
    }

    /// Where the agents of all hosts are, for `--agents`.
    pub fn agents(&self) -> String {
        let agents = self.hosts.numbers().map(|host| self.agent(host));
        agents.collect::<Vec<_>>().join(",")
    }

    /// Where the agent of a host is.
    pub fn agent(&self, host: u16) -> String {
        format!("{}:{AGENT_PORT}", self.hosts.host(host).name())
    }

    /// `cell drill` on a host, by the agents of all.
    pub fn drill(&self, on: &Host, arguments: &[&str]) -> Command {
        self.command(on, &[&["drill"][..], arguments, &["--agents", &self.agents()]].concat())
    }

    /// A command of `cell` on a host, of who may do everything.
    fn command(&self, on: &Host, arguments: &[&str]) -> Command {
        let mut cell = on.command(["cell"].iter().chain(arguments));
        cell.env("CELL_TOKEN", TOKEN).env("CELL_CA", self.hosts.ca());
        cell
    }

    /// What the node of a host answers over HTTP to `curl` on the client's host, as JSON; none: it does not
    /// answer. An empty body is none.
    pub fn ask(&self, host: u16, method: &str, path: &str, body: &str) -> Option<Value> {
        let url = format!("https://{}:{HTTP_PORT}{path}", self.hosts.host(host).address());
        let (ca, token) = (self.hosts.ca().display().to_string(), format!("Authorization: Bearer {TOKEN}"));
        let mut curl = vec!["curl", "--silent", "--noproxy", "*", "--max-time", HTTP_SECONDS];
        curl.extend(["--cacert", &ca, "--header", &token, "--request", method]);
        if !body.is_empty() {
            curl.extend(["--header", "Content-Type: application/json", "--data", body]);
        }
        curl.push(&url);
        serde_json::from_str(&self.hosts.client().run(&curl).out).ok()
    }

    /// What all nodes say of themselves to a client; none: not one of them answered.
    pub fn status(&self) -> Option<Value> {
        let said = self.cell(self.hosts.client(), &self.servers(), &["status", "--json"]);
        serde_json::from_str(&said.out).ok()
    }

    /// Waits until every node answers and every pair is served; what they say then.
    ///
    /// # Panics
    /// If that never comes.
    #[track_caller]
    pub fn wait_served(&self) -> Value {
        let count = self.hosts.numbers().count();
        wait::until_some("every node answers and every pair is served", || {
            let status = self.status()?;
            let nodes = status["nodes"].as_array()?;
            // A pair whose owner has died is missing until it is taken over: each node began with one.
            let are_all_there = nodes.len() == count && pairs_of(&status).len() >= count;
            let is_served = status["healthy"] == true && are_all_there;
            is_served.then_some(status)
        })
    }

    /// The process of a host's node, if there is one now.
    pub fn node(&self, host: u16) -> Option<Pid> {
        let kept = self.nodes()[usize::from(host - 1)].as_ref().and_then(HostProcess::child)?;
        if self.options.agents { children(kept).into_iter().next() } else { Some(kept) }
    }

    /// Every node's log.
    pub fn log(&self, host: u16) -> String {
        self.nodes()[usize::from(host - 1)].as_ref().map_or_else(String::new, HostProcess::log)
    }

    /// How many pairs nodes have taken over, as they say, since the store was made.
    pub fn takeovers(&self) -> usize {
        self.hosts.numbers().map(|host| self.log(host).matches("pair taken over").count()).sum()
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Option<HostProcess>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in self.nodes().iter().flatten() {
                eprintln!("the end of a node's log:\n{}", node.log_end());
            }
        }
    }
}

/// What a status says of the pairs: of each, by its number, the host whose node has it, and its epoch.
pub fn pairs_of(status: &Value) -> BTreeMap<u64, (u16, u64)> {
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let of_node = |node: &Value| {
        let host = node["node"].as_u64().and_then(|node| u16::try_from(node + 1).ok()).unwrap_or(0);
        let pairs = node["pairs"].as_array().cloned().unwrap_or_default();
        let numbers = |pair: &Value| Some((pair["pair"].as_u64()?, (host, pair["epoch"].as_u64()?)));
        pairs.iter().filter_map(numbers).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

/// What a status says of the runs of the nodes: of each, by its host, which one it is.
pub fn runs_of(status: &Value) -> BTreeMap<u16, u64> {
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let of_node = |node: &Value| {
        let host = u16::try_from(node["node"].as_u64()? + 1).ok()?;
        Some((host, node["incarnation"].as_u64()?))
    };
    nodes.iter().filter_map(of_node).collect()
}
