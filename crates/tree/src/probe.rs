//! A key as a search carries it.

/// A key as a search carries it: its bytes, and its first sixteen as two numbers, because most windows are
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'k> {
    pub(crate) bytes: &'k [u8],
    /// Bytes 0..8, big-endian, zero padded.
    pub(crate) first: u64,
    /// Bytes 8..16, likewise.
    second: u64,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'k [u8]) -> Probe<'k> {
        match bytes.as_chunks::<8>().0 {
            [first, second, ..] => {
                Probe { bytes, first: u64::from_be_bytes(*first), second: u64::from_be_bytes(*second) }
            }
            _ => Probe::of_short(bytes),
        }
    }

    #[inline(never)]
    fn of_short(bytes: &'k [u8]) -> Probe<'k> {
        let mut halves = [[0; 8]; 2];
        for (half, bytes) in halves.iter_mut().zip(bytes.chunks(8)) {
            half[..bytes.len()].copy_from_slice(bytes);
        }
        Probe { bytes, first: u64::from_be_bytes(halves[0]), second: u64::from_be_bytes(halves[1]) }
    }

    /// Eight bytes from `at` on, big-endian, zero padded. `at` may be past the end.
    #[inline(always)]
    pub(crate) fn window(&self, at: usize) -> u64 {
        if at < 8 {
            let shift = 8 * at;
            return (self.first << shift) | ((self.second >> 1) >> (63 - shift));
        }
        self.far_window(at)
    }

    /// Fewer than eight bytes, little-endian.
    #[inline(never)]
    pub(crate) fn short_tail(rest: &[u8]) -> u64 {
        rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte))
    }

    #[inline(never)]
    fn far_window(&self, at: usize) -> u64 {
        let len = self.bytes.len();
        if at + 8 <= len
            && let Some(chunk) = self.bytes[at..].first_chunk::<8>()
        {
            return u64::from_be_bytes(*chunk);
        }
        match self.bytes.last_chunk::<8>() {
            // The last eight bytes, shifted until the one at `at` leads.
            Some(chunk) if at < len => u64::from_be_bytes(*chunk) << (8 * (8 - (len - at))),
            _ => 0,
        }
    }
}

/// The upper half of a word.
#[inline(always)]
pub(crate) fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Keeps the first `bytes` of a window.
#[inline(always)]
pub(crate) fn keep(window: u64, bytes: usize) -> u64 {
    if bytes >= 8 { window } else { window & !(u64::MAX >> (8 * bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_anywhere_is_zero_padded() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=bytes.len() {
            let probe = Probe::new(&bytes[..len]);
            for at in 0..48 {
                let mut expected = [0; 8];
                for (i, byte) in expected.iter_mut().enumerate() {
                    *byte = bytes[..len].get(at + i).copied().unwrap_or(0);
                }
                assert_eq!(probe.window(at), u64::from_be_bytes(expected), "{len} bytes from {at}");
            }
        }
    }

    #[test]
    fn keep_keeps_the_first_bytes() {
        assert_eq!(keep(u64::MAX, 0), 0);
        assert_eq!(keep(u64::MAX, 3), 0xFFFF_FF00_0000_0000);
        assert_eq!(keep(u64::MAX, 8), u64::MAX);
        assert_eq!(keep(u64::MAX, 9), u64::MAX);
    }
}
