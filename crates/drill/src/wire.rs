//! What a drill and a supervisor say to each other: one JSON object a line, a request and its answer. A
//! supervisor of `cell dev` listens on `drill.socket`, an agent on TCP, where [`AgentHello`] comes first.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Longest line that is asked, in bytes.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// Longest answer that is read, in bytes. A status has some 200 bytes for each pair of the cluster.
pub const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Longest line of a [`AgentHello`], in bytes.
pub const HELLO_BYTES_MAX: u64 = 4 << 10;

/// The version of a [`AgentHello`] and of what follows. Another one is refused. A change of a line is another
/// version, and those of one stand in `tests/golden/agent-VERSION.txt`.
pub const AGENT_WIRE: u32 = 2;

/// The first line to an agent, before any request. It is answered as a request is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// [`AGENT_WIRE`].
    pub wire: u32,
    /// A token of the role admin.
    pub token: String,
}

/// As whom drills want nodes empty.
pub const DRAINED_BY: &str = "a rolling restart";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum DrillRequest {
    /// How everyone is.
    Status,
    /// How the supervisor's own nodes are, without what the coordinator knows: a status with `nodes` alone.
    Nodes,
    /// A drill begins, the only one until its connection ends; no node comes or goes meanwhile.
    Begin {
        /// To which node; none: to all in turn.
        #[serde(default)]
        node: Option<u16>,
        /// The number of the claim by which who drills has the coordinator's row already
        /// ([`crate::ClaimRow::number`]): an agent keeps that one from now on. None: it writes its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<u64>,
    },
    /// `kill -9`. The node is started again after `down_ms`, if the supervisor starts nodes again at all.
    Kill {
        /// Which.
        node: u16,
        /// Milliseconds without a process.
        #[serde(default)]
        down_ms: u64,
    },
    /// SIGSTOP: the process stands still, its memory stays where it is.
    Stop {
        /// Which.
        node: u16,
    },
    /// SIGCONT.
    Cont {
        /// Which.
        node: u16,
    },
    /// An ordered stop, then a new start.
    Restart {
        /// Which.
        node: u16,
    },
    /// Wanted empty, so that its pairs move to the others, or no longer.
    Drain {
        /// Which.
        node: u16,
        /// Begin or end.
        on: bool,
    },
    /// Cut off from peers, clients and the coordinator, or no longer.
    Partition {
        /// Which.
        node: u16,
        /// Begin or end.
        on: bool,
        /// Both ways, if nothing is said.
        #[serde(default, skip_serializing_if = "PartitionWay::is_both")]
        way: PartitionWay,
    },
    /// Each write and sync of the node's logs takes longer, or no longer.
    SlowDisk {
        /// Which.
        node: u16,
        /// By so many milliseconds, of [`crate::DELAY_MS`]; zero ends it.
        delay_ms: u64,
    },
}

/// What a partition drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionWay {
    /// All that the node sends and that others send to it.
    #[default]
    Both,
    /// What others send to it.
    In,
    /// What it sends.
    Out,
}

impl PartitionWay {
    /// All of them.
    pub const ALL: [PartitionWay; 3] = [PartitionWay::Both, PartitionWay::In, PartitionWay::Out];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            PartitionWay::Both => "both",
            PartitionWay::In => "in",
            PartitionWay::Out => "out",
        }
    }

    /// The one of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<PartitionWay> {
        PartitionWay::ALL.into_iter().find(|way| way.word() == word)
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_both(&self) -> bool {
        *self == PartitionWay::Both
    }
}

impl DrillRequest {
    /// Whether it does nothing.
    #[must_use]
    pub fn is_look(self) -> bool {
        matches!(self, DrillRequest::Status | DrillRequest::Nodes)
    }

    /// What ends that which lasts once this was done; none: nothing does, or it ends by itself.
    #[must_use]
    pub fn undone_by(self) -> Option<DrillRequest> {
        match self {
            DrillRequest::Stop { node } => Some(DrillRequest::Cont { node }),
            DrillRequest::Drain { node, on: true } => Some(DrillRequest::Drain { node, on: false }),
            DrillRequest::Partition { node, on: true, .. } => {
                Some(DrillRequest::Partition { node, on: false, way: PartitionWay::Both })
            }
            DrillRequest::SlowDisk { node, delay_ms: 1.. } => {
                Some(DrillRequest::SlowDisk { node, delay_ms: 0 })
            }
            _ => None,
        }
    }

    /// The node that it does something to.
    pub fn node(self) -> Option<u16> {
        match self {
            DrillRequest::Status | DrillRequest::Nodes | DrillRequest::Begin { .. } => None,
            DrillRequest::Kill { node, .. }
            | DrillRequest::Stop { node }
            | DrillRequest::Cont { node }
            | DrillRequest::Restart { node }
            | DrillRequest::Drain { node, .. }
            | DrillRequest::Partition { node, .. }
            | DrillRequest::SlowDisk { node, .. } => Some(node),
        }
    }

