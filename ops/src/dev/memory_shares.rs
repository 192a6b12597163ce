//! What each node of a development cluster may hold in memory: anew as nodes come and go, because together
//! they have no more than the machine. Pure.

use cell_drill::wire::Refused;

use super::scale_wire::refuse;
use crate::output::number;
use crate::settings::{LEFT_PART, SUPERVISOR_BYTES};

const MIB: u64 = 1 << 20;

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
    /// The same at most of one whose limit is below [`limit_step`] of the place.
    set_aside_below: [u64; LIMIT_STEPS],
}

/// Limits of nodes, each twice the one before: up to 64 TiB.
const LIMIT_STEPS: usize = 21;

fn limit_step(place: usize) -> u64 {
    (64 * MIB) << place
}

/// A cluster of which nodes are to leave, and whose others lack room for what those have. In bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shrinking {
    /// What each node that stays holds for its pairs.
    pub(crate) stay: Vec<u64>,
    /// The same of those that leave.
    pub(crate) leave: Vec<u64>,
    /// The largest pair of those that leave.
    pub(crate) largest: u64,
    /// What each may hold in memory now.
    pub(crate) limit: u64,
}

/// How a cluster can shrink that lacks room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShrinkHint {
    /// What there is, and what is needed.
    pub(crate) arithmetic: String,
    /// What to do.
    pub(crate) next: String,
}

/// What a drain wants free besides what a pair takes, for it to grow by: a part of that.
const GROWS_PART: u64 = 8;

fn grown(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / GROWS_PART)
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
}

impl Shrinking {
    /// For so much memory of each that stays the pairs of those that leave find room, in whatever order they
    /// come; none: none stays.
    fn for_pairs(&self) -> Option<u64> {
        let most = self.stay.iter().max()?;
        // One that fits nowhere is larger than what each has left.
        let largest = if self.stay.len() == 1 { 0 } else { grown(self.largest) };
        let even = self.all_grown().div_ceil(self.stay.len() as u64);
        Some(even.saturating_add(largest).max(*most))
    }

    /// What all those will hold that stay.
    fn all_grown(&self) -> u64 {
        sum(&self.stay).saturating_add(grown(sum(&self.leave)))
    }
}

impl MemoryShares {
    /// Nobody knows how much there is.
    #[cfg(test)]
    pub(crate) const UNKNOWN: MemoryShares =
        MemoryShares { all: None, given: None, smallest: 0, set_aside: 0, set_aside_below: [0; LIMIT_STEPS] };

    /// By the limit that was given for each node (0: none), what the machine or the control group has, and
    /// what a node needs.
    pub(crate) fn new(given: u64, total: Option<u64>, smallest: u64) -> MemoryShares {
        let all = total.map(|total| (total - total / LEFT_PART).saturating_sub(SUPERVISOR_BYTES));
        let given = (given > 0).then_some(given);
        MemoryShares { all, given, smallest, set_aside: 0, set_aside_below: [0; LIMIT_STEPS] }
    }

    /// The same, where each of so many nodes keeps so much of its limit for something else than pairs.
    pub(crate) fn with_set_aside(self, nodes: u16, of_limit: impl Fn(u64) -> u64) -> MemoryShares {
        let set_aside = self.each(nodes).map_or(0, &of_limit);
        let most = self.all.unwrap_or(u64::MAX / 2);
        let set_aside_below = std::array::from_fn(|place| of_limit((limit_step(place) - 1).min(most)));
        MemoryShares { set_aside, set_aside_below, ..self }
    }

