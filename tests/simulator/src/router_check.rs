//! Whether the router leads where it says, once nothing is under way: each of its entries to a meganode that
//! begins at or below the entry's key. A client asks the server where the router misleads it, so no answer
//! would show it.

use std::collections::BTreeMap;

use cell_pair::Pair;
use cell_terms::PairId;
use cell_tree::LeafSnapshot;

use crate::model::{Broken, broken};
use crate::world::World;

impl World {
    /// Looks at each entry of the router, if all pairs are served and no split or merge is under way. Whether
    /// it did.
    ///
    /// # Errors
    /// One leads elsewhere.
    pub(crate) fn look_at_router(&self) -> Result<bool, Broken> {
        let pairs: Vec<&Pair> = self.nodes.iter().flat_map(|node| node.pairs()).collect();
        let is_quiet = |pair: &&Pair| {
            let table = pair.split_table();
            table.sources().next().is_none() && table.targets().next().is_none()
        };
        let root = pairs.iter().find(|pair| pair.id() == PairId(1));
        let Some((root, router)) = root.and_then(|root| Some((root, root.router()?))) else {
            return Ok(false);
        };
        // A pair that was recovered just now may not have come to its worker.
        let is_here = |id: PairId| pairs.iter().any(|pair| pair.id() == id);
        if !self.owners.pairs().all(is_here) || !pairs.iter().all(is_quiet) {
            return Ok(false);
        }
        let mut begins = BTreeMap::new();
        for pair in &pairs {
            let meganodes = pair.fences().map_err(broken)?;
            begins.extend(meganodes.into_iter().map(|(slot, fences)| (pair.pointer(slot), fences.low)));
        }
        let (meganode, mut leaf) = (root.meganode(router), LeafSnapshot::new());
        meganode.leaf_first(&mut leaf).map_err(broken)?;
        loop {
            for (key, entry) in leaf.iter() {
                let key = if key == [0] { &[][..] } else { key };
                let low = begins.get(&entry.meganode());
                if low.is_none_or(|low| **low > *key) {
                    let to = entry.meganode();
                    return Err(broken(format_args!("the router leads {key:x?} to {to}, from {low:x?} on")));
                }
            }
            if !meganode.leaf_after(&mut leaf).map_err(broken)? {
                return Ok(true);
            }
        }
    }
}