    /// What it does, in a word.
    pub fn word(self) -> &'static str {
        match self {
            DrillRequest::Status => "status",
            DrillRequest::Nodes => "nodes",
            DrillRequest::Begin { .. } => "begin",
            DrillRequest::Kill { .. } => "kill",
            DrillRequest::Stop { .. } => "stop",
            DrillRequest::Cont { .. } => "cont",
            DrillRequest::Restart { .. } => "restart",
            DrillRequest::Drain { on: true, .. } => "drain",
            DrillRequest::Drain { on: false, .. } => "undrain",
            DrillRequest::Partition { on: true, way: PartitionWay::Both, .. } => "partition",
            DrillRequest::Partition { on: true, way: PartitionWay::In, .. } => "partition-in",
            DrillRequest::Partition { on: true, way: PartitionWay::Out, .. } => "partition-out",
            DrillRequest::SlowDisk { delay_ms: 1.., .. } => "slow-disk",
            DrillRequest::Partition { on: false, .. } | DrillRequest::SlowDisk { .. } => "heal",
        }
    }
}

/// What comes back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrillAnswer {
    /// When it was done, on CLOCK_BOOTTIME, in nanoseconds.
    pub at_ns: u64,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// To `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What and why.
    pub what: String,
    /// What to do.
    pub next: String,
    /// Who is needed for it does not answer just now, or stops: nothing is wrong with what was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_away: bool,
}

/// The cluster as its supervisor and its coordinator see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its processes.
    pub nodes: Vec<NodeView>,
    /// The region table.
    pub pairs: Vec<PairView>,
    /// The incarnations that own or owned a pair and whose leases have not ended.
    pub leases: Vec<u64>,
    /// What survivors have recorded of nodes that died.
    pub incidents: Vec<Incident>,
    /// Pairs that balance moves just now. It begins no such move while a drill is under way, and ends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<u32>,
    /// The nodes that have a lease, whoever supervises them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberView>,
    /// The nodes that somebody wants empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<DrainView>,
    /// What distinguishes the cluster from others; none: no node has joined it yet, or its supervisor need
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its supervisor does no faults to its nodes, and only says how they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_only: bool,
}

impl Status {
    /// The node of this number, if it is there.
    #[must_use]
    pub fn node(&self, number: u16) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.node == number)
    }

    /// Where clients reach a node: as it reports it to the others, or where it listens.
    #[must_use]
    pub fn server_of(&self, node: &NodeView) -> String {
        let member = self.members.iter().find(|member| member.node == u32::from(node.node));
        member.map_or_else(|| node.server.to_string(), |member| member.server.clone())
    }

    /// Says of each node who wants it empty.
    pub fn note_drains(&mut self) {
        for drain in &self.drains {
            if let Some(node) = self.nodes.iter_mut().find(|node| u32::from(node.node) == drain.node) {
                (node.drained_by, node.drain_stall) = (Some(drain.who.clone()), drain.stall.clone());
            }
        }
    }
}

/// A node that has a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its number.
    pub node: u32,
    /// Where it tells clients to connect.
    pub server: String,
}

/// A node that is to be empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Its number.
    pub node: u32,
    /// Who wants that.
    pub who: String,
    /// What has kept it from being emptied for a while.
    pub stall: Option<String>,
}

/// What survivors did about a node that died, as it stands in the coordinator. Times are milliseconds on
/// CLOCK_BOOTTIME; zero: not yet, or not needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incident {
    /// The incarnation that died.
    pub dead: u64,
    /// When somebody noticed.
    pub detected_ms: u64,
    /// When its lease was seen to have ended.
    pub lease_seen_ms: u64,
    /// Its pairs.
    pub plan: Vec<Planned>,
}

/// One pair of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Planned {
    /// The pair.
    pub pair: u32,
    /// The incarnation that takes it over.
    pub survivor: Option<u64>,
    /// How far it is.
    pub times: Times,
}

/// How far a pair's takeover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Its epoch was raised.
    pub claimed_ms: u64,
    /// Where its logs end was recorded.
    pub cut_ms: u64,
    /// Image and logs were replayed.
    pub replayed_ms: u64,
    /// Bytes of them.
    pub replayed_bytes: u64,
    /// It is served.
    pub serving_ms: u64,
}

impl Times {
    /// By another clock, of which so many milliseconds more have passed. What has not happened stays so.
    #[must_use]
    pub fn shifted(self, by_ms: i64) -> Times {
        let shifted = |ms: u64| if ms == 0 { 0 } else { ms.saturating_add_signed(by_ms).max(1) };
        Times {
            claimed_ms: shifted(self.claimed_ms),
            cut_ms: shifted(self.cut_ms),
            replayed_ms: shifted(self.replayed_ms),
            replayed_bytes: self.replayed_bytes,
            serving_ms: shifted(self.serving_ms),
        }
    }
}

