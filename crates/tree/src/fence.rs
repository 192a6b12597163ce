//! Where a key is as seen from one node: below, within or beyond its fences.

use std::cmp::Ordering;

use cell_terms::Words;

use crate::layout::{FENCES, HIGH_INFINITE, WORD_BYTES};
use crate::probe::{Probe, keep};
use crate::view::{Header, View};

/// Where a key is as seen from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Within the fences. The key's eight bytes behind the prefix.
    Here(u64),
    /// At or above the high fence.
    Right,
    /// Below the low fence: the node was reused, or the reader came to the wrong tree.
    Below,
}

impl<W: Words + ?Sized, const B: usize> View<'_, W, B> {
    /// Compares the low fence with a key.
    pub(crate) fn compare_low(&self, header: &Header, key: &Probe<'_>) -> Ordering {
        self.compare(FENCES, header.low_len, key, 0)
    }

    /// Compares the high fence with a key.
    pub(crate) fn compare_high(&self, header: &Header, key: &Probe<'_>) -> Ordering {
        if header.high_len == HIGH_INFINITE {
            Ordering::Greater
        } else if self.begins_with_prefix(header.prefix, key) {
            self.compare(FENCES + header.low_len, header.high_stored(), key, header.prefix)
        } else {
            self.compare(FENCES, header.prefix, key, 0)
        }
    }

    /// Whether the key begins with what all keys of the node begin with.
    #[inline(always)]
    pub(crate) fn begins_with_prefix(&self, prefix: usize, key: &Probe<'_>) -> bool {
        if prefix >= 8 {
            return self.begins_with_long_prefix(prefix, key);
        }
        let difference = self.word(FENCES / WORD_BYTES).swap_bytes() ^ key.first;
        (difference >> 1) >> (63 - 8 * prefix) == 0 && prefix <= key.bytes.len()
    }

    #[inline(never)]
    fn begins_with_long_prefix(&self, prefix: usize, key: &Probe<'_>) -> bool {
        if key.bytes.len() < prefix {
            return false;
        }
        let mut difference = 0;
        for at in (0..prefix.min(B)).step_by(8) {
            let word = self.word((FENCES + at) / WORD_BYTES).swap_bytes();
            difference |= keep(word ^ key.window(at), prefix - at);
        }
        difference == 0
    }

    /// Where the key is as seen from this node.
    #[inline(always)]
    pub(crate) fn side(&self, header: &Header, key: &Probe<'_>) -> Side {
        if !self.begins_with_prefix(header.prefix, key) {
            return self.side_by_bytes(key);
        }
        let window = key.window(header.prefix);
        let low = keep(self.window(FENCES + header.prefix), header.low_len.saturating_sub(header.prefix));
        if window > low && self.is_below_high(header, window) {
            Side::Here(window)
        } else {
            self.side_by_bytes(key)
        }
    }

    /// Whether the high fence is above all keys with this window. If not, it may still be above the one.
    #[inline(always)]
    pub(crate) fn is_below_high(&self, header: &Header, window: u64) -> bool {
        header.high_len == HIGH_INFINITE
            || window < keep(self.window(FENCES + header.low_len), header.high_stored())
    }

    /// As [`View::side`], for what eight bytes cannot decide. (It reads the header again, so that the common
    /// way need not keep all of it in memory.)
    #[cold]
    #[inline(never)]
    pub(crate) fn side_by_bytes(&self, key: &Probe<'_>) -> Side {
        let header = self.header();
        if self.compare_low(&header, key) == Ordering::Greater {
            Side::Below
        } else if self.compare_high(&header, key) != Ordering::Greater {
            Side::Right
        } else {
            Side::Here(key.window(header.prefix))
        }
    }
}
