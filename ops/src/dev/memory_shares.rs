//! What each node of a development cluster may hold in memory: anew as nodes come and go, because together
//! they have no more than the machine. Pure.

use cell_drill::wire::Refused;

use super::scale_wire::refuse;
use crate::output::number;
use crate::settings::{LEFT_PART, SUPERVISOR_BYTES};

/// See the module's text. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// What the nodes may hold together; none: nobody knows how much there is.
    all: Option<u64>,
    /// What was given for each; none: they share what there is.
    given: Option<u64>,
    /// What each needs at least.
    smallest: u64,
    /// What each keeps for something else than pairs.
    set_aside: u64,
}

impl MemoryShares {
    /// Nobody knows how much there is.
    #[cfg(test)]
    pub(crate) const UNKNOWN: MemoryShares =
        MemoryShares { all: None, given: None, smallest: 0, set_aside: 0 };

    /// By the limit that was given for each node (0: none), what the machine or the control group has, and
    /// what a node needs.
    pub(crate) fn new(given: u64, total: Option<u64>, smallest: u64) -> MemoryShares {
        let all = total.map(|total| (total - total / LEFT_PART).saturating_sub(SUPERVISOR_BYTES));
        MemoryShares { all, given: (given > 0).then_some(given), smallest, set_aside: 0 }
    }

    /// The same, where each node keeps so much for something else than pairs.
    pub(crate) fn with_set_aside(self, set_aside: u64) -> MemoryShares {
        MemoryShares { set_aside, ..self }
    }

    /// What each of so many nodes gets; none: what was given for it, or nobody knows how much there is.
    pub(crate) fn each(&self, nodes: u16) -> Option<u64> {
        let all = self.all.filter(|_| self.given.is_none());
        all.map(|all| (all / u64::from(nodes.max(1))).max(1))
    }

    /// What of its share each of so many nodes has for pairs.
    pub(crate) fn for_pairs(&self, nodes: u16) -> Option<u64> {
        self.each(nodes).map(|each| each.saturating_sub(self.set_aside))
    }

    /// Refuses so many nodes if there is not enough memory for them.
    pub(crate) fn check(&self, nodes: u16) -> Result<(), Refused> {
        let each = self.given.unwrap_or(self.smallest);
        let needed = each.saturating_mul(u64::from(nodes));
        let Some(all) = self.all.filter(|all| needed > *all) else { return Ok(()) };
        let (why, next) = match self.given {
            Some(_) => (
                "memory_limit_bytes gives each",
                "let there be fewer, or start `cell dev` again with a smaller --memory-limit-bytes",
            ),
            None => ("each needs", "let there be fewer, or use several machines"),
        };
        let what = format!(
            "there is not enough memory for {nodes} nodes: {why} {}, which is {} together, and there are {} \
             for nodes: enough for {}",
            number::bytes(each),
            number::bytes(needed),
            number::bytes(all),
            all / each.max(1),
        );
        Err(refuse(what, next))
    }

    /// Refuses so many nodes if one that is there holds more for its pairs than its share would have.
    pub(crate) fn check_held(&self, nodes: u16, node: u32, held: u64) -> Result<(), Refused> {
        let (Some(each), Some(room)) = (self.each(nodes), self.for_pairs(nodes)) else { return Ok(()) };
        if held <= room {
            return Ok(());
        }
        let what = format!(
            "there is not enough memory for {nodes} nodes: each would get {}, of which {} are for pairs, and \
             node {node} holds {}",
            number::bytes(each),
            number::bytes(room),
            number::bytes(held),
        );
        Err(refuse(what, "let there be fewer, use several machines, or remove entries first"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TOTAL: u64 = 16 * 1_632 * MIB;
    /// Of it, what is for nodes.
    const ALL: u64 = 15 * 1_632 * MIB - SUPERVISOR_BYTES;

    /// Each of five nodes had a third of the memory, and so had each of 64: 470 GiB of 24.
    #[test]
    fn each_of_more_nodes_has_less_and_together_they_have_what_there_is() {
        let shares = MemoryShares::new(0, Some(TOTAL), GIB);
        for nodes in [1, 3, 5, 23] {
            let each = shares.each(nodes).unwrap();
            assert!(each * u64::from(nodes) <= ALL && each * u64::from(nodes + 1) > ALL, "{nodes}");
            assert_eq!(shares.check(nodes), Ok(()));
        }
        assert_eq!(MemoryShares::new(0, None, GIB).each(3), None, "nobody knows");
        assert_eq!(MemoryShares::new(0, None, GIB).check(64), Ok(()));
    }

    #[test]
    fn more_nodes_than_there_is_memory_for_are_refused_with_the_arithmetic() {
        let refused = MemoryShares::new(0, Some(TOTAL), GIB).check(24).unwrap_err();
        for words in ["each needs 1.00 GiB", "24.0 GiB together", "23.8 GiB for nodes", "enough for 23"] {
            assert!(refused.what.contains(words), "{words}: {refused:?}");
        }
        let given = MemoryShares::new(5 * GIB, Some(TOTAL), GIB);
        assert_eq!((given.each(3), given.check(4)), (None, Ok(())));
        let refused = given.check(5).unwrap_err();
        assert!(refused.what.contains("memory_limit_bytes gives each 5.00 GiB"), "{refused:?}");
        assert!(refused.next.contains("--memory-limit-bytes"), "{refused:?}");
    }

    #[test]
    fn share_that_is_smaller_than_what_a_node_holds_is_refused() {
        let shares = MemoryShares::new(0, Some(TOTAL), GIB).with_set_aside(GIB);
        let room = ALL / 4 - GIB;
        assert_eq!((shares.for_pairs(4), shares.check_held(4, 7, room)), (Some(room), Ok(())));
        let refused = shares.check_held(4, 7, room + 1).unwrap_err();
        assert!(refused.what.contains("would get 5.96 GiB, of which 4.96 GiB are for pairs"), "{refused:?}");
        assert!(refused.what.contains("node 7 holds 4.96 GiB"), "{refused:?}");
        // Of a limit that was given nothing changes.
        assert_eq!(MemoryShares::new(GIB, Some(TOTAL), GIB).check_held(4, 7, u64::MAX), Ok(()));
    }
}
