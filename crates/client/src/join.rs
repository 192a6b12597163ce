//! A multi-get whose keys are at several nodes: split by owner, each part an operation of its own, and joined
//! again in the order of the keys.

use crate::link_id::LinkId;
use crate::output::FoundValues;

/// What the parts of an operation have found.
#[derive(Debug)]
pub(crate) struct Join {
    /// By which connection each part goes.
    links: Vec<LinkId>,
    /// For each key, its part and its number there.
    positions: Vec<(u16, u16)>,
    found: Vec<Option<FoundValues>>,
    parts_left: usize,
}

impl Join {
    /// The parts of an operation whose keys go by these connections, key by key.
    pub(crate) fn new(targets: &[LinkId]) -> Join {
        let mut links = targets.to_vec();
        links.sort_unstable();
        links.dedup();
        let mut counts = vec![0u16; links.len()];
        let position = |target: &LinkId| {
            let part = links.binary_search(target).unwrap_or(0);
            counts[part] += 1;
            (u16::try_from(part).unwrap_or(u16::MAX), counts[part] - 1)
        };
        let positions = targets.iter().map(position).collect();
        Join { positions, found: vec![None; links.len()], parts_left: links.len(), links }
    }

    /// By which connection each part goes.
    pub(crate) fn links(&self) -> &[LinkId] {
        &self.links
    }

    /// Whether the key of this number is in a part.
    pub(crate) fn has_key(&self, part: usize, key: usize) -> bool {
        self.positions.get(key).is_some_and(|(of, _)| usize::from(*of) == part)
    }

    /// A part has found its values; those of all keys, in their order, once all parts have.
    pub(crate) fn take(&mut self, part: u16, found: FoundValues) -> Option<FoundValues> {
        let place = self.found.get_mut(usize::from(part)).filter(|place| place.is_none())?;
        *place = Some(found);
        self.parts_left -= 1;
        (self.parts_left == 0).then(|| self.joined())
    }

    fn joined(&self) -> FoundValues {
        let mut values = FoundValues::with_capacity(self.positions.len(), 0);
        for (part, at) in &self.positions {
            let found = self.found[usize::from(*part)].as_ref();
            // Each part was answered for each of its keys, or it would not have been taken for an answer.
            if let Some(found) = found.and_then(|found| found.get(usize::from(*at))) {
                values.push(found);
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use cell_protocol::Found;
    use cell_terms::Version;

    use super::*;

    fn values(of: &[u8]) -> FoundValues {
        let mut values = FoundValues::with_capacity(of.len(), of.len());
        let version = Version::default();
        of.chunks(1).for_each(|value| values.push(Found::Value { version, value }));
        values
    }

    #[test]
    fn take_of_the_last_part_gives_the_values_in_the_order_of_the_keys() {
        let targets = [7, 2, 7, 2, 2].map(LinkId);
        let mut join = Join::new(&targets);
        assert_eq!(join.links(), [LinkId(2), LinkId(7)]);
        let keys: Vec<usize> = (0..5).filter(|&key| join.has_key(1, key)).collect();
        assert_eq!(keys, [0, 2]);
        assert_eq!(join.take(1, values(b"ac")), None);
        assert_eq!(join.take(1, values(b"xy")), None, "a part counts once");
        assert_eq!(join.take(0, values(b"bde")), Some(values(b"abcde")));
    }
}