/// A node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub node: u16,
    /// Its process; none while it is down.
    pub pid: Option<u32>,
    /// What it last said of itself, or `down`, `stopped`, `given up`.
    pub state: String,
    /// How often it was started.
    pub lives: u64,
    /// Whether it is cut off.
    pub partitioned: bool,
    /// Which way; none if it is not.
    pub partition: Option<PartitionWay>,
    /// By how many milliseconds its logs are slower; zero: they are as ever.
    pub disk_delay_ms: u64,
    /// Why it is held back when it has ended, if it ends the same way again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who wants it empty; none: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_by: Option<String>,
    /// What has kept it from being emptied for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_stall: Option<String>,
    /// Where it listens for clients.
    pub server: SocketAddr,
    /// Its HTTP.
    pub http: SocketAddr,
}

/// A row of the region table, as far as a drill looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairView {
    /// The pair.
    pub pair: u32,
    /// The node of its owner, or of the last one.
    pub node: u32,
    /// Its owner.
    pub owner: Option<u64>,
    /// Counts the owners.
    pub epoch: u32,
    /// What can be done with it: `new`, `recovering`, `serving`, `read_only`, `released`, `unavailable`.
    pub state: String,
    /// The highest epoch that has a cut.
    pub cut_epoch: Option<u32>,
    /// Why it is not served; none if it is.
    pub trouble: Option<String>,
    /// What to do about that; none if it passes by itself.
    pub next: Option<String>,
}

