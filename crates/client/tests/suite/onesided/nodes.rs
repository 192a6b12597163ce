//! One-sided reads over two nodes: the first has the root, the router and the keys below `key-00100`, the
//! second the others. Each reports its own regions, and is trusted by its own word.

use std::collections::{BTreeMap, VecDeque};

use cell_client::{
    AttemptError, ClientCommand, ClientCore, ClientOptions, Completion, LinkId, Operation, Output, Policy,
    Search, SelectorSettings,
};
use cell_fabric::{CloseReason, ReadFailure, ReadTag, RemoteRead};
use cell_protocol::{
    Bound, Found, HelloReply, OwnedState, PROTOCOL_VERSION, Refusal, RegionRows, RegionsReply, Reply,
    ReplyHeader, Request, RequestKind, Scan, TableReport, TableRow, TableRows,
};
use cell_terms::{Incarnation, NodeId, PairId, Watermark};

use crate::onesided::answers::{key, routed_owner, value};
use crate::onesided::owner::{EPOCH, Owned, Owner};
use crate::onesided::read_harness::{LIMITS, LIST, MS, options};

pub(crate) struct TwoNodeHarness {
    pub(crate) core: ClientCore,
    pub(crate) owner: Owner,
    pub(crate) now_ns: u64,
    /// The node at the other end of each connection.
    pub(crate) links: BTreeMap<LinkId, usize>,
    pub(crate) alive: [bool; 2],
    /// How often each node has started anew.
    lives: [u64; 2],
    /// Nodes that let whoever calls wait; who does.
    pub(crate) slow: [bool; 2],
    pub(crate) calling: Vec<(LinkId, usize)>,
    /// The node of each pair.
    pub(crate) owners: [usize; 2],
    /// Whether its node serves each pair yet.
    pub(crate) served: [bool; 2],
    pub(crate) lease_us: [u32; 2],
    /// The number of each node's list of registrations.
    pub(crate) lists: [u64; 2],
    /// Nodes that answer no question about their registrations.
    pub(crate) registrations_held: [bool; 2],
    /// How long each node permits an operation to take.
    pub(crate) permitted_ms: [u64; 2],
    pub(crate) posted: VecDeque<(LinkId, RemoteRead, ReadTag)>,
    /// Reads stay on their way.
    pub(crate) reads_held: bool,
    /// What each node was asked that it could have been spared.
    pub(crate) asked: [Vec<RequestKind>; 2],
}

impl TwoNodeHarness {
    pub(crate) fn new() -> TwoNodeHarness {
        TwoNodeHarness::with_owners([0, 1])
    }

    pub(crate) fn with_owners(owners: [usize; 2]) -> TwoNodeHarness {
        TwoNodeHarness::started(owners, [false; 2])
    }

    fn started(owners: [usize; 2], slow: [bool; 2]) -> TwoNodeHarness {
        TwoNodeHarness::permitting(owners, slow, [200; 2])
    }

    fn permitting(owners: [usize; 2], slow: [bool; 2], permitted_ms: [u64; 2]) -> TwoNodeHarness {
        TwoNodeHarness::over(options(), routed_owner(), owners, slow, permitted_ms)
    }

    /// Whose client searches so; where it may choose, it chooses reads.
    pub(crate) fn searching(search: Search, owners: [usize; 2]) -> TwoNodeHarness {
        let selector =
            SelectorSettings { policy: Policy::Fixed, fixed_share: 0.0, ..SelectorSettings::default() };
        let options = ClientOptions { search, selector, ..options() };
        TwoNodeHarness::over(options, routed_owner(), owners, [false; 2], [200; 2])
    }

    /// Of which each memory is mapped.
    pub(crate) fn mapped(permitted_ms: [u64; 2]) -> TwoNodeHarness {
        let mut owner = routed_owner();
        owner.map();
        TwoNodeHarness::over(options(), owner, [0, 1], [false; 2], permitted_ms)
    }

