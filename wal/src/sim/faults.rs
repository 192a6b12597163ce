//! What can be made to go wrong, and the randomness that decides the rest.

use cell_random::Random;

use crate::error::Errno;

/// Which of the changes that were not on stable storage survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// Those up to some point in time.
    Prefix,
    /// Any of them.
    Random,
}

/// How a power cut goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// What becomes of bytes.
    pub writes: Landing,
    /// What becomes of names.
    pub names: Landing,
    /// The unit in which bytes survive: 512 or 4096.
    pub sector_bytes: usize,
}

impl PowerCut {
    /// Only what was synced survives.
    pub const CLEAN: PowerCut =
        PowerCut { writes: Landing::Nothing, names: Landing::Nothing, sector_bytes: 4096 };

    /// One of the many ways, by a seed.
    #[must_use]
    pub fn random(seed: u64) -> PowerCut {
        const LANDINGS: [Landing; 4] =
            [Landing::Nothing, Landing::Everything, Landing::Prefix, Landing::Random];
        let mut random = Random::new(seed);
        let landing = |choice: u64| LANDINGS[crate::check::index(choice)];
        PowerCut {
            writes: landing(random.below(4)),
            names: landing(random.below(4)),
            sector_bytes: if random.below(2) == 0 { 512 } else { 4096 },
        }
    }
}

/// Armed faults. A count falls with each operation; the one that finds it at zero fails.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) write: Option<(u64, Errno)>,
    pub(super) sync: Option<(u64, Errno)>,
    pub(super) read: Option<(u64, Errno)>,
    pub(super) power: Option<u64>,
    pub(super) off: bool,
    pub(super) capacity: Option<u64>,
}

/// Counts down; the error when it is due.
pub(super) fn due(fault: &mut Option<(u64, Errno)>) -> Result<(), Errno> {
    match fault {
        None => Ok(()),
        Some((0, errno)) => {
            let errno = *errno;
            *fault = None;
            Err(errno)
        }
        Some((count, _)) => {
            *count -= 1;
            Ok(())
        }
    }
}

impl Faults {
    /// Counts an operation that changes the disk; fails once the power is off.
    pub(super) fn operate(&mut self) -> Result<(), Errno> {
        match &mut self.power {
            Some(0) => self.off = true,
            Some(count) => *count -= 1,
            None => {}
        }
        if self.off { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// Which of `count` changes, in order of time, survive.
pub(super) fn land(random: &mut Random, landing: Landing, count: usize) -> Vec<bool> {
    let prefix = crate::check::index(random.below(count as u64 + 1));
    (0..count)
        .map(|change| match landing {
            Landing::Nothing => false,
            Landing::Everything => true,
            Landing::Prefix => change < prefix,
            Landing::Random => random.below(2) == 0,
        })
        .collect()
}
