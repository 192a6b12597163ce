//! A core and several nodes: doors with ranges of their own to one store. A node that is asked for another's
//! keys refuses, with a hint if it keeps the router; nodes die, freeze, and their pairs move.

use std::collections::{BTreeMap, BTreeSet};

use cell_client::{
    AttemptError, ClientCommand, ClientCore, ClientOptions, Completion, LinkId, Operation, Output, Ticket,
};
use cell_fabric::CloseReason;
use cell_protocol::{
    Bound, ClientReportReply, Entry, EntryValue, HelloReply, OwnedState, PROTOCOL_VERSION, PageWriter,
    Refusal, Reply, Request, RequestHeader, RequestId, RequestKind, Route, Scan, SettingValues, TableReport,
    TableRow, TableRows,
};
use cell_terms::{Epoch, Incarnation, NodeId, PairId};

use crate::client_core::core_harness::MS;
use crate::model::{LIMITS, Peer, Server, encode, header, refusal};

pub(crate) struct Node {
    pub(crate) alive: bool,
    /// It takes connections and says nothing.
    pub(crate) frozen: bool,
    incarnation: u64,
    /// Requests that it has got, hellos and questions for the table left out.
    pub(crate) asked: Vec<RequestKind>,
    pub(crate) tables: usize,
}

pub(crate) struct Cluster {
    pub(crate) core: ClientCore,
    /// One store behind all doors: what a pair's log takes along when it moves.
    pub(crate) server: Server,
    pub(crate) nodes: Vec<Node>,
    /// Low fence of each range, and its pair.
    ranges: BTreeMap<Vec<u8>, u32>,
    /// The node of each pair.
    pub(crate) owners: BTreeMap<u32, usize>,
    /// What the table says of pairs that nobody serves.
    pub(crate) unserved: BTreeMap<u32, OwnedState>,
    revision: u64,
    pub(crate) now_ns: u64,
    given: Vec<usize>,
    links: BTreeMap<LinkId, (usize, Peer)>,
    /// Connections that were started, by node.
    pub(crate) connects: Vec<usize>,
    /// What reports are answered: a revision, and what the cluster is tuned to.
    pub(crate) settings: (u64, Vec<(&'static str, &'static str)>),
    /// Answers of these nodes are lost.
    pub(crate) mute: BTreeSet<usize>,
    /// A node with keys to the left of what it is asked for names its neighbour to the right.
    pub(crate) names_neighbours: bool,
}

impl Cluster {
    /// Pairs 1, 2 and so on, one a node, with ranges that begin at the keys of `lows`, round robin.
    pub(crate) fn new(options: ClientOptions, count: usize, lows: &[&[u8]], given: &[usize]) -> Cluster {
        let pair = |at: usize| u32::try_from(at % count + 1).unwrap();
        let mut ranges = BTreeMap::from([(Vec::new(), 1)]);
        ranges.extend(lows.iter().enumerate().map(|(at, low)| (low.to_vec(), pair(at + 1))));
        let node = |at: usize| Node {
            alive: true,
            frozen: false,
            incarnation: at as u64 + 10,
            asked: Vec::new(),
            tables: 0,
        };
        Cluster {
            core: ClientCore::new(options, 1),
            server: Server::default(),
            nodes: (0..count).map(node).collect(),
            ranges,
            owners: (0..count).map(|at| (pair(at), at)).collect(),
            unserved: BTreeMap::new(),
            revision: 1,
            now_ns: 1,
            given: given.to_vec(),
            links: BTreeMap::new(),
            connects: vec![0; count],
            settings: (0, Vec::new()),
            mute: BTreeSet::new(),
            names_neighbours: false,
        }
    }

    fn range(&self, key: &[u8]) -> (&[u8], Option<&[u8]>, u32) {
        let (low, pair) = self.ranges.range(..=key.to_vec()).next_back().unwrap();
        let high = self.ranges.range(key.to_vec()..).find(|(low, _)| **low != key).map(|(low, _)| &low[..]);
        (low, high, *pair)
    }

    /// A pair is served elsewhere from now on.
    pub(crate) fn move_pair(&mut self, pair: u32, to: usize) {
        self.owners.insert(pair, to);
        self.revision += 1;
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].alive = false;
        let gone: Vec<LinkId> =
            self.links.iter().filter(|(_, (at, _))| *at == node).map(|(l, _)| *l).collect();
        for link in gone {
            self.links.remove(&link);
            self.core.closed(link, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
        }
    }