    /// The limit of a node that is to have so much for pairs: what it sets aside grows with its limit.
    fn limit_for(&self, pairs: u64) -> u64 {
        let limits =
            (0..).zip(self.set_aside_below).map(|(place, aside)| (place, pairs.saturating_add(aside)));
        let fits = limits.clone().find(|(place, limit)| *limit < limit_step(*place));
        fits.or(limits.last()).map_or(pairs, |(_, limit)| limit)
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

    /// How a cluster can shrink that lacks room for it; none: more memory for each node does not help.
    pub(crate) fn shrink_hint(&self, of: &Shrinking) -> Option<ShrinkHint> {
        let needed = self.limit_for(of.for_pairs()?);
        if needed <= of.limit {
            return None;
        }
        let arithmetic = format!(
            "the nodes that leave hold {} for their pairs, an eighth of which is to be free to grow by, and \
             those that stay {}: each that stays needs a limit of {}, and has {}",
            number::bytes(sum(&of.leave)),
            number::bytes(sum(&of.stay)),
            number::bytes(needed),
            number::bytes(of.limit),
        );
        // A pair is at both of its nodes until it has moved.
        let together = of.all_grown().saturating_add(sum(&of.leave));
        if let Some(all) = self.all.filter(|all| needed.max(together) > *all) {
            let (together, all) = (number::bytes(together), number::bytes(all));
            let arithmetic = format!(
                "{arithmetic}; there are {all} for nodes, which take {together} until pairs have moved"
            );
            let next = "let more nodes stay, use several machines, or remove entries first".to_owned();
            return Some(ShrinkHint { arithmetic, next });
        }
        let next = format!(
            "let more nodes stay; or stop `cell dev`, start it with --nodes {} --memory-limit-bytes {}MiB, \
             which is what each may hold then, and scale again",
            of.stay.len() + of.leave.len(),
            needed.div_ceil(MIB),
        );
        Some(ShrinkHint { arithmetic, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let shares = MemoryShares::new(0, Some(TOTAL), GIB).with_set_aside(4, |_| GIB);
        let room = ALL / 4 - GIB;
        assert_eq!((shares.for_pairs(4), shares.check_held(4, 7, room)), (Some(room), Ok(())));
        let refused = shares.check_held(4, 7, room + 1).unwrap_err();
        assert!(refused.what.contains("would get 5.96 GiB, of which 4.96 GiB are for pairs"), "{refused:?}");
        assert!(refused.what.contains("node 7 holds 4.96 GiB"), "{refused:?}");
        // Of a limit that was given nothing changes.
        assert_eq!(MemoryShares::new(GIB, Some(TOTAL), GIB).check_held(4, 7, u64::MAX), Ok(()));
    }

    fn hint(stay: &[u64], leave: &[u64], largest: u64) -> Option<ShrinkHint> {
        let nodes = u16::try_from(stay.len() + leave.len()).unwrap();
        let shares = MemoryShares::new(0, Some(TOTAL), GIB).with_set_aside(nodes, |limit| limit / 16);
        let limit = shares.each(nodes).unwrap();
        shares.shrink_hint(&Shrinking { stay: stay.to_vec(), leave: leave.to_vec(), largest, limit })
    }

    /// It was said that the others lack room, and never how to come to one node.
    #[test]
    fn shrink_that_lacks_room_is_refused_with_the_limit_with_which_it_has_some() {
        let one = hint(&[6 * GIB], &[6 * GIB], GIB).unwrap();
        // Below 16 GiB a node sets a sixteenth aside, as all here do.
        let aside = (16 * GIB - 1) / 16;
        let needed = 6 * GIB + 6 * GIB + 6 * GIB / 8 + aside;
        let words = format!("--nodes 2 --memory-limit-bytes {}MiB", needed.div_ceil(MIB));
        assert!(one.next.contains(&words), "{one:?}");
        for words in ["leave hold 6.00 GiB", "that stay 6.00 GiB", "a limit of 13.7 GiB, and has 11.9 GiB"] {
            assert!(one.arithmetic.contains(words), "{words}: {one:?}");
        }
        // Of several none is so full that the largest pair does not fit.
        let two = hint(&[GIB, 5 * GIB], &[6 * GIB], 2 * GIB).unwrap();
        let needed = (6 * GIB + 6 * GIB + 6 * GIB / 8) / 2 + 2 * GIB + 2 * GIB / 8 + aside;
        let words = format!("--nodes 3 --memory-limit-bytes {}MiB", needed.div_ceil(MIB));
        assert!(two.next.contains(&words), "{two:?}");
    }

    /// It said three times as much: what a node sets aside that has the whole machine was counted.
    #[test]
    fn limit_of_a_small_cluster_on_a_large_machine_goes_by_what_small_nodes_set_aside() {
        let aside = |limit: u64| 50 * MIB + limit / 16;
        let shares = MemoryShares::new(300 * MIB, Some(TOTAL), MIB).with_set_aside(2, aside);
        let (stay, leave) = (vec![200 * MIB], vec![160 * MIB]);
        let of = Shrinking { stay, leave, largest: 160 * MIB, limit: 300 * MIB };
        let hint = shares.shrink_hint(&of).unwrap();
        // A node with 512 MiB at most sets 82 MiB aside.
        assert!(hint.next.contains("--nodes 2 --memory-limit-bytes 462MiB"), "{hint:?}");
        for pairs in [0, MIB, 100 * MIB, 5 * GIB, 20 * GIB] {
            let limit = shares.limit_for(pairs);
            assert!(limit - aside(limit).min(limit) >= pairs, "{pairs}: {limit} is enough");
        }
    }

    #[test]
    fn shrink_that_the_machine_has_no_memory_for_is_not_advised_to_take_more() {
        let hint = hint(&[9 * GIB], &[9 * GIB], GIB).unwrap();
        let words = "there are 23.8 GiB for nodes, which take 28.1 GiB until pairs have moved";
        assert!(hint.arithmetic.ends_with(words), "{hint:?}");
        assert!(!hint.next.contains("--memory-limit-bytes"), "{hint:?}");
        assert!(hint.next.contains("remove entries"), "{hint:?}");
    }

    /// A node has no room on its disk, say.
    #[test]
    fn shrink_that_more_memory_does_not_help_is_refused_without_a_word_of_it() {
        assert_eq!(hint(&[GIB], &[GIB], GIB), None);
        assert_eq!(hint(&[], &[GIB], GIB), None, "none would stay");
    }
}
