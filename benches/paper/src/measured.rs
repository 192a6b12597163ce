//! One server and its clients on a machine that was measured, beside a model of them: the same events and the
//! same selector as for the paper's tables, made from what a single client measured and from nothing else.
//! Who measures is `benches/src/paper.rs`.

use cell_selector::SelectorSettings;
use serde_json::Value;

use crate::calibration::{group, rounded};
use crate::card::Card;
use crate::cluster::{Cluster, Group, Machine, fixed, policy};
use crate::host::{Host, RoundTrip};
use crate::observed::Observed;
use crate::sheet::{Sheet, error, number};
use crate::tree::Reads;

/// Simulated time until the selectors have settled, and after that.
const WARM_NS: u64 = 1_500_000_000;
const COUNTED_NS: u64 = 1_000_000_000;
const WINDOW_NS: u64 = 5_000_000;

/// What a search takes a client that is alone and has one in hand, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleSearch {
    /// From its begin to its answer.
    pub whole_ns: f64,
    /// Processor time of the client's thread.
    pub client_ns: f64,
    /// Processor time of the server's thread that answers.
    pub server_ns: f64,
    /// One-sided reads; none if it is done in mapped memory.
    pub reads: f64,
}

/// What a single client measured: all that the model is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleClient {
    /// Cores of the machine, which clients and server share.
    pub cores: usize,
    /// Searches by the server.
    pub by_server: SingleSearch,
    /// One-sided searches.
    pub one_sided: SingleSearch,
}

/// Who searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The server.
    ServerOnly,
    /// The clients.
    OneSidedOnly,
    /// Whom the adaptive selector takes.
    Cell,
}

impl Method {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Method; 3] = [Method::ServerOnly, Method::OneSidedOnly, Method::Cell];

    fn settings(self) -> SelectorSettings {
        match self {
            Method::ServerOnly => fixed(1.0),
            Method::OneSidedOnly => fixed(0.0),
            Method::Cell => policy("adaptive"),
        }
    }
}

/// What so many clients did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientsRow {
    /// Each has one search in hand.
    pub clients: usize,
    /// Thousands of searches a second, by [`Method::ALL`].
    pub rates_k: [f64; 3],
    /// Searches by the server with [`Method::Cell`].
    pub server_side_percent: f64,
}

/// What was measured over one transport.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTransport {
    /// Its name.
    pub transport: &'static str,
    /// Its single client.
    pub single: SingleClient,
    /// One row a number of clients.
    pub rows: Vec<ClientsRow>,
}

impl SingleClient {
    /// A machine on which each search takes what it takes the single client.
    fn host(&self) -> Host {
        let trips = |search: &SingleSearch, count: usize| {
            let each = |ns: f64| ns / count.max(1) as f64;
            RoundTrip::new(each(search.whole_ns), each(search.client_ns), each(search.server_ns))
        };
        let reads = rounded(self.one_sided.reads);
        let in_place = RoundTrip { client_ns: self.one_sided.whole_ns, ..RoundTrip::default() };
        Host {
            cores: self.cores,
            message: trips(&self.by_server, 1),
            read: if reads == 0 { in_place } else { trips(&self.one_sided, reads) },
            is_in_place: reads == 0,
        }
    }

    /// So many such clients, by a method.
    fn observed(&self, clients: usize, method: Method, seed: u64, short: bool) -> Observed {
        let parts = if short { 10 } else { 1 };
        let model = Cluster {
            machines: vec![Machine { card: Card::default(), processes: 1, cores: 1, cpu_ns: 0.0 }],
            asked: vec![1.0],
            groups: vec![Group { settings: method.settings(), ..group(clients, 1) }],
            reads: Reads::each(vec![1.0; rounded(self.one_sided.reads)]),
            extent_area: 1.0,
            wire_ns: 0.0,
            splits: None,
            step: None,
            host: Some(self.host()),
            seed,
            warm_ns: WARM_NS / parts,
            until_ns: (WARM_NS + COUNTED_NS) / parts,
            window_ns: WINDOW_NS,
        };
        model.run()
    }
}

