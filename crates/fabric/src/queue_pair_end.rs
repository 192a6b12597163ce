//! One end of an RDMA queue pair, as the hellos of a connection over `verbs` carry it in an extension.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | number of the queue pair |
//! | 4 | 4 | number of the first packet that it sends, 24 bits |
//! | 8 | 16 | GID of its port |
//! | 24 | 2 | LID of its port; zero on Ethernet |
//! | 26 | 1 | packet size: 1 to 5 for 256 to 4,096 bytes |
//! | 27 | 1 | reads that it answers at a time |
//! | 28 | 4 | bytes of a message slot, from 256 to 65,536 |
//! | 32 | 2 | message slots that it holds ready, from 4 to 1,024 |
//! | 34 | 2 | zero |

/// Bytes of the extension.
pub(crate) const QUEUE_PAIR_END_BYTES: usize = 36;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePairEnd {
    pub(crate) number: u32,
    pub(crate) packet: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
    pub(crate) packet_size: u8,
    pub(crate) reads_at_once: u8,
    pub(crate) slot_bytes: u32,
    pub(crate) slots: u16,
}

impl QueuePairEnd {
    pub(crate) fn encode(&self) -> [u8; QUEUE_PAIR_END_BYTES] {
        let mut bytes = [0; QUEUE_PAIR_END_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.packet.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.gid);
        bytes[24..26].copy_from_slice(&self.lid.to_le_bytes());
        bytes[26] = self.packet_size;
        bytes[27] = self.reads_at_once;
        bytes[28..32].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[32..34].copy_from_slice(&self.slots.to_le_bytes());
        bytes
    }

    /// None for what no end can be.
    pub(crate) fn decode(bytes: &[u8]) -> Option<QueuePairEnd> {
        let bytes: &[u8; QUEUE_PAIR_END_BYTES] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let end = QueuePairEnd {
            number: u32_at(0),
            packet: u32_at(4),
            gid: bytes[8..24].try_into().ok()?,
            lid: u16_at(24),
            packet_size: bytes[26],
            reads_at_once: bytes[27],
            slot_bytes: u32_at(28),
            slots: u16_at(32),
        };
        let fits = end.packet < 1 << 24
            && (1..=5).contains(&end.packet_size)
            && (256..=65_536).contains(&end.slot_bytes)
            && (4..=1_024).contains(&end.slots)
            && u16_at(34) == 0;
        fits.then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: QueuePairEnd = QueuePairEnd {
        number: 0x0102_0304,
        packet: 0x0a0b0c,
        gid: [7; 16],
        lid: 0x0506,
        packet_size: 5,
        reads_at_once: 16,
        slot_bytes: 4_096,
        slots: 16,
    };

    #[test]
    fn queue_pair_end_golden_bytes_round_trip() {
        let mut golden = vec![4, 3, 2, 1, 0x0c, 0x0b, 0x0a, 0];
        golden.extend_from_slice(&[7; 16]);
        golden.extend_from_slice(&[6, 5, 5, 16, 0, 16, 0, 0, 16, 0, 0, 0]);
        assert_eq!(END.encode().to_vec(), golden);
        assert_eq!(QueuePairEnd::decode(&golden), Some(END));
    }

    #[test]
    fn queue_pair_end_that_cannot_be_is_refused() {
        let good = END.encode();
        assert_eq!(QueuePairEnd::decode(&good[1..]), None);
        for (at, value) in [(7, 1), (26, 0), (26, 6), (29, 0), (31, 1), (32, 1), (33, 9), (35, 1)] {
            let mut wrong = good;
            wrong[at] = value;
            assert_eq!(QueuePairEnd::decode(&wrong), None, "{at}");
        }
    }
}
