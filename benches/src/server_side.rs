//! Gets that the server answers beside those of Redis: one at a time, and many over many connections; and
//! what each costs the server's processor and the client's.
//!
//! The goal of processor time is the server's alone, which all of its clients share. The clients of both are
//! this process. Ours looks for its answer for `client_spin_us` before it sleeps, that of Redis sleeps in the
//! kernel at once: the rows of the client's processor say what that takes, without a goal.

use std::cell::{Cell, RefCell};

use cell_client::{Client, ClientOptions, Operation, Search, Transport};

use crate::contest::{self, Contender};
use crate::figure::{Figure, Goal, Report};
use crate::options::BenchError;
use crate::processor;
use crate::put::First;
use crate::reads::{Reads, agreed, get_each, options, spread_redis};
use crate::redis::{Pipeline, Redis};
use crate::redis_benchmark::RedisBenchmark;
use crate::served::{Served, spread};

/// Connections that are pipelined, and how many gets each has outstanding.
const MANY: (usize, usize) = (50, 16);
/// One get at a time.
const ONE_BY_ONE: (usize, usize) = (1, 1);
/// Rows of a worker that does not look for requests before it sleeps.
const SLEEPS: &str = ", worker sleeps";
const WORKER_SPIN: &str = "worker_spin_us";

/// Redis with the same data, and the tool of its own, if that is installed.
pub(crate) struct Rivals<'a> {
    pub(crate) redis: &'a Redis,
    pub(crate) tool: Option<RefCell<RedisBenchmark>>,
}

/// How servers are asked.
struct Asked<'a> {
    transport: Transport,
    /// Connections, and how many gets each has outstanding.
    load: (usize, usize),
    /// How the row is distinguished.
    how: &'a str,
}

/// Adds the rows: one outstanding and many, with the servers' processor time and sleeps. One outstanding also
/// where our worker sleeps as soon as it has nothing to do, as Redis does.
///
/// # Errors
/// A client, Redis or its tool that failed.
pub(crate) fn run(
    served: &Served,
    rivals: &Rivals<'_>,
    reads: &Reads,
    shape: &str,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    if shape.is_empty() {
        let spins = ClientOptions::default().spin_us;
        report.note(&format!(
            "the client's processor: ours looks for an answer for up to {spins} us before it sleeps, that of \
             Redis sleeps at once"
        ));
    }
    for sleeps in [false, true] {
        if sleeps {
            served.tune(WORKER_SPIN, Some("0"))?;
        }
        let how = format!("{}{shape}", if sleeps { SLEEPS } else { "" });
        for transport in [Transport::Shm, Transport::Tcp] {
            for load in [ONE_BY_ONE, MANY] {
                if load == ONE_BY_ONE || !sleeps {
                    beside_redis(served, rivals, reads, &Asked { transport, load, how: &how }, report)?;
                }
            }
        }
    }
    served.tune(WORKER_SPIN, None)
}

/// Adds the rows of one way to ask.
fn beside_redis(
    served: &Served,
    rivals: &Rivals<'_>,
    reads: &Reads,
    asked: &Asked<'_>,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let Asked { transport, load, how } = *asked;
    let (connections, outstanding) = load;
    let (redis, is_unix) = (rivals.redis, transport == Transport::Shm);
    let server_side = options(transport, Search::Server);
    let clients: Result<Vec<Client>, BenchError> =
        (0..connections).map(|_| served.client(server_side.clone())).collect();
    let mut clients = clients?;
    let pipelines: std::io::Result<Vec<Pipeline>> =
        (0..connections).map(|_| redis.pipeline(is_unix)).collect();
    let mut pipelines = pipelines?;
    let (first, spent) = (First::default(), [Cell::new(Cost::default()), Cell::new(Cost::default())]);
    let mut contenders = [
        Contender::new("ours", |round| {
            let before = Cost::of(served.processor_ns(), served.sleeps());
            let keys: Vec<&[u8]> = reads.keys(round).collect();
            let get = |index: usize| Operation::Get { key: keys[index] };
            let got = if load == ONE_BY_ONE {
                get_each(&mut clients[0], keys.iter().copied())
            } else {
                spread(&mut clients, keys.len(), outstanding, get)
            };
            let after = Cost::of(served.processor_ns(), served.sleeps());
            spent[0].set(spent[0].get().with(before, after));
            first.proved(reads.size, got)
        }),
        Contender::new("redis", |round| {
            let before = Cost::of(redis.processor_ns(), redis.sleeps());
            let got = spread_redis(&mut pipelines, reads, round, outstanding);
            let after = Cost::of(redis.processor_ns(), redis.sleeps());
            spent[1].set(spent[1].get().with(before, after));
            first.proved(reads.size, got.map_err(BenchError::from))
        }),
    ];
    let outcomes = contest::run(&mut contenders, 1, reads.rounds);
    drop(contenders);
    first.end()?;
    served.check_node()?;
    let outcomes = agreed(outcomes)?;
    let compared = Compared {
        name: format!("onesided/server-side get {transport}, {connections} x {outstanding}{how}"),
        rival: if is_unix { "Redis, unix socket, small pages" } else { "Redis, TCP, small pages" },
        rates: [0, 1].map(|index: usize| outcomes[index].rate()),
        spent: spent.each_ref().map(Cell::get),
        gets: ((reads.rounds + 1) * reads.size) as f64,
    };
    let by_tool = match &rivals.tool {
        Some(tool) if load == MANY => {
            Some(tool.borrow_mut().gets(is_unix, load, reads.size * reads.rounds)?)
        }
        _ => None,
    };
    compared.add_rows(least(asked), by_tool, report)
}