const COLUMNS: [&str; 14] = [
    "transport",
    "clients",
    "measured_server_only_k",
    "model_server_only_k",
    "server_only_error_percent",
    "measured_one_sided_k",
    "model_one_sided_k",
    "one_sided_error_percent",
    "measured_cell_k",
    "model_cell_k",
    "cell_error_percent",
    "measured_server_side_percent",
    "model_server_side_percent",
    "server_side_error_points",
];

const SINGLE_COLUMNS: [&str; 7] = ["transport", "search", "us", "client_us", "server_us", "way_us", "reads"];

const ASSUMPTIONS: &str = "The model is made from the rows of measured_single alone: what a search takes a \
     client that is alone, and what of that its thread and the server's work; the rest is the way. Server \
     only and one-sided with one client repeat these; all else is predicted. Threads of clients and server \
     share the machine's cores: each does its part of a message or a read to its end, then comes who has \
     waited longest.";

const DIFFERENCES: &str = "The model leaves out why the machine differs from it. A thread of the \
     server that is never idle is not woken for each message: the machine does more. Who is woken on a busy \
     core does not wait for a core to leave its sleep, so the way is shorter than the single client's: the \
     machine does more. The kernel takes a core from a thread in the middle of its work, for milliseconds, \
     and a client takes its own wait for a core for the server's latency: the selector's share is another. \
     Threads side by side share caches and memory, and each is slower than the single one: the machine does \
     less. What a kernel's thread does for a device (Soft-RoCE) counts as the way and takes the model no \
     core: the machine does less.";

/// The table, and what the model was made from.
#[must_use]
pub fn sheets(measured: &[OverTransport], seed: u64, short: bool) -> Vec<Sheet> {
    let title = "one server and its clients on this machine, one search in hand, no cache of tree nodes, as \
         in figure 4: thousands of searches a second beside the model's";
    let mut table = Sheet::new("measured", title, &COLUMNS);
    let title = "a search by a single client that is alone: what the model is made from";
    let mut singles = Sheet::new("measured_single", title, &SINGLE_COLUMNS);
    for over in measured {
        for row in &over.rows {
            table.add(beside(over, row, seed, short));
        }
        for (name, search) in [("server", &over.single.by_server), ("one-sided", &over.single.one_sided)] {
            singles.add(single(over.transport, name, search));
        }
    }
    if let Some(over) = measured.first() {
        table.note(format!("The machine has {} cores. {ASSUMPTIONS}", over.single.cores));
    }
    table.note(DIFFERENCES);
    vec![table, singles]
}

fn beside(over: &OverTransport, row: &ClientsRow, seed: u64, short: bool) -> Vec<Value> {
    let mut cells = vec![Value::from(over.transport), Value::from(row.clients)];
    let mut server_percent = 0.0;
    for (method, measured_k) in Method::ALL.into_iter().zip(row.rates_k) {
        let model = over.single.observed(row.clients, method, seed, short);
        cells.extend([number(measured_k), number(model.rate_k()), error(model.rate_k(), measured_k)]);
        server_percent = model.server_percent(); // the last one is Cell's
    }
    let measured_percent = row.server_side_percent;
    cells.extend([measured_percent, server_percent, server_percent - measured_percent].map(number));
    cells
}

