//! Nodes for tests: HTTP servers over one simulated coordinator, each with settings of its own that follow
//! the coordinator's tuning at every look; and a client for one request, which checks each answer of the API
//! against the API's document.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use cell_cluster::{MemberRow, Sim, SimLink, Tuning, TuningRow};
use cell_node::{ClusterSnapshot, NodeSnapshot};
use cell_settings::{Author, Registry, Section, SettingsStore};
use cell_terms::setting::{Applies, Bounds, Setting, Source};
use cell_terms::{Incarnation, NodeId};
use serde_json::Value;

use crate::api::conformity::check_answer;
use crate::connections::ConnectionLimits;
use crate::shared::Shared;
use crate::test_members;
use crate::test_snapshot::snapshot;
use crate::{CoordinatorPlace, HttpServer, Sources};

const SETTINGS: &[Setting] = &[
    Setting {
        name: "fill_percent",
        meaning: "How full.",
        default: "85",
        bounds: Bounds::Integer { min: 20, max: 100 },
        applies: Applies::Live,
    },
    Setting {
        name: "exploration",
        meaning: "How much.",
        default: "0.01",
        bounds: Bounds::Real { min: 0.0, max: 0.5 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_retry_shortest",
        meaning: "The first wait.",
        default: "1 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 60_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_retry_longest",
        meaning: "The last wait.",
        default: "200 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 600_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "segment_bytes",
        meaning: "How long.",
        default: "64 MiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: 1 << 30, power_of_two: true },
        applies: Applies::Restart("It is read once, when the process starts."),
    },
];
const REGISTRY: Registry = Registry::new(&[
    Section { name: "test", settings: SETTINGS },
    Section { name: "tls", settings: cell_fabric::TLS_SETTINGS },
    Section { name: "web", settings: crate::SETTINGS },
]);

/// A node.
pub(crate) struct TestNode {
    pub(crate) server: HttpServer,
    /// The web's way to the coordinator. The node's own stays whole.
    pub(crate) link: SimLink,
}

/// Nodes that know each other.
pub(crate) struct TestCluster {
    pub(crate) nodes: Vec<TestNode>,
}

impl TestCluster {
    /// So many nodes.
    pub(crate) fn start(nodes: u32) -> TestCluster {
        TestCluster::start_with(nodes, &[], |sources| sources)
    }

    /// So many nodes, started with these settings, and with more sources.
    pub(crate) fn start_with(
        nodes: u32,
        settings: &[(&str, &str)],
        more: impl Fn(Sources) -> Sources,
    ) -> TestCluster {
        TestCluster::start_prepared(nodes, settings, more, |_| {})
    }

    /// So many nodes; `prepare` is shown what each node's handlers share before the first request.
    pub(crate) fn start_prepared(
        nodes: u32,
        settings: &[(&str, &str)],
        more: impl Fn(Sources) -> Sources,
        prepare: impl Fn(&Shared),
    ) -> TestCluster {
        let sim = Sim::new(1);
        let members: Arc<Mutex<Vec<MemberRow>>> = Arc::default();
        let start = |node| {
            let link = sim.link();
            let sources = sources(node, &sim, &members, settings).coordinator(Arc::new(link.clone()));
            let (limits, address) = (ConnectionLimits::default(), "127.0.0.1:0".parse().unwrap());
            let server = HttpServer::start_within(limits, address, more(sources), &prepare).unwrap();
            members.lock().unwrap().push(member(node, server.address()));
            TestNode { server, link }
        };
        let nodes = (0..nodes).map(start).collect();
        TestCluster { nodes }
    }

    /// What one node answers.
    pub(crate) fn send(&self, node: usize, request: &TestRequest) -> TestAnswer {
        request.send(self.nodes[node].server.address())
    }

    /// What one node says to `GET path`.
    pub(crate) fn get(&self, node: usize, path: &str) -> TestAnswer {
        self.send(node, &TestRequest::new("GET", path))
    }
}

/// A node's settings and snapshots, which follow the coordinator's tuning.
fn sources(node: u32, sim: &Sim, members: &Arc<Mutex<Vec<MemberRow>>>, settings: &[(&str, &str)]) -> Sources {
    let mut given = REGISTRY.defaults();
    settings.iter().for_each(|(name, text)| given.set(name, text, Source::Flag).unwrap());
    if node == 0 {
        given.set("fill_percent", "70", Source::File).unwrap();
    }
    let store = Arc::new(SettingsStore::new(given));
    let (followed, members, tuning) = (store.clone(), members.clone(), Tuning::new(Arc::new(sim.link())));
    let seen = Mutex::new(TuningRow::default());
    let look = move || {
        let mut seen = seen.lock().unwrap();
        if let Ok(row) = tuning.current() {
            let values = row.values.iter().map(|(name, value)| (name.clone(), value.text.clone()));
            let author = Author { name: "test".to_owned(), at_unix_ms: 0 };
            followed.tune(author, &values.collect()).unwrap();
            *seen = row;
        }
        let members = members.lock().unwrap().clone();
        let cluster = ClusterSnapshot { members, tuning: seen.clone(), ..ClusterSnapshot::default() };
        let incarnation = Incarnation(70 + u64::from(node));
        Arc::new(NodeSnapshot { node: NodeId(node), incarnation, cluster: Arc::new(cluster), ..snapshot() })
    };
    let sources = Sources::new(Arc::new(look)).settings(store, REGISTRY);
    match node {
        0 => sources.coordinator_place(CoordinatorPlace {
            provider: "socket",
            addresses: vec!["/run/coordinator.socket".to_owned()],
        }),
        _ => sources, // nobody said
    }
}

fn member(node: u32, http: SocketAddr) -> MemberRow {
    MemberRow { http: http.to_string(), ..test_members::member(node) }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl TestRequest {
    pub(crate) fn new(method: &'static str, path: &str) -> TestRequest {
        TestRequest { method, path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> TestRequest {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another value of a header, where it has this one.
    pub(crate) fn replaced(mut self, name: &str, value: &str, other: &str) -> TestRequest {
        for header in self.headers.iter_mut().filter(|header| header.0 == name && header.1 == value) {
            header.1 = other.to_owned();
        }
        self
    }

    /// With a JSON body.
    pub(crate) fn json(self, body: &str) -> TestRequest {
        TestRequest { body: body.as_bytes().to_vec(), ..self }.header("content-type", "application/json")
    }

    /// With a body of no type.
    pub(crate) fn raw(self, body: &[u8]) -> TestRequest {
        TestRequest { body: body.to_vec(), ..self }
    }

    fn send(&self, address: SocketAddr) -> TestAnswer {
        let text = self.exchange(address);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        let answer = TestAnswer { status, head: head.to_owned(), body };
        let kind = answer.header("content-type").unwrap_or_default();
        check_answer(self.method, &self.path, status, kind, &answer.body);
        answer
    }

    /// The whole answer as it comes.
    pub(crate) fn exchange(&self, address: SocketAddr) -> String {
        let TestRequest { method, path, headers, body } = self;
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("Host: {address}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct TestAnswer {
    pub(crate) status: u16,
    head: String,
    /// Null, if it is no JSON.
    pub(crate) body: Value,
}

impl TestAnswer {
    /// A header, by its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// A problem's status and code. It says what to do next.
    pub(crate) fn problem(&self) -> (u16, &str) {
        assert!(self.body["next"].is_string() && self.body["request_id"].is_string(), "{self:?}");
        (self.status, self.body["code"].as_str().unwrap())
    }

    /// Where a problem's errors are.
    pub(crate) fn pointers(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array().unwrap();
        errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect()
    }
}
