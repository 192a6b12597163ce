//! What keeps a pair from being served, as its row says it.

use std::fmt;

use cell_terms::{Csn, Epoch, RegionId};
use serde::{Deserialize, Serialize};

use crate::number;

/// What keeps a pair from being served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// There is no log folder where the table says that there is one, or it cannot be read.
    Log {
        /// The region.
        #[serde(with = "number")]
        region: RegionId,
        /// The epoch.
        #[serde(with = "number")]
        epoch: Epoch,
    },
    /// A log is damaged before its end.
    Corruption {
        /// The file, as below the log root.
        file: String,
        /// The byte at which it shows.
        offset: u64,
    },
    /// The checkpoint cannot be read whole.
    Checkpoint {
        /// The file, as below the log root.
        file: String,
    },
    /// A file could not be read.
    Unreadable {
        /// The file or folder, as below the log root.
        file: String,
        /// The operating system's error number.
        errno: i32,
    },
    /// A record of a sound frame cannot be read or applied.
    Record {
        /// The region whose log it is in.
        #[serde(with = "number")]
        region: RegionId,
        /// The record.
        #[serde(with = "number")]
        csn: Csn,
    },
    /// What was restored does not satisfy its own checks.
    Verification {
        /// The region where it shows.
        #[serde(with = "number")]
        region: RegionId,
    },
    /// No survivor has memory for it.
    Memory {
        /// How many bytes it takes.
        bytes: u64,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Log { region, epoch } => write!(f, "the log of {region}, epoch {}, is missing", epoch.0),
            Missing::Corruption { file, offset } => write!(f, "{file} is damaged at byte {offset}"),
            Missing::Checkpoint { file } => write!(f, "the checkpoint {file} cannot be read whole"),
            Missing::Unreadable { file, errno } => write!(f, "{file} cannot be read, error {errno}"),
            Missing::Record { region, csn } => write!(f, "record {} of {region} cannot be applied", csn.0),
            Missing::Verification { region } => {
                write!(f, "what was restored of {region} does not satisfy its checks")
            }
            Missing::Memory { bytes } => write!(f, "nobody has {bytes} bytes of memory for it"),
        }
    }
}
