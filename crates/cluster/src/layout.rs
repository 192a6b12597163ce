//! How the key space is spread over the first pairs: written once, when the table is empty, and never
//! changed. What a pair begins with follows from it alone, so that a recovery without a checkpoint makes the
//! same again.

use cell_terms::{PairId, SlotIndex};
use serde::{Deserialize, Serialize};

use crate::number;

/// Where the layout lies.
pub(crate) const KEY_LAYOUT: &str = "cluster/layout";
/// What keys are expected to begin with, in byte order.
const FIRST_BYTES: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A range of keys and the meganode that begins with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutRange {
    /// The lowest key, which is the meganode's low fence; empty for the first.
    pub low: String,
    /// The pair.
    #[serde(with = "number")]
    pub pair: PairId,
    /// The slot of its node region.
    #[serde(with = "number")]
    pub slot: SlotIndex,
}

/// The ranges, in key order, without a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    ranges: Vec<LayoutRange>,
}

impl Layout {
    /// One range of all keys: what there is where nobody laid anything out.
    #[must_use]
    pub fn single() -> Layout {
        Layout::new(1, Vec::new())
    }

    /// Ranges that begin at these keys, the first one below all of them, dealt out to so many pairs.
    #[must_use]
    pub fn new(pairs: u32, mut lows: Vec<String>) -> Layout {
        lows.push(String::new());
        lows.sort_unstable();
        lows.dedup();
        let pairs = pairs.max(1);
        let place = |at: u32| (PairId(at % pairs + 1), SlotIndex(at / pairs));
        let ranges = (0u32..).zip(lows).map(|(at, low)| {
            let (pair, slot) = place(at);
            LayoutRange { low, pair, slot }
        });
        Layout { ranges: ranges.collect() }
    }

    /// So many ranges a pair, evenly over the alphanumerics.
    #[must_use]
    pub fn even(pairs: u32, ranges_each: u32) -> Layout {
        let bytes = FIRST_BYTES.len();
        let count = usize::try_from(pairs.max(1) * ranges_each.max(1)).unwrap_or(1);
        let low = |at: usize| {
            let nth = at * bytes * bytes / count;
            let (first, second) = (nth / bytes, nth % bytes);
            // One byte is enough to separate so few ranges.
            let length = if count <= bytes || second == 0 { 1 } else { 2 };
            let text = [FIRST_BYTES[first], FIRST_BYTES[second]];
            text[..length].iter().map(|byte| char::from(*byte)).collect()
        };
        Layout::new(pairs, (1..count).map(low).collect())
    }

    /// The ranges, in key order.
    #[must_use]
    pub fn ranges(&self) -> &[LayoutRange] {
        &self.ranges
    }

    /// The pairs that begin with ranges: the first ones.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        self.ranges.iter().map(|range| range.pair.0).max().unwrap_or(0)
    }

    /// Slots that the pair with the most ranges begins with, the router's among them.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        let leaves = self.ranges.iter().map(|range| range.slot.0 + 1).max().unwrap_or(0);
        self.router().map_or(leaves, |router| leaves.max(router.0 + 1))
    }

    /// The slot of the first pair that holds the router; none if there is one range.
    #[must_use]
    pub fn router(&self) -> Option<SlotIndex> {
        let of_first = self.ranges.iter().filter(|range| range.pair == PairId(1));
        let slot = of_first.map(|range| range.slot.0 + 1).max()?;
        (self.ranges.len() > 1).then_some(SlotIndex(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lows(layout: &Layout) -> Vec<&str> {
        layout.ranges().iter().map(|range| range.low.as_str()).collect()
    }

    #[test]
    fn even_ranges_are_dealt_round_robin_by_first_byte() {
        let layout = Layout::even(3, 4);
        assert_eq!(lows(&layout), ["", "5", "A", "F", "K", "P", "V", "a", "f", "k", "p", "u"]);
        let places = layout.ranges().iter().map(|range| (range.pair.0, range.slot.0)).take(5);
        assert_eq!(places.collect::<Vec<_>>(), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)]);
        assert_eq!((layout.pairs(), layout.router(), layout.slots_max()), (3, Some(SlotIndex(4)), 5));
    }

    #[test]
    fn even_most_nodes_have_ranges_of_their_own() {
        let layout = Layout::even(64, 4);
        assert_eq!((layout.ranges().len(), layout.pairs()), (256, 64));
        assert!(lows(&layout).is_sorted());
    }

    #[test]
    fn new_own_keys_are_sorted_and_begin_below_all() {
        let layout = Layout::new(2, ["m", "c", "m", ""].map(str::to_owned).to_vec());
        assert_eq!(lows(&layout), ["", "c", "m"]);
        assert_eq!(Layout::single().ranges().len(), 1);
        assert_eq!((Layout::single().router(), Layout::single().slots_max()), (None, 1));
    }

    #[test]
    fn layout_text_is_pinned() {
        let layout = Layout::new(2, vec!["c".to_owned()]);
        let text = r#"{"ranges":[{"low":"","pair":1,"slot":0},{"low":"c","pair":2,"slot":0}]}"#;
        assert_eq!(serde_json::to_string(&layout).unwrap(), text);
        assert_eq!(serde_json::from_str::<Layout>(text).unwrap(), layout);
    }
}
