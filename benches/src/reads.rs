//! What the benches of reads have in common: the keys, clients of a served store, and reads in one hand or
//! over several connections.

use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, Search, Transport};

use crate::contest::Outcome;
use crate::data::Packed;
use crate::options::BenchError;
use crate::redis::Pipeline;

/// Keys to read, the same for everyone in one round.
pub(crate) struct Reads {
    pub(crate) probes: Packed,
    pub(crate) size: usize,
    pub(crate) rounds: usize,
}

impl Reads {
    pub(crate) fn keys(&self, round: usize) -> impl Iterator<Item = &[u8]> {
        let first = round % (self.rounds + 1) * self.size;
        (first..first + self.size).map(|index| self.probes.get(index))
    }
}

/// Options of a client that measures and searches so.
pub(crate) fn options(transport: Transport, search: Search) -> ClientOptions {
    ClientOptions { transport, search, ..crate::served::patient() }
}

/// Of one that searches itself.
pub(crate) fn one_sided(transport: Transport, cache_inner: bool) -> ClientOptions {
    ClientOptions { cache_inner, ..options(transport, Search::Client) }
}

/// Gets one after the other; returns how many bytes the values have.
pub(crate) fn get_each<'k>(
    client: &mut Client,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for key in keys {
        bytes += client.get(key)?.map_or(0, |item| item.value.len() as u64);
    }
    Ok(bytes)
}

/// Outcomes of contenders that have read the same keys.
pub(crate) fn agreed(outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, BenchError> {
    let ours = outcomes[0].proof;
    match outcomes.iter().find(|outcome| outcome.proof != ours) {
        Some(other) => Err(BenchError::Disagreement { ours, theirs: other.proof }),
        None => Ok(outcomes),
    }
}

/// How long something took that did not fail.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<Duration, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

/// Gets of a round's keys over several connections to Redis, each with so many outstanding.
pub(crate) fn spread_redis(
    pipelines: &mut [Pipeline],
    reads: &Reads,
    round: usize,
    outstanding: usize,
) -> std::io::Result<u64> {
    let keys: Vec<&[u8]> = reads.keys(round).collect();
    let mut bytes = 0;
    for turn in keys.chunks(pipelines.len() * outstanding) {
        let parts = || turn.chunks(outstanding);
        for (pipeline, keys) in pipelines.iter_mut().zip(parts()) {
            pipeline.send_gets(keys.iter().copied())?;
        }
        for (pipeline, keys) in pipelines.iter_mut().zip(parts()) {
            bytes += pipeline.receive(keys.len())?;
        }
    }
    Ok(bytes)
}
