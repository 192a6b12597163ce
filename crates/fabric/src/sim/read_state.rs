//! What the network keeps of one-sided reads: those under way, and the registrations that they read from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cell_memory::Region;

use crate::endpoint::ConnectionId;
use crate::remote_access::{ReadFailure, ReadTag, RegionKey, RemoteRead};

use super::link::{LinkId, Side};

/// A read's name within the network.
pub(super) type ReadId = u64;

/// An operation that was posted and not flushed.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) connection: ConnectionId,
    /// The words that it touches.
    pub(super) read: RemoteRead,
    /// Why no region permits it.
    pub(super) refusal: Option<ReadFailure>,
    pub(super) tag: ReadTag,
}

/// A read that ended.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) connection: ConnectionId,
    pub(super) tag: ReadTag,
    pub(super) outcome: Result<Vec<u64>, ReadFailure>,
}

/// The reads under way, and the registrations.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) registered: BTreeMap<RegionKey, Registration>,
    pub(super) under_way: BTreeMap<ReadId, Read>,
    pub(super) started: u64,
    /// What came due while its direction was blocked.
    pub(super) stalled: Vec<(ReadId, bool)>,
}

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) host: u32,
    pub(super) region: Region,
    /// For those who have it mapped. The end of a process does not notify them.
    pub(super) ended: Arc<AtomicBool>,
}

/// Which words of a read are loaded at which moment: a cache line's at one, or each word at its own.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    /// Of the region, the first word that is read.
    pub(super) first: usize,
    pub(super) per_unit: usize,
    pub(super) moments: usize,
    /// The moment of each unit.
    pub(super) units: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) endpoint: usize,
    pub(super) posted: Posted,
    pub(super) link: LinkId,
    pub(super) side: Side,
    /// The reader's host and the one that it reads from.
    pub(super) hosts: (u32, u32),
    pub(super) words: Vec<u64>,
    /// Which words each moment loads.
    pub(super) dealt: Dealt,
    pub(super) failure: Option<ReadFailure>,
}

impl Dealt {
    /// The words of a moment in ascending order, counted from the first one that is read.
    pub(super) fn words(&self, moment: usize, count: usize) -> impl Iterator<Item = usize> {
        let begin = self.first % self.per_unit.max(1);
        let units = self.units.iter().enumerate().filter(move |(_, dealt)| **dealt == moment);
        units.flat_map(move |(unit, _)| {
            let at = |unit: usize| (unit * self.per_unit).saturating_sub(begin).min(count);
            at(unit)..at(unit + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_all_moments_are_those_of_the_read_and_a_cache_line_has_one_moment() {
        // Words 5 to 24 of the region: three of the first line, two whole ones, one of the last.
        let dealt = Dealt { first: 5, per_unit: 8, moments: 2, units: vec![1, 0, 1, 0] };
        let of = |moment| dealt.words(moment, 20).collect::<Vec<_>>();
        assert_eq!(of(0), [3, 4, 5, 6, 7, 8, 9, 10, 19]);
        assert_eq!(of(1), [0, 1, 2, 11, 12, 13, 14, 15, 16, 17, 18]);
        let torn = Dealt { first: 5, per_unit: 1, moments: 2, units: vec![0, 1, 0] };
        assert_eq!((torn.words(0, 3).collect(), torn.words(1, 3).collect()), (vec![0, 2], vec![1]));
    }
}
