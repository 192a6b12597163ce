//! The two writers of a pair travel together.

use cell_terms::{Csn, Epoch, RegionKind};

use crate::region::{RegionWriter, Watermarks};

/// Both writers of a pair: whoever holds it is the pair's one writer.
#[derive(Debug)]
pub struct PairWriter {
    /// Of the node region.
    pub node: RegionWriter,
    /// Of the extent region.
    pub extent: RegionWriter,
}

impl PairWriter {
    /// Joins the writers of one pair's two regions.
    ///
    /// # Panics
    /// If they are not of one pair and epoch, or not one of each kind.
    #[must_use]
    pub fn new(node: RegionWriter, extent: RegionWriter) -> PairWriter {
        let (a, b) = (node.region().spec(), extent.region().spec());
        assert_eq!((a.kind, b.kind), (RegionKind::Node, RegionKind::Extent));
        assert_eq!((a.pair, a.epoch), (b.pair, b.epoch), "regions of two pairs or two epochs");
        PairWriter { node, extent }
    }

    /// Raises the watermarks in both headers; see [`RegionWriter::set_watermark`].
    pub fn set_watermark(&mut self, durable: Csn, visible: Csn) {
        self.extent.set_watermark(durable, visible);
        self.node.set_watermark(durable, visible);
    }

    /// See [`RegionWriter::in_epoch`].
    ///
    /// # Panics
    /// If the epoch is not later.
    #[must_use]
    pub fn in_epoch(self, epoch: Epoch) -> PairWriter {
        PairWriter::new(self.node.in_epoch(epoch), self.extent.in_epoch(epoch))
    }

    /// The watermarks as last set.
    #[must_use]
    pub fn watermark(&self) -> Watermarks {
        self.node.watermark()
    }
}