    /// Another life of a node, without pairs.
    pub(crate) fn start(&mut self, node: usize) {
        (self.nodes[node].alive, self.nodes[node].frozen) = (true, false);
        self.nodes[node].incarnation += 100;
        self.revision += 1;
    }

    /// A node of another cluster comes to where that one was.
    pub(crate) fn replace_by_another_clusters(&mut self, node: usize) {
        self.start(node);
        self.nodes[node].incarnation |= 7 << 40;
    }

    fn connect(&mut self, link: LinkId, node: usize) {
        self.connects[node] += 1;
        if self.nodes[node].alive {
            self.links.insert(link, (node, Peer::default()));
            self.core.connected(link);
        } else {
            self.core.closed(link, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
        }
    }

    /// Carries out what the core wants, until that is nothing.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            self.core.tick(self.now_ns);
            let mut sent = Vec::new();
            let mut started = Vec::new();
            while let Some(command) = self.core.command(self.now_ns) {
                match command {
                    ClientCommand::Connect { link, address, attempt } => {
                        let given = self.given[usize::try_from(attempt).unwrap() % self.given.len()];
                        let node = address.map_or(given, |text| text[4..].parse().unwrap());
                        started.push((link, node));
                    }
                    ClientCommand::Send { link, message } => sent.push((link, message.to_vec())),
                    ClientCommand::Close { link } => drop(self.links.remove(&link)),
                }
            }
            if sent.is_empty() && started.is_empty() {
                return;
            }
            started.into_iter().for_each(|(link, node)| self.connect(link, node));
            for (link, message) in sent {
                self.deliver(link, &message);
            }
        }
        panic!("it does not come to rest");
    }

    fn deliver(&mut self, link: LinkId, message: &[u8]) {
        let Some((node, mut peer)) = self.links.remove(&link) else { return };
        let mut replies = Vec::new();
        if !self.nodes[node].frozen {
            self.answer(node, &mut peer, message, &mut replies);
        }
        self.links.insert(link, (node, peer));
        if !self.mute.contains(&node) {
            for reply in replies {
                self.core.message(link, self.now_ns, &reply);
            }
        }
    }

    fn answer(&mut self, node: usize, peer: &mut Peer, message: &[u8], out: &mut Vec<Vec<u8>>) {
        let (RequestHeader { id, .. }, request) = Request::decode(message).unwrap();
        match request {
            Request::Hello(_) => {
                self.server.handle(peer, message, &mut Vec::new());
                let incarnation = Incarnation(self.nodes[node].incarnation);
                let node = NodeId(u32::try_from(node).unwrap());
                let version = PROTOCOL_VERSION;
                let hello = HelloReply { version, node, incarnation, limits: LIMITS, name: "node" };
                return out.push(encode(id, &Reply::Hello(hello)));
            }
            Request::Table { .. } => {
                self.nodes[node].tables += 1;
                return out.push(self.table(id));
            }
            Request::Report(_) => {
                let (settings_revision, values) = &self.settings;
                let (settings_revision, values) = (*settings_revision, SettingValues::List(values));
                let reported = ClientReportReply { settings_revision, values };
                return out.push(encode(id, &Reply::Reported(reported)));
            }
            _ => self.nodes[node].asked.push(request.kind()),
        }
        let is_foreign = |pair: u32| self.owners[&pair] != node || self.unserved.contains_key(&pair);
        let foreign = keys_of(&request).into_iter().find(|key| is_foreign(self.range(key).2));
        match (foreign, request) {
            (Some(key), _) => out.push(self.elsewhere(id, node, &key)),
            (None, Request::Scan(scan)) => out.push(self.page(id, &scan)),
            _ => self.server.handle(peer, message, out),
        }
    }

    /// The owner of the lowest pair knows more, and who has the keys to the left something.
    fn elsewhere(&self, id: RequestId, node: usize, key: &[u8]) -> Vec<u8> {
        let (low, high, pair) = self.range(key);
        if self.owners[&1] == node {
            return encode(id, &Reply::Elsewhere(Route { low, high, pair: PairId(pair) }));
        }
        let has = |(_, pair): &(&Vec<u8>, &u32)| self.owners[pair] == node;
        let left = self.ranges.range(..key.to_vec()).rfind(has).filter(|_| self.names_neighbours);
        let right = left.and_then(|(left, _)| self.ranges.range(left.clone()..).nth(1));
        let Some((_, pair)) = right else { return refusal(id, Refusal::NotOwner) };
        let behind = [key, &[0]].concat();
        let route = Route { low: key, high: Some(&behind), pair: PairId(*pair) };
        encode(id, &Reply::Elsewhere(route))
    }

    fn table(&self, id: RequestId) -> Vec<u8> {
        let address: Vec<String> = (0..self.nodes.len()).map(|at| format!("node{at}")).collect();
        let row = |(pair, node): (&u32, &usize)| TableRow {
            pair: PairId(*pair),
            node: NodeId(u32::try_from(*node).unwrap()),
            owner: Incarnation(self.nodes[*node].incarnation),
            epoch: Epoch(1),
            state: self.unserved.get(pair).copied().unwrap_or(OwnedState::Serving),
            address: &address[*node],
            http: "",
        };
        let rows: Vec<TableRow<'_>> = self.owners.iter().map(row).collect();
        let rows_all = u32::try_from(rows.len()).unwrap();
        let rows = TableRows::List(&rows);
        encode(id, &Reply::Table(TableReport { revision: self.revision, rows_all, rows }))
    }

    /// A page of two entries at most, which ends where the range does.
    fn page(&self, id: RequestId, scan: &Scan<'_>) -> Vec<u8> {
        let first = first_key(scan);
        let (low, high, _) = self.range(&first);
        let inside = |key: &[u8]| {
            let after = match scan.start {
                Bound::Unbounded => true,
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
            };
            let before = match scan.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            };
            after && before && key >= low && high.is_none_or(|high| key < high)
        };
        let mut found: Vec<_> = self.server.entries.iter().filter(|(key, _)| inside(key)).collect();
        if scan.reverse {
            found.reverse();
        }
        let mut out = Vec::new();
        let mut page = PageWriter::begin(&header(id), 2, 0, &mut out).unwrap();
        let mut resume = match scan.reverse {
            false => high.map(Bound::Included),
            true => Some(low).filter(|low| !low.is_empty()).map(Bound::Excluded),
        };
        for (key, (version, value)) in found {
            let entry = Entry { key, version: *version, value: EntryValue::Inline(value) };
            if !page.push(&entry).unwrap() {
                resume = Some(Bound::Included(key));
                break;
            }
        }
        page.finish(resume).unwrap();
        out
    }

    pub(crate) fn submit(&mut self, operation: &Operation<'_>) -> Ticket {
        self.core.submit(self.now_ns, operation).unwrap()
    }

    /// Lets time pass until an operation is complete.
    pub(crate) fn wait(&mut self, ms_max: u64) -> Option<Completion> {
        for _ in 0..ms_max {
            self.run();
            if let Some(completion) = self.core.completion() {
                return Some(completion);
            }
            self.now_ns += MS;
        }
        None
    }

    pub(crate) fn call(&mut self, operation: &Operation<'_>) -> Output {
        self.submit(operation);
        self.wait(4_000).expect("it is complete").outcome.unwrap()
    }
}

fn first_key(scan: &Scan<'_>) -> Vec<u8> {
    match (scan.reverse, scan.start, scan.end) {
        (false, start, _) => start.key().unwrap_or_default().to_vec(),
        (true, _, Bound::Unbounded) => vec![0xFF; 8],
        (true, _, Bound::Included(key)) => key.to_vec(),
        (true, _, Bound::Excluded(key)) => {
            // The key just below, as far as these tests' keys go.
            let mut below = key.to_vec();
            *below.last_mut().unwrap() -= 1;
            below.push(0xFF);
            below
        }
    }
}

fn keys_of(request: &Request<'_>) -> Vec<Vec<u8>> {
    match request {
        Request::Get { key } | Request::Search { key } => vec![key.to_vec()],
        Request::Put(put) => vec![put.key.to_vec()],
        Request::PutBegin(begin) => vec![begin.key.to_vec()],
        Request::Delete(delete) => vec![delete.key.to_vec()],
        Request::MultiGet(keys) => keys.iter().map(<[u8]>::to_vec).collect(),
        Request::Scan(scan) => vec![first_key(scan)],
        _ => Vec::new(),
    }
}
