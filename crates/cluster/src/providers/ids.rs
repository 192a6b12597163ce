//! How ids of leases and generations of tables are drawn at random. A table that is lost or restored from a
//! backup does not say which ids were given since: what is drawn stands in no table.

use cell_terms::Incarnation;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::ClusterError;

/// A step from one id to the next is less than this.
const STEP_MAX: u64 = 1 << 20;

/// 31 bits that another cluster, or this one after it lost its table, will hardly draw; never zero.
pub(super) fn random_generation() -> Result<u32, ClusterError> {
    let drawn = random_below(1 << 31)?;
    Ok(u32::try_from(drawn).unwrap_or(1).max(1))
}

/// How far above the lowest id that it may have the next lease is: less than a `part`-th of the ids that its
/// cluster has left, so that they last for several times as many steps. Steps become shorter with the end of
/// the ids, and end with it.
pub(super) fn random_step(lowest: Incarnation, part: u64) -> Result<u64, ClusterError> {
    random_below((lowest.left_in_cluster() / part).clamp(1, STEP_MAX))
}

/// A number below this limit.
pub(super) fn random_below(limit: u64) -> Result<u64, ClusterError> {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    filled.map_err(|error| ClusterError::Folder { path: "/dev/urandom".into(), source: error.into() })?;
    Ok(u64::from_le_bytes(bytes) % limit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn random_step_is_short_and_stays_within_the_ids_that_are_left() {
        let first = Incarnation::first_of_generation(7);
        let last = Incarnation(first.0 + first.left_in_cluster());
        for _ in 0..1_000 {
            assert!(random_step(first, 1 << 10).unwrap() < STEP_MAX);
            assert!(random_step(Incarnation(last.0 - 3_000), 1 << 10).unwrap() < 2);
            assert_eq!(random_step(last, 1 << 10).unwrap(), 0);
            assert_ne!(random_generation().unwrap(), 0);
        }
    }

    /// The first id after a restored backup is another one than the first after the backup was made.
    #[test]
    fn random_step_of_two_starts_is_hardly_the_same() {
        let first = Incarnation::first_of_generation(7);
        let drawn: BTreeSet<_> = (0..100).map(|_| random_step(first, 1 << 10).unwrap()).collect();
        assert!(drawn.len() > 90, "{drawn:?}");
    }
}
