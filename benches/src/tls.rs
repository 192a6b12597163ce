//! `tls`: gets over TCP of a node that speaks TLS beside those of one that does not, and beside Redis without
//! TLS: many connections with some gets each, and one with one.

use std::cell::RefCell;
use std::path::Path;

use cell_client::{Client, ClientOptions, Operation, Search, Transport};
use cell_fabric::TlsTrust;
use rcgen::{CertificateParams, KeyPair};

use crate::contest::{self, Contender};
use crate::data::{Choice, Dataset};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::put::{First, NO_CHECKPOINTS, Scratch};
use crate::reads::{Reads, agreed, options as reading, spread_redis};
use crate::redis::{self, Keeps, Pipeline, Redis};
use crate::served::{Served, spread};

/// Connections, gets that each has outstanding, gets of a round, and what TLS may cost.
const SHAPES: [(usize, usize, usize, f64); 2] = [(50, 16, 100_000, 0.8), (1, 1, 10_000, 0.85)];

/// Runs the bench.
///
/// # Errors
/// A node, a client or Redis that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let trust = make_certificate(&folder.0)?;
    let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.0.join(name).display().to_string());
    let files = [("--tls-certificate-file", certificate.as_str()), ("--tls-key-file", key.as_str())];
    let flags = [&NO_CHECKPOINTS[..], &files].concat();
    let mut on = Served::start_under(&folder.0.join("on"), data.entries, &flags, &trust)?;
    on.fill(&data)?;
    let mut off = Served::start(&folder.0.join("off"), data.entries, &NO_CHECKPOINTS)?;
    off.fill(&data)?;
    let redis = if redis::is_installed() {
        let mut redis = Redis::start(&folder.0.join("redis"), Keeps::Dump)?;
        redis.fill(&data)?;
        Some(redis)
    } else {
        report.note("SKIPPED: Redis beside TLS: redis-server is missing (apt install redis-server)");
        None
    };
    for (connections, each, most, least) in SHAPES {
        let rounds = usize::from(options.rounds);
        let size = usize::try_from(data.entries).unwrap_or(usize::MAX).clamp(1_000, most);
        let probes = data.probes(Choice::Uniform, size * (rounds + 1), data.seed ^ 0x746c_7367);
        let reads = Reads { probes, size, rounds };
        let nodes = [(&on, Some(trust.clone())), (&off, None)];
        compare(nodes, redis.as_ref(), &reads, (connections, each, least), report)?;
    }
    Ok(())
}

/// A certificate for this machine, which stands for itself, in a folder.
fn make_certificate(folder: &Path) -> Result<TlsTrust, BenchError> {
    let other = |error: rcgen::Error| BenchError::Io(std::io::Error::other(error));
    let key = KeyPair::generate().map_err(other)?;
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).map_err(other)?;
    let path = folder.join("node.pem");
    std::fs::write(&path, params.self_signed(&key).map_err(other)?.pem())?;
    std::fs::write(folder.join("node.key"), key.serialize_pem())?;
    TlsTrust::open(&path).map_err(|error| BenchError::Io(std::io::Error::other(error)))
}

/// Gets of the same keys from each.
fn compare(
    nodes: [(&Served, Option<TlsTrust>); 2],
    redis: Option<&Redis>,
    reads: &Reads,
    (connections, each, least): (usize, usize, f64),
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let connect = |(node, trust): (&Served, Option<TlsTrust>)| -> Result<Vec<Client>, BenchError> {
        let options = ClientOptions { trust, ..reading(Transport::Tcp, Search::Server) };
        (0..connections).map(|_| node.client(options.clone())).collect()
    };
    let served = [nodes[0].0, nodes[1].0];
    let [on, off] = nodes;
    let (on, off) = (RefCell::new(connect(on)?), RefCell::new(connect(off)?));
    let pipelines: std::io::Result<Vec<Pipeline>> =
        redis.iter().flat_map(|redis| (0..connections).map(move |_| redis.pipeline(false))).collect();
    let pipelines = RefCell::new(pipelines?);
    let first = First::default();
    let ours = |clients: &RefCell<Vec<Client>>, round: usize| {
        let keys: Vec<&[u8]> = reads.keys(round).collect();
        let get = |index: usize| Operation::Get { key: keys[index] };
        first.proved(reads.size, spread(&mut clients.borrow_mut(), keys.len(), each, get))
    };
    let mut contenders = vec![
        Contender::new("on", |round| ours(&on, round)),
        Contender::new("off", |round| ours(&off, round)),
    ];
    if redis.is_some() {
        contenders.push(Contender::new("redis", |round| {
            let read = spread_redis(&mut pipelines.borrow_mut(), reads, round, each);
            first.proved(reads.size, read.map_err(BenchError::from))
        }));
    }
    let outcomes = contest::run(&mut contenders, 1, reads.rounds);
    drop(contenders);
    first.end()?;
    for node in served {
        node.check_node()?;
    }
    let outcomes = agreed(outcomes)?;
    let rate = |index: usize| outcomes.get(index).map(contest::Outcome::rate);
    let [with, without] = [0, 1].map(|index| rate(index).unwrap_or(f64::NAN));
    let bench = format!("tls/gets, {connections} x {each} over TCP");
    report.add(Figure::beside(bench.clone(), "op/s", with, "without TLS", without, Goal::AtLeast(least)))?;
    if let Some(theirs) = rate(2) {
        let goal = if connections > 1 { Goal::AtLeast(1.0) } else { Goal::None };
        report.add(Figure::beside(bench, "op/s", with, "Redis without TLS, as many", theirs, goal))?;
    }
    Ok(())
}
