//! One-sided gets over shared memory, one at a time and sixteen in hand: beside the same gets in this
//! process, and beside Redis by what both cost, the server's and the client's processor time together.

use std::cell::RefCell;
use std::time::Duration;

use cell_client::{Client, Operation, Output, Transport};

use crate::contest::{self, Contender};
use crate::figure::{Figure, Goal, Report};
use crate::options::BenchError;
use crate::ours::Ours;
use crate::processor;
use crate::put::First;
use crate::reads::{Reads, agreed, get_each, one_sided, spread_redis, timed};
use crate::redis::Redis;
use crate::served::Served;

/// Gets that are in hand together.
const IN_HAND: usize = 16;
/// What half of all gets are to be faster than, in microseconds.
const MEDIAN_US: f64 = 1.2;

/// Adds the rows.
///
/// # Errors
/// A client or Redis that failed.
pub(crate) fn run(
    served: &Served,
    local: &Ours,
    redis: Option<&Redis>,
    reads: &Reads,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    rates(served, local, reads, report)?;
    median_time(served, reads, report)?;
    match redis {
        Some(redis) => processor_time(served, redis, reads, report),
        None => Ok(()),
    }
}

/// Gets in groups by multi-get; returns how many bytes the values have.
fn get_together<'k>(client: &mut Client, keys: impl Iterator<Item = &'k [u8]>) -> Result<u64, BenchError> {
    let keys: Vec<&[u8]> = keys.collect();
    let mut bytes = 0;
    for group in keys.chunks(IN_HAND) {
        let items = client.multi_get(group)?;
        bytes += items.iter().flatten().map(|item| item.value.len() as u64).sum::<u64>();
    }
    Ok(bytes)
}

/// Gets of which so many are submitted, then taken; returns how many bytes the values have.
fn get_pipelined<'k>(client: &mut Client, keys: impl Iterator<Item = &'k [u8]>) -> Result<u64, BenchError> {
    let keys: Vec<&[u8]> = keys.collect();
    let mut bytes = 0;
    for group in keys.chunks(IN_HAND) {
        for key in group {
            client.submit(&Operation::Get { key })?;
        }
        let mut left = group.len();
        while left > 0 {
            let Some(completion) = client.poll(Duration::from_secs(1)) else { continue };
            left -= 1;
            if let Output::Value(item) = completion.outcome? {
                bytes += item.map_or(0, |item| item.value.len() as u64);
            }
        }
    }
    Ok(bytes)
}

fn rates(served: &Served, ours: &Ours, reads: &Reads, report: &mut Report<'_>) -> Result<(), BenchError> {
    let local = RefCell::new((ours.reader(), Vec::new()));
    let client = RefCell::new(served.client(one_sided(Transport::Shm, true))?);
    let first = First::default();
    let mut contenders = [
        Contender::new("local", |round| {
            let (reader, out) = &mut *local.borrow_mut();
            let from = round % (reads.rounds + 1) * reads.size;
            let got = reader.get(&reads.probes, from, from + reads.size, out);
            first.proved(reads.size, got.map_err(BenchError::from))
        }),
        Contender::new("single", |round| {
            first.proved(reads.size, get_each(&mut client.borrow_mut(), reads.keys(round)))
        }),
        Contender::new("multi-get", |round| {
            first.proved(reads.size, get_together(&mut client.borrow_mut(), reads.keys(round)))
        }),
        Contender::new("pipelined", |round| {
            first.proved(reads.size, get_pipelined(&mut client.borrow_mut(), reads.keys(round)))
        }),
    ];
    let outcomes = contest::run(&mut contenders, 1, reads.rounds);
    drop(contenders);
    first.end()?;
    served.check_node()?;
    let outcomes = agreed(outcomes)?;
    let theirs = outcomes[0].rate();
    for (outcome, name, least) in [
        (&outcomes[1], "single", 0.9),
        (&outcomes[2], "multi-get of 16", 2.5),
        (&outcomes[3], "16 submitted", 2.5),
    ] {
        let name = format!("onesided/in place: get shm, {name}");
        let goal = Goal::AtLeast(least);
        report.add(Figure::beside(name, "op/s", outcome.rate(), "local single get", theirs, goal))?;
    }
    Ok(())
}

fn median_time(served: &Served, reads: &Reads, report: &mut Report<'_>) -> Result<(), BenchError> {
    let mut client = served.client(one_sided(Transport::Shm, true))?;
    get_each(&mut client, reads.keys(0))?;
    let mut times = Vec::with_capacity(reads.size);
    for key in reads.keys(1) {
        times.push(timed(|| client.get(key))?);
    }
    served.check_node()?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let name = "onesided/in place: p50 of a get shm";
    report.add(Figure::beside(name, "us", median.as_secs_f64() * 1e6, "1.2 us", MEDIAN_US, Goal::None))?;
    Ok(())
}

/// Gets a second of processor time, the servers' and this process's together.
fn processor_time(
    served: &Served,
    redis: &Redis,
    reads: &Reads,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    for (outstanding, least) in [(1, 5.0), (IN_HAND, 3.0)] {
        let client = RefCell::new(served.client(one_sided(Transport::Shm, true))?);
        let pipelines = RefCell::new(vec![redis.pipeline(true)?]);
        let (first, used) = (First::default(), RefCell::new([0u64; 2]));
        let mut contenders = [
            Contender::new("ours", |round| {
                let before = processor::own_time_ns() + served.processor_ns();
                let client = &mut client.borrow_mut();
                let got = match outstanding {
                    1 => get_each(client, reads.keys(round)),
                    _ => get_together(client, reads.keys(round)),
                };
                // It is less where the node has ended.
                let after = processor::own_time_ns() + served.processor_ns();
                used.borrow_mut()[0] += after.saturating_sub(before);
                first.proved(reads.size, got)
            }),
            Contender::new("redis", |round| {
                let before = processor::own_time_ns() + redis.processor_ns();
                let got = spread_redis(&mut pipelines.borrow_mut(), reads, round, outstanding);
                used.borrow_mut()[1] += processor::own_time_ns() + redis.processor_ns() - before;
                first.proved(reads.size, got.map_err(BenchError::from))
            }),
        ];
        let outcomes = contest::run(&mut contenders, 1, reads.rounds);
        drop(contenders);
        first.end()?;
        served.check_node()?;
        agreed(outcomes)?;
        let count = ((reads.rounds + 1) * reads.size) as f64;
        let [ours, theirs] = used.into_inner().map(|used| count * 1e9 / used as f64);
        let name = format!("onesided/in place: gets shm a second of processor time, {outstanding} in flight");
        let rival = "Redis, unix socket, small pages";
        report.add(Figure::beside(name, "op/cpu s", ours, rival, theirs, Goal::AtLeast(least)))?;
    }
    Ok(())
}