impl PairView {
    /// Whether reads are answered.
    pub fn is_served(&self) -> bool {
        self.state == "serving" || self.state == "read_only"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_one_line_as_documented() {
        let cases = [
            (DrillRequest::Status, r#"{"do":"status"}"#),
            (DrillRequest::Nodes, r#"{"do":"nodes"}"#),
            (DrillRequest::Begin { node: Some(1), claim: None }, r#"{"do":"begin","node":1}"#),
            (DrillRequest::Begin { node: None, claim: None }, r#"{"do":"begin","node":null}"#),
            (
                DrillRequest::Begin { node: Some(1), claim: Some(u64::MAX) },
                r#"{"do":"begin","node":1,"claim":18446744073709551615}"#,
            ),
            (DrillRequest::Kill { node: 1, down_ms: 3000 }, r#"{"do":"kill","node":1,"down_ms":3000}"#),
            (
                DrillRequest::Partition { node: 2, on: true, way: PartitionWay::Both },
                r#"{"do":"partition","node":2,"on":true}"#,
            ),
            (
                DrillRequest::Partition { node: 2, on: true, way: PartitionWay::In },
                r#"{"do":"partition","node":2,"on":true,"way":"in"}"#,
            ),
            (DrillRequest::Drain { node: 1, on: true }, r#"{"do":"drain","node":1,"on":true}"#),
            (
                DrillRequest::SlowDisk { node: 0, delay_ms: 100 },
                r#"{"do":"slow_disk","node":0,"delay_ms":100}"#,
            ),
        ];
        for (request, text) in cases {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<DrillRequest>(text).unwrap(), request);
        }
        let short = serde_json::from_str::<DrillRequest>(r#"{"do":"kill","node":1}"#).unwrap();
        assert_eq!(short, DrillRequest::Kill { node: 1, down_ms: 0 });
        assert!(serde_json::from_str::<DrillRequest>(r#"{"do":"explode"}"#).is_err());
        assert!(serde_json::from_str::<DrillRequest>(r#"{"do":"slow_disk","node":0}"#).is_err());
    }

    /// One of each request: a new one does not compile before it stands here.
    fn requests() -> Vec<DrillRequest> {
        let way = PartitionWay::In;
        let all = vec![
            DrillRequest::Status,
            DrillRequest::Nodes,
            DrillRequest::Begin { node: Some(1), claim: Some(5) },
            DrillRequest::Kill { node: 1, down_ms: 3_000 },
            DrillRequest::Stop { node: 1 },
            DrillRequest::Cont { node: 1 },
            DrillRequest::Restart { node: 1 },
            DrillRequest::Drain { node: 1, on: true },
            DrillRequest::Partition { node: 2, on: true, way },
            DrillRequest::SlowDisk { node: 0, delay_ms: 100 },
        ];
        for (at, request) in all.iter().enumerate() {
            let number = match request {
                DrillRequest::Status => 0,
                DrillRequest::Nodes => 1,
                DrillRequest::Begin { .. } => 2,
                DrillRequest::Kill { .. } => 3,
                DrillRequest::Stop { .. } => 4,
                DrillRequest::Cont { .. } => 5,
                DrillRequest::Restart { .. } => 6,
                DrillRequest::Drain { .. } => 7,
                DrillRequest::Partition { .. } => 8,
                DrillRequest::SlowDisk { .. } => 9,
            };
            assert_eq!(at, number);
        }
        all
    }

    /// An answer that has everything.
    fn full_answer() -> DrillAnswer {
        let text = |text: &str| Some(text.to_owned());
        let node = NodeView {
            node: 1,
            pid: Some(2),
            state: "serving".to_owned(),
            lives: 1,
            partitioned: true,
            partition: Some(PartitionWay::In),
            disk_delay_ms: 4,
            why: text("w"),
            drained_by: text("ann"),
            drain_stall: text("s"),
            server: "127.0.0.1:7000".parse().unwrap(),
            http: "127.0.0.1:7080".parse().unwrap(),
        };
        let pair = PairView {
            pair: 3,
            node: 1,
            owner: Some(7),
            epoch: 2,
            state: "serving".to_owned(),
            cut_epoch: Some(1),
            trouble: text("t"),
            next: text("n"),
        };
        let times = Times { claimed_ms: 1, cut_ms: 2, replayed_ms: 3, replayed_bytes: 4, serving_ms: 5 };
        let plan = vec![Planned { pair: 3, survivor: Some(7), times }];
        let status = Status {
            nodes: vec![node],
            pairs: vec![pair],
            leases: vec![7],
            incidents: vec![Incident { dead: 6, detected_ms: 1, lease_seen_ms: 2, plan }],
            moving: vec![3],
            members: vec![MemberView { node: 1, server: "h:1".to_owned() }],
            drains: vec![DrainView { node: 1, who: "ann".to_owned(), stall: text("s") }],
            cluster: text("c"),
            looks_only: true,
        };
        let refused = Refused { what: "w".to_owned(), next: "n".to_owned(), is_away: true };
        DrillAnswer { at_ns: 5, refused: Some(refused), status: Some(status) }
    }

    /// An agent of before did not know of claims, and said that another drill runs. `CELL_BLESS=1` writes the
    /// lines of a version that has none yet.
    #[test]
    fn lines_of_a_version_are_those_of_its_golden_file() {
        let hello = AgentHello { wire: AGENT_WIRE, token: "secret".to_owned() };
        let mut lines = vec![serde_json::to_string(&hello).unwrap()];
        lines.extend(requests().iter().map(|request| serde_json::to_string(request).unwrap()));
        lines.push(serde_json::to_string(&full_answer()).unwrap());
        assert_eq!(serde_json::from_str::<DrillAnswer>(&lines[lines.len() - 1]).unwrap(), full_answer());
        let path = format!("{}/tests/golden/agent-{AGENT_WIRE}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = lines.join("\n") + "\n";
        if std::env::var_os("CELL_BLESS").is_some() {
            let new = std::fs::File::create_new(&path);
            let _ = new.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "other lines are another AGENT_WIRE, and not another golden file");
    }

    #[test]
    fn undone_by_ends_what_lasts_and_lasts_itself_not() {
        let lasting = [
            DrillRequest::Stop { node: 3 },
            DrillRequest::Drain { node: 3, on: true },
            DrillRequest::Partition { node: 3, on: true, way: PartitionWay::In },
            DrillRequest::SlowDisk { node: 3, delay_ms: 1 },
        ];
        for request in lasting {
            let end = request.undone_by().unwrap();
            assert_eq!((end.node(), end.undone_by()), (Some(3), None), "{request:?}");
        }
        for request in [
            DrillRequest::Status,
            DrillRequest::Begin { node: Some(3), claim: None },
            DrillRequest::Kill { node: 3, down_ms: 5 },
            DrillRequest::Restart { node: 3 },
        ] {
            assert_eq!(request.undone_by(), None, "{request:?}");
        }
    }

    #[test]
    fn shifted_moves_what_has_happened_alone() {
        let times =
            Times { claimed_ms: 100, cut_ms: 0, replayed_ms: 120, replayed_bytes: 7, serving_ms: 130 };
        let later = Times { claimed_ms: 150, replayed_ms: 170, serving_ms: 180, ..times };
        assert_eq!((times.shifted(50), later.shifted(-50)), (later, times));
        assert_eq!(times.shifted(-110).claimed_ms, 1, "it has happened");
    }

    #[test]
    fn from_word_knows_each_way_by_the_word_of_its_json() {
        for way in PartitionWay::ALL {
            assert_eq!(PartitionWay::from_word(way.word()), Some(way));
            assert_eq!(serde_json::to_value(way).unwrap(), way.word());
        }
        assert_eq!(PartitionWay::from_word("off"), None);
    }
}