    fn over(
        options: ClientOptions,
        mut owner: Owner,
        owners: [usize; 2],
        slow: [bool; 2],
        permitted_ms: [u64; 2],
    ) -> TwoNodeHarness {
        for number in 0..300 {
            owner.put(&key(number), &value(number));
        }
        TwoNodeHarness::reading(options, owner, owners, slow, permitted_ms)
    }

    /// Of a memory as it is.
    pub(crate) fn reading(
        options: ClientOptions,
        owner: Owner,
        owners: [usize; 2],
        slow: [bool; 2],
        permitted_ms: [u64; 2],
    ) -> TwoNodeHarness {
        let mut harness = TwoNodeHarness {
            core: ClientCore::new(options, 1),
            owner,
            now_ns: 1,
            links: BTreeMap::new(),
            alive: [true; 2],
            lives: [0; 2],
            slow,
            calling: Vec::new(),
            owners,
            served: [true; 2],
            lease_us: [10_000_000; 2],
            lists: [LIST; 2],
            registrations_held: [false; 2],
            permitted_ms,
            posted: VecDeque::new(),
            reads_held: false,
            asked: [Vec::new(), Vec::new()],
        };
        harness.core.set_reads_ordered(true);
        harness.run();
        harness
    }

    /// The pairs that a node serves, by their places in the owner's list.
    fn pairs_of(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..2).filter(move |pair| self.owners[*pair] == node && self.served[*pair])
    }

    fn incarnation(&self, node: usize) -> Incarnation {
        Incarnation(node as u64 + 1 + 2 * self.lives[node])
    }

    /// A worker speaks for the pair that it got last, if it has one.
    fn header(&self, node: usize, id: cell_protocol::RequestId) -> ReplyHeader {
        let (trust_us, list) = (self.lease_us[node], self.lists[node]);
        let Some(pair) = self.pairs_of(node).last() else {
            return ReplyHeader { id, trust_us, list, ..ReplyHeader::default() };
        };
        let owned = &self.owner.pairs[pair];
        let watermark = Watermark { epoch: owned.epoch, csn: owned.visible() };
        ReplyHeader { id, pair: owned.pair.id(), watermark, trust_us, list }
    }

    fn answer(&mut self, node: usize, message: &[u8]) -> Vec<u8> {
        let (header, request) = Request::decode(message).unwrap();
        let rows: Vec<_> = self.pairs_of(node).map(|pair| self.owner.pairs[pair].row()).collect();
        let row = |pair: PairId, node: usize| TableRow {
            pair,
            node: NodeId(u32::try_from(node).unwrap()),
            owner: self.incarnation(node),
            epoch: EPOCH, // nobody goes by it
            state: OwnedState::Serving,
            address: ["n0", "n1"][node],
            http: "",
        };
        let mut table: Vec<_> =
            (0..2).map(|at| row(self.owner.pairs[at].pair.id(), self.owners[at])).collect();
        let idle = (0..2).filter(|node| self.alive[*node] && !self.owners.contains(node));
        table.extend(idle.map(|node| row(PairId(0), node)));
        let lives: u64 = self.lives.iter().sum();
        let revision = 1 + 4 * lives + (2 * self.owners[0] + self.owners[1]) as u64;
        let reply = match request {
            Request::Hello(_) => Reply::Hello(HelloReply {
                version: PROTOCOL_VERSION,
                node: NodeId(u32::try_from(node).unwrap()),
                incarnation: self.incarnation(node),
                limits: LIMITS,
                name: "harness",
            }),
            Request::Regions => Reply::Regions(RegionsReply {
                reads_permitted: true,
                one_sided_max_us: u32::try_from(self.permitted_ms[node] * 1_000).unwrap(),
                list: self.lists[node],
                pairs: RegionRows::List(&rows),
            }),
            Request::Table { .. } => {
                let rows_all = u32::try_from(table.len()).unwrap();
                Reply::Table(TableReport { revision, rows_all, rows: TableRows::List(&table) })
            }
            Request::KeepAlive { .. } => Reply::Alive,
            ref other => {
                self.asked[node].push(other.kind());
                Reply::Refused(Refusal::Busy)
            }
        };
        let mut bytes = Vec::new();
        reply.encode(&self.header(node, header.id), &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..100_000 {
            self.core.validate(self.now_ns);
            self.core.tick(self.now_ns);
            let (mut sent, mut started) = (Vec::new(), Vec::new());
            while let Some(command) = self.core.command(self.now_ns) {
                match command {
                    ClientCommand::Connect { link, address, .. } => {
                        started.push((link, usize::from(address == Some("n1"))));
                    }
                    ClientCommand::Send { link, message } => sent.push((link, message.to_vec())),
                    ClientCommand::Close { link } => drop(self.links.remove(&link)),
                }
            }
            let busy = !sent.is_empty() || !started.is_empty();
            for (link, node) in started {
                if self.slow[node] {
                    self.calling.push((link, node));
                } else if self.alive[node] {
                    self.links.insert(link, node);
                    self.core.connected(link);
                } else {
                    self.core.closed(link, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
                }
            }
            for (link, message) in sent {
                let Some(&node) = self.links.get(&link) else { continue };
                let is_held = self.registrations_held[node];
                if is_held && matches!(Request::decode(&message), Ok((_, Request::Regions))) {
                    continue;
                }
                let reply = self.answer(node, &message);
                self.core.message(link, self.now_ns, &reply);
            }
            while let Some(read) = self.core.next_read() {
                self.posted.push_back(read);
            }
            if self.core.wants_mapping() {
                let owner = &self.owner;
                self.core.map_regions(&mut |_, key| owner.mapped(key));
            }
            let read = if self.reads_held { None } else { self.posted.pop_front() };
            if let Some((link, read, tag)) = read {
                self.complete(link, &read, tag);
            } else if !busy {
                return self.core.validate(self.now_ns);
            }
        }
        panic!("it does not come to rest");
    }

    /// A read reaches the memory of its connection's node and no other.
    fn complete(&mut self, link: LinkId, read: &RemoteRead, tag: ReadTag) {
        let pair = usize::try_from(read.key.0 / 100).unwrap() - 1;
        let own = self.links.get(&link) == Some(&self.owners[pair]);
        let words = self.owner.read(read);
        // By a key of before the pair has moved nothing is read any more.
        assert!(own || words == Err(ReadFailure::KeyUnknown), "a read of another node's memory");
        let outcome: Result<&[u64], ReadFailure> = words.as_deref().map_err(|failure| *failure);
        self.core.read_done(link, tag, outcome);
    }

    /// A pair leaves its node and comes back: its registrations are new ones.
    pub(crate) fn register_anew(&mut self, pair: usize) {
        self.owner.pairs[pair].register_anew();
        self.lists[self.owners[pair]] += 1;
    }

    /// A pair moves to the other node.
    pub(crate) fn move_pair(&mut self, pair: usize) {
        self.lists[self.owners[pair]] += 1;
        self.owners[pair] = 1 - self.owners[pair];
        self.register_anew(pair);
    }

    /// What a get brings within some milliseconds, if it does.
    pub(crate) fn try_get(&mut self, key: &[u8], ms_max: u64) -> Option<Option<Vec<u8>>> {
        let deadline_ns = self.now_ns + ms_max * MS;
        self.core.submit_until(self.now_ns, &Operation::Get { key }, deadline_ns).unwrap();
        match self.wait(ms_max + 5).expect("at its deadline").outcome {
            Ok(Output::Value(item)) => Some(item.map(|item| item.value)),
            _ => None,
        }
    }

    /// Nobody is slow any more.
    fn answer_calls(&mut self) {
        self.slow = [false; 2];
        for (link, node) in std::mem::take(&mut self.calling) {
            self.links.insert(link, node);
            self.core.connected(link);
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.alive[node] = false;
        let gone: Vec<LinkId> =
            self.links.iter().filter(|(_, at)| **at == node).map(|(link, _)| *link).collect();
        for link in gone {
            self.links.remove(&link);
            self.posted.retain(|(of, ..)| *of != link);
            self.core.closed(link, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
        }
    }

    /// All nodes end, and begin anew, as do their lists. None of their pairs is served yet.
    pub(crate) fn restart_all(&mut self) {
        (0..2).for_each(|node| self.kill(node));
        self.lives = self.lives.map(|lives| lives + 1);
        (self.alive, self.lists, self.served) = ([true; 2], [LIST; 2], [false; 2]);
        self.owner.pairs.iter_mut().for_each(Owned::begin_anew);
    }

    pub(crate) fn wait(&mut self, ms_max: u64) -> Option<Completion> {
        for _ in 0..ms_max * 10 {
            self.run();
            if let Some(completion) = self.core.completion() {
                return Some(completion);
            }
            self.now_ns += MS / 10;
        }
        None
    }

    fn call(&mut self, operation: &Operation<'_>) -> Output {
        self.core.submit(self.now_ns, operation).unwrap();
        self.wait(100).expect("it is complete").outcome.unwrap()
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        match self.call(&Operation::Get { key }) {
            Output::Value(item) => item.map(|item| item.value),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_spared(&self) -> bool {
        self.asked.iter().all(Vec::is_empty)
    }
}

#[test]
fn walk_goes_from_the_router_on_one_node_to_a_leaf_on_the_other() {
    let mut harness = TwoNodeHarness::new();
    for number in [3, 150, 250, 99, 100, 299] {
        assert_eq!(harness.get(&key(number)), Some(value(number)), "{number}");
    }
    assert_eq!(harness.get(b"key-00150x"), None);
    assert_eq!(harness.call(&Operation::Search { key: &key(222) }), Output::Exists(true));
    assert!(harness.is_spared(), "{:?}", harness.asked);
    let (low, high) = (key(50), key(250));
    let Output::Values(values) = harness.call(&Operation::MultiGet { keys: &[&high, &low] }) else {
        panic!()
    };
    let found: Vec<bool> = values.iter().map(|found| matches!(found, Found::Value { .. })).collect();
    assert_eq!(found, [true, true]);
    assert!(harness.is_spared(), "one walk each, whatever the node");
}

#[test]
fn scan_over_nodes_meets_every_entry_once_in_both_directions() {
    for reverse in [false, true] {
        let mut harness = TwoNodeHarness::new();
        let Output::Page(page) = harness.call(&Operation::Scan(Scan { reverse, ..Scan::default() })) else {
            panic!()
        };
        let met: Vec<Vec<u8>> = page.iter().map(|entry| entry.key.to_vec()).collect();
        let mut expected: Vec<Vec<u8>> = harness.owner.entries.keys().cloned().collect();
        if reverse {
            expected.reverse();
        }
        assert!(met == expected && page.resume() == Bound::Unbounded);
        assert!(harness.is_spared());
    }
}

#[test]
fn each_node_is_trusted_by_its_own_word_alone() {
    let mut harness = TwoNodeHarness::new();
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.lease_us[1] = 0; // it promises nothing any more
    harness.now_ns += 20_000 * MS;
    assert_eq!(harness.get(&key(3)), Some(value(3)), "the first node's lease is renewed");
    harness.core.submit(harness.now_ns, &Operation::Get { key: &key(150) }).unwrap();
    assert!(harness.wait(30).is_none(), "the first node's lease says nothing of the second's keys");
    assert!(!harness.asked[1].is_empty() || !harness.asked[0].is_empty(), "a server is asked");
}

/// Each node says how long its freed memory rests; the last one that was received governed the memory of all.
#[test]
fn each_node_says_how_long_a_read_of_its_memory_may_take() {
    for permitted_ms in [[200, 50], [50, 200]] {
        let mut harness = TwoNodeHarness::permitting([0, 1], [false; 2], permitted_ms);
        for (node, number) in [(0, 3), (1, 150)] {
            assert_eq!(harness.get(&key(number)), Some(value(number)), "its router is known from here on");
            let before = harness.core.one_sided_counters().unwrap().clock;
            harness.reads_held = true;
            harness.core.submit(harness.now_ns, &Operation::Get { key: &key(number) }).unwrap();
            harness.run();
            assert!(!harness.posted.is_empty());
            harness.now_ns += 100 * MS;
            harness.reads_held = false;
            harness.run();
            assert!(harness.core.completion().expect("it is complete").outcome.is_ok());
            let overran = harness.core.one_sided_counters().unwrap().clock > before;
            assert_eq!(overran, permitted_ms[node] < 100, "node {node} of {permitted_ms:?}");
        }
        assert!(harness.is_spared(), "{:?}", harness.asked);
    }
}

/// A search in place begins in the memory of the root's node.
pub(crate) fn search_in_place_takes_no_longer_than_each_node_on_its_way_permits() {
    for permitted_ms in [[50, 200], [200, 50]] {
        let mut harness = TwoNodeHarness::mapped(permitted_ms);
        // Of each node's memory something is read, which is when it is mapped, and not the meganode of 150.
        for number in [3, 250] {
            assert_eq!(harness.get(&key(number)), Some(value(number)));
        }
        assert!(harness.core.one_sided_counters().unwrap().in_place > 0, "the regions are mapped");
        harness.core.submit(harness.now_ns, &Operation::Get { key: &key(150) }).unwrap();
        harness.core.validate(harness.now_ns);
        // The client is stopped right after its first look into the second node's memory.
        harness.owner.put(&key(150), b"newer");
        harness.now_ns += 100 * MS;
        let Output::Value(item) = harness.wait(100).unwrap().outcome.unwrap() else { panic!() };
        assert_eq!(item.unwrap().value, b"newer", "{permitted_ms:?}");
        assert!(harness.is_spared(), "{:?}", harness.asked);
    }
}

#[test]
fn search_in_place_over_two_nodes_keeps_to_the_shorter_time() {
    search_in_place_takes_no_longer_than_each_node_on_its_way_permits();
}

/// While a header is read, its pair leaves its node and comes back, and gets the place that it had.
pub(crate) fn header_read_under_earlier_registrations_is_nobodys() {
    let mut harness = TwoNodeHarness::with_owners([0, 0]);
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.owner.put_unseen(&key(150), b"newer");
    let deadline_ns = harness.now_ns + 20 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(150) }, deadline_ns).unwrap();
    harness.reads_held = true;
    harness.run();
    while let Some((link, read, tag)) = harness.posted.pop_front_if(|(_, read, _)| read.offset > 0) {
        harness.complete(link, &read, tag);
        harness.run();
    }
    let asked: Vec<_> = harness.posted.iter().map(|(_, read, _)| (read.key.0, read.offset)).collect();
    assert_eq!(asked, [(harness.owner.pairs[1].node_key(), 0)], "the second pair's header");
    let (link, _, tag) = harness.posted.pop_front().unwrap();
    assert!(harness.wait(25).expect("at its deadline").outcome.is_err());
    harness.reads_held = false;
    harness.register_anew(1);
    // Trust in the other pair runs low: what is asked then says that there is another list of registrations.
    for number in 0..50 {
        harness.now_ns += 200 * MS;
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    harness.core.read_done(link, tag, Ok(&[u64::MAX / 2; 16])); // all that it had written may be seen
    assert_eq!(harness.try_get(&key(150), 50), None, "it is not durable by the new registration");
    harness.owner.raise();
    harness.asked = [Vec::new(), Vec::new()];
    assert_eq!(harness.get(&key(150)), Some(b"newer".to_vec()));
    assert!(harness.is_spared(), "{:?}", harness.asked);
}

#[test]
fn header_that_comes_after_its_pair_has_left_is_nobodys() {
    header_read_under_earlier_registrations_is_nobodys();
}

#[test]
fn lost_node_costs_one_sided_reads_of_its_keys_alone() {
    let mut harness = TwoNodeHarness::new();
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.kill(1);
    let deadline_ns = harness.now_ns + 5 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(150) }, deadline_ns).unwrap();
    let completion = harness.wait(10).expect("at its deadline");
    assert!(completion.outcome.is_err(), "its memory is nobody's word any more");
    harness.asked = [Vec::new(), Vec::new()];
    for number in [1, 50, 99] {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    assert!(harness.is_spared(), "without asking the first node's worker: {:?}", harness.asked);
    harness.alive[1] = true;
    let one_sided = harness.core.one_sided_counters().unwrap().done;
    for _ in 0..50 {
        harness.now_ns += 20 * MS;
        harness.run();
    }
    assert_eq!(harness.get(&key(200)), Some(value(200)));
    assert!(harness.core.one_sided_counters().unwrap().done > one_sided, "its regions are asked for again");
}

#[test]
fn lost_router_leaves_the_other_nodes_keys_to_their_servers() {
    let mut harness = TwoNodeHarness::new();
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.kill(0);
    let deadline_ns = harness.now_ns + 50 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(150) }, deadline_ns).unwrap();
    harness.wait(60);
    assert!(harness.asked[1].contains(&RequestKind::Get), "whoever is there is asked: it may have the key");
}

/// The door had been lost while it was the only node that was known. Nobody called there again once another
/// node had been met, yet what was asked waited for its regions for ever (simulator, seed 6626).
#[test]
fn door_that_was_lost_before_another_node_was_met_is_not_waited_for() {
    let mut harness = TwoNodeHarness::started([0, 1], [false, true]);
    harness.kill(0);
    harness.answer_calls();
    harness.run();
    harness.alive[0] = true;
    for _ in 0..20 {
        let deadline_ns = harness.now_ns + 20 * MS;
        harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
        harness.wait(25).expect("at its deadline");
    }
    harness.asked = [Vec::new(), Vec::new()];
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    assert!(harness.is_spared(), "{:?}", harness.asked);
}

/// The root's header was on its way when another node was lost, and what it brought was thrown away.
#[test]
fn root_on_its_way_while_another_node_is_lost_is_asked_for_again() {
    let mut harness = TwoNodeHarness::new();
    harness.kill(0);
    harness.kill(1);
    harness.alive = [true, true];
    harness.reads_held = true;
    for _ in 0..20 {
        harness.now_ns += 20 * MS;
        harness.run();
    }
    assert!(!harness.posted.is_empty(), "the root's header");
    harness.kill(1);
    harness.reads_held = false;
    harness.run();
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    assert!(harness.is_spared(), "{:?}", harness.asked);
}

/// Ten times a second it is asked whether it has pairs by now; each time the cached tree nodes of all others
/// were dropped, and what was under way was handed to the servers.
#[test]
fn node_without_pairs_does_not_disturb_reads_of_the_others() {
    let mut harness = TwoNodeHarness::with_owners([0, 0]);
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    assert_eq!(harness.links.len(), 2, "who has no pairs yet may get some");
    let reads = |harness: &TwoNodeHarness| harness.core.one_sided_counters().unwrap().reads;
    let mut before = reads(&harness);
    for _ in 0..20 {
        harness.now_ns += 30 * MS;
        harness.run();
        assert_eq!(harness.get(&key(150)), Some(value(150)));
        assert!(
            reads(&harness) - before <= 3,
            "leaf, extent, perhaps a header: {}",
            reads(&harness) - before
        );
        before = reads(&harness);
    }
    assert!(harness.is_spared(), "{:?}", harness.asked);
}
