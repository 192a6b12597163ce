//! The commit batch that is filling: records go straight into the two buffers that will be written.

use cell_terms::{Csn, RegionKind};

use crate::buffer::LogBuffer;
use crate::frame::{FRAME_HEADER_BYTES, frame_bytes};
use crate::record::{RECORD_HEADER_BYTES, frame_record, record_space};

/// Where an appended record stands: its payload can be read back until its batch is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's number.
    pub csn: Csn,
    /// Which log it is in.
    pub kind: RegionKind,
    offset: u32,
    length: u32,
}

/// One log's side of the batch.
pub(crate) struct BatchSide {
    /// Header room, then records.
    pub(crate) buffer: LogBuffer,
    /// Bytes of records.
    pub(crate) payload_bytes: usize,
    /// Number of records.
    pub(crate) records: u32,
}

impl BatchSide {
    pub(crate) fn new(buffer: LogBuffer) -> BatchSide {
        BatchSide { buffer, payload_bytes: 0, records: 0 }
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        frame_bytes(self.payload_bytes)
    }

    /// Makes room for a record that is larger than the buffer: only oversized batches get here.
    fn grow(&mut self, payload_bytes: usize) {
        let needed = frame_bytes(payload_bytes);
        if needed <= self.buffer.capacity() {
            return;
        }
        let mut larger = LogBuffer::heap(needed.max(2 * self.buffer.capacity()));
        let used = FRAME_HEADER_BYTES + self.payload_bytes;
        larger.bytes_mut()[..used].copy_from_slice(&self.buffer.bytes()[..used]);
        self.buffer = larger;
    }
}

/// What is gathered for the next submission.
pub(crate) struct Batch {
    /// The first record's number, if there is one.
    pub(crate) csn_first: Csn,
    /// The next record's number.
    pub(crate) csn_next: Csn,
    sides: [BatchSide; 2],
}

const fn side(kind: RegionKind) -> usize {
    match kind {
        RegionKind::Node => 0,
        RegionKind::Extent => 1,
    }
}

impl Batch {
    pub(crate) fn new(csn_first: Csn, node: LogBuffer, extent: LogBuffer) -> Batch {
        Batch { csn_first, csn_next: csn_first, sides: [BatchSide::new(node), BatchSide::new(extent)] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.csn_first == self.csn_next
    }

    pub(crate) fn side(&self, kind: RegionKind) -> &BatchSide {
        &self.sides[side(kind)]
    }

    pub(crate) fn side_mut(&mut self, kind: RegionKind) -> &mut BatchSide {
        &mut self.sides[side(kind)]
    }

    /// Appends a record of known length; `write` fills its payload.
    pub(crate) fn append(
        &mut self,
        kind: RegionKind,
        length: usize,
        write: impl FnOnce(Csn, &mut [u8]),
    ) -> Appended {
        let csn = self.csn_next;
        let delta = u32::try_from(csn.0 - self.csn_first.0).expect("a batch has less than 2^32 records");
        let payload_length = u32::try_from(length).expect("a record is shorter than 4 GiB");
        let side = self.side_mut(kind);
        let space = record_space(length);
        side.grow(side.payload_bytes + space);
        let begin = FRAME_HEADER_BYTES + side.payload_bytes;
        let record = &mut side.buffer.bytes_mut()[begin..begin + space];
        write(csn, &mut record[RECORD_HEADER_BYTES..][..length]);
        frame_record(record, payload_length, delta);
        side.payload_bytes += space;
        side.records += 1;
        self.csn_next = csn.next();
        let offset = u32::try_from(begin + RECORD_HEADER_BYTES).expect("a frame is shorter than 4 GiB");
        Appended { csn, kind, offset, length: payload_length }
    }

    /// The payload of a record of this batch.
    pub(crate) fn payload(&self, appended: &Appended) -> &[u8] {
        assert!(
            self.csn_first <= appended.csn && appended.csn < self.csn_next,
            "{} is not in the batch that is filling",
            appended.csn
        );
        let begin = crate::check::index(u64::from(appended.offset));
        &self.side(appended.kind).buffer.bytes()[begin..][..crate::check::index(u64::from(appended.length))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_numbers_are_dense_over_both_logs_and_payloads_read_back() {
        let mut batch = Batch::new(Csn(5), LogBuffer::heap(4096), LogBuffer::heap(4096));
        let fill = |text: &'static [u8]| move |_, bytes: &mut [u8]| bytes.copy_from_slice(text);
        let a = batch.append(RegionKind::Extent, 5, fill(b"value"));
        let b = batch.append(RegionKind::Node, 4, fill(b"leaf"));
        let c = batch.append(RegionKind::Extent, 10_000, |csn, bytes| {
            assert_eq!(csn, Csn(7));
            bytes.fill(9);
        });
        assert_eq!((a.csn, b.csn, c.csn), (Csn(5), Csn(6), Csn(7)));
        assert_eq!(batch.payload(&a), b"value");
        assert_eq!(batch.payload(&b), b"leaf");
        assert_eq!(batch.payload(&c), &[9; 10_000]);
        assert_eq!(batch.payload(&c).as_ptr() as usize % 8, 0);
        assert_eq!(batch.side(RegionKind::Extent).frame_bytes(), 12288);
    }
}