fn single(transport: &'static str, name: &str, search: &SingleSearch) -> Vec<Value> {
    let SingleSearch { whole_ns, client_ns, server_ns, reads } = *search;
    let way_ns = whole_ns - client_ns - server_ns;
    let times = [whole_ns, client_ns, server_ns, way_ns].map(|ns| number(ns / 1e3));
    let names = [Value::from(transport), Value::from(name)];
    names.into_iter().chain(times).chain([number(reads)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(whole_us: f64, client_us: f64, server_us: f64, reads: f64) -> SingleSearch {
        let [whole_ns, client_ns, server_ns] = [whole_us, client_us, server_us].map(|us| 1e3 * us);
        SingleSearch { whole_ns, client_ns, server_ns, reads }
    }

    fn over_tcp() -> SingleClient {
        let (by_server, one_sided) = (search(40.0, 12.0, 10.0, 0.0), search(150.0, 40.0, 35.0, 5.0));
        SingleClient { cores: 2, by_server, one_sided }
    }

    fn over_shm() -> SingleClient {
        let (by_server, one_sided) = (search(20.0, 6.0, 5.0, 0.0), search(1.5, 1.48, 0.0, 0.0));
        SingleClient { cores: 2, by_server, one_sided }
    }

    fn rate_k(single: &SingleClient, clients: usize, method: Method) -> f64 {
        single.observed(clients, method, 7, true).rate_k()
    }

    #[test]
    fn single_client_of_the_model_does_what_it_was_made_from() {
        // Both ends work at the same time for a while.
        let overlapping = SingleClient { by_server: search(15.0, 9.0, 11.0, 0.0), ..over_tcp() };
        for single in [over_tcp(), over_shm(), overlapping] {
            for (method, search) in
                [(Method::ServerOnly, single.by_server), (Method::OneSidedOnly, single.one_sided)]
            {
                let part = rate_k(&single, 1, method) * search.whole_ns / 1e6;
                assert!((part - 1.0).abs() < 0.03, "{part} of {search:?}");
            }
        }
    }

    /// A search takes the worker 10 us, and client and worker together 22.
    #[test]
    fn many_clients_are_bounded_by_the_worker_or_by_the_cores_that_all_share() {
        let of_cores = |cores| rate_k(&SingleClient { cores, ..over_tcp() }, 8, Method::ServerOnly);
        let (one, two, many) = (of_cores(1), of_cores(2), of_cores(64));
        assert!((43.0..46.0).contains(&one), "{one}: one core does 45.5 K");
        assert!((80.0..92.0).contains(&two), "{two}: two cores do 90.9 K");
        assert!((95.0..102.0).contains(&many), "{many}: one worker does 100 K");
    }

    #[test]
    fn clients_in_place_do_more_until_each_core_has_one() {
        let of = |clients| rate_k(&over_shm(), clients, Method::OneSidedOnly);
        let (one, two, eight) = (of(1), of(2), of(8));
        assert!((two / one - 2.0).abs() < 0.05, "{two} beside {one}");
        assert!((eight / two - 1.0).abs() < 0.05, "{eight} beside {two}");
    }

    #[test]
    fn selector_takes_the_nearer_way_of_a_client_that_is_alone() {
        for (single, percent) in [(over_tcp(), 90.0..=100.0), (over_shm(), 0.0..=10.0)] {
            let cell = single.observed(1, Method::Cell, 7, true);
            assert!(percent.contains(&cell.server_percent()), "{} of {single:?}", cell.server_percent());
            let best_k = rate_k(&single, 1, Method::ServerOnly).max(rate_k(&single, 1, Method::OneSidedOnly));
            assert!(cell.rate_k() > 0.85 * best_k, "{} of {best_k}", cell.rate_k());
        }
    }

    /// What is predicted knows nothing of what it is compared with.
    #[test]
    fn what_more_clients_did_changes_nothing_but_the_errors() {
        let of = |factor: f64| {
            let row = |clients: usize| ClientsRow {
                clients,
                rates_k: [30.0, 8.0, 29.0].map(|rate_k| factor * rate_k),
                server_side_percent: 80.0 * factor,
            };
            let over = OverTransport { transport: "tcp", single: over_tcp(), rows: [1, 4].map(row).to_vec() };
            sheets(&[over], 7, true)
        };
        let (before, after) = (of(1.0), of(1.1));
        for column in COLUMNS {
            let is_beside = column.starts_with("measured_") || column.contains("_error_");
            let differs = before[0].column(column) != after[0].column(column);
            assert_eq!(differs, is_beside, "{column}");
        }
        assert_eq!(before[1], after[1]);
    }
}
