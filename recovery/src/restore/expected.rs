//! How many bytes a restore has to read, for people: of logs that have ended, the lengths of their files,
//! until they are read; of one that is followed, what is known to be there. Its last files are as long before
//! anything is written to them as after, so they do not count until they are read.

use cell_terms::RegionKind;
use cell_wal::ReadRequest;
use cell_wal::folder::{closed_bytes, written_bytes};

use super::{Reading, Restore};
use crate::error::RecoveryError;
use crate::load::Load;

impl Restore {
    /// Expects image and logs.
    pub(super) fn expect_bytes(&mut self, load: Option<&Load>) -> Result<(), RecoveryError> {
        self.progress.expect(load.map_or(0, Load::bytes));
        let mut plan = self.plan.clone();
        while let Some(epoch) = plan.next() {
            let Some(request) = epoch.request else { continue };
            let bytes = self.bytes_of(&request)?;
            self.progress.expect(bytes);
            let follows = self.follows(&request);
            if let Some(copied) = self.copied.as_mut().filter(|_| follows) {
                copied.log_bytes_expected = bytes;
            }
        }
        Ok(())
    }

    /// What is expected of an epoch's logs.
    pub(super) fn expected_of(&self, request: &ReadRequest) -> Result<u64, RecoveryError> {
        match &self.copied {
            // More may be closed by now than when it began.
            Some(copied) if self.follows(request) => Ok(copied.log_bytes_expected),
            _ => self.bytes_of(request),
        }
    }

    fn bytes_of(&self, request: &ReadRequest) -> Result<u64, RecoveryError> {
        let storage = &*self.environment.storage;
        let of = |kind| {
            let name = request.log.log(kind);
            if self.follows(request) { closed_bytes(storage, name) } else { written_bytes(storage, name) }
        };
        Ok(of(RegionKind::Node)? + of(RegionKind::Extent)?)
    }

    /// All that there is of a log that is followed was read: no more is expected of it than that.
    pub(super) fn note_end(&self, reading: &mut Reading) {
        self.progress.expect_less(reading.bytes_expected.saturating_sub(reading.bytes_read));
        reading.bytes_expected = reading.bytes_expected.min(reading.bytes_read);
    }
}