/// Ours and Redis, in this order.
struct Compared {
    name: String,
    rival: &'static str,
    rates: [f64; 2],
    spent: [Cost; 2],
    /// Of each, with those that were to warm up.
    gets: f64,
}

impl Compared {
    fn add_rows(&self, least: Goal, by_tool: Option<f64>, report: &mut Report<'_>) -> Result<(), BenchError> {
        let Self { name, rival, rates: [ours, theirs], .. } = self;
        report.add(Figure::beside(name, "op/s", *ours, *rival, *theirs, least))?;
        if let Some(theirs) = by_tool {
            let rival = "redis-benchmark -t get, as many, keys of its own";
            report.add(Figure::beside(name, "op/s", *ours, rival, theirs, Goal::None))?;
        }
        let mut row = |what: &str, unit, of: fn(&Cost) -> f64, goal| {
            let [ours, theirs] = self.spent.each_ref().map(|spent| of(spent) / self.gets);
            report.add(Figure::beside(format!("{name}: {what}"), unit, ours, *rival, theirs, goal))
        };
        row("server's processor", "us/op", |spent| spent.server_ns as f64 / 1e3, Goal::AtMost(1.0))?;
        row("client's processor", "us/op", |spent| spent.client_ns as f64 / 1e3, Goal::None)?;
        row("server's wake-ups", "1/op", |spent| spent.sleeps as f64, Goal::None)?;
        Ok(())
    }
}

/// How many times Redis's rate ours is to be.
fn least(asked: &Asked<'_>) -> Goal {
    match (asked.load, asked.transport) {
        (ONE_BY_ONE, _) if asked.how.starts_with(SLEEPS) => Goal::None,
        (ONE_BY_ONE, _) => Goal::AtLeast(1.3),
        (_, Transport::Tcp) => Goal::AtLeast(1.5),
        _ => Goal::AtLeast(1.0),
    }
}

/// What a server and its clients have used: processor time of both, and the server's sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    server_ns: u64,
    client_ns: u64,
    sleeps: u64,
}

impl Cost {
    /// What a server has used so far, and this process, in which its clients are.
    fn of(server_ns: u64, sleeps: u64) -> Self {
        Self { server_ns, client_ns: processor::own_time_ns(), sleeps }
    }

    /// This, and what was used between two looks.
    fn with(self, before: Self, after: Self) -> Self {
        Self {
            server_ns: self.server_ns + after.server_ns.saturating_sub(before.server_ns),
            client_ns: self.client_ns + after.client_ns.saturating_sub(before.client_ns),
            sleeps: self.sleeps + after.sleeps.saturating_sub(before.sleeps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_gathers_what_is_used_between_looks_by_server_and_client() {
        let at = |server_ns, client_ns, sleeps| Cost { server_ns, client_ns, sleeps };
        let first = Cost::default().with(at(10, 200, 1), at(15, 260, 3));
        assert_eq!(first, at(5, 60, 2));
        // What was used between the two turns is another one's.
        assert_eq!(first.with(at(100, 500, 9), at(101, 507, 9)), at(6, 67, 2));
        let before = Cost::of(0, 0);
        while Cost::of(0, 0).client_ns == before.client_ns {}
    }
}
