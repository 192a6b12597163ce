//! When the reader asks the fabric which regions it has mapped.
//!
//! What a search in place lacks goes the way of reads, and these have the fabric map what they read. So the
//! fabric is asked when a read of a region has come back that is not known to be mapped: nothing else needs
//! to happen for a pair that is new, was moved or taken over, or gets its first entries. It is asked for the
//! regions of such pairs alone: a client may know of thousands that it never reads.

use cell_fabric::{MappedRegion, RegionKey};

use super::Reader;
use super::reads::ReadOwner;
use crate::link_id::LinkId;

impl Reader {
    /// Whether the fabric is to be asked which regions are mapped.
    pub(crate) fn wants_mapping(&self) -> bool {
        self.mapping_wanted
    }

    /// Takes the regions that are mapped, so that they are looked at in place from now on.
    pub(crate) fn map(&mut self, mapped: &mut dyn FnMut(LinkId, RegionKey) -> Option<MappedRegion>) {
        self.mapping_wanted = false;
        let found = self.context.regions.map(mapped);
        for (at, worker) in self.workers.iter_mut().enumerate() {
            let link = LinkId(u16::try_from(at).unwrap_or(u16::MAX));
            worker.mapping.asked(found.contains(link));
        }
    }

    /// A read has come back with what it read, to whoever waits for it.
    pub(super) fn on_region_read(&mut self, link: LinkId, owner: ReadOwner) {
        let Some((pair, region)) = self.region_read_for(owner) else { return };
        if self.context.regions.lacks(pair, region)
            && let Some(worker) = self.workers.get_mut(link.index())
        {
            self.context.regions.on_unmapped_read(pair);
            self.mapping_wanted |= worker.mapping.is_due_after_read();
        }
    }
}
