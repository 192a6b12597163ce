//! Whether the nodes that are started are those that own the folder's pairs. At first a pair stays where it
//! is: a node that is new owns none until balance gives it some, and one that is left out loses its own to
//! the others.

use std::collections::BTreeMap;

use cell_cluster::PairRow;
use cell_terms::text::counted;

/// Who owns, or owned last, the pairs of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// How many pairs, by node; a node without one is not there.
    pairs: BTreeMap<u32, u64>,
}

/// Something to know before the nodes are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Its event.
    pub(crate) event: &'static str,
    /// Which nodes.
    pub(crate) nodes: Vec<u32>,
    /// What it is, one sentence.
    pub(crate) what: String,
    /// What can be done, one sentence.
    pub(crate) next: String,
}

impl Owners {
    /// Of the region table's rows; none at the first start.
    pub(crate) fn of(rows: &[PairRow]) -> Owners {
        let mut owners = Owners::default();
        for row in rows {
            *owners.pairs.entry(row.node.0).or_default() += 1;
        }
        owners
    }

    /// The last of so many nodes that owns a pair: a fault that is done to it shows something. At the first
    /// start that is the last one.
    pub(crate) fn last(&self, nodes: u16) -> u16 {
        let mut owning = self.pairs.keys().rev().filter_map(|node| u16::try_from(*node).ok());
        owning.find(|node| *node < nodes).unwrap_or(nodes - 1)
    }

    /// What does not fit so many nodes.
    pub(crate) fn misfits(&self, nodes: u16, allows_drills: bool) -> Vec<Misfit> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        [self.missing(nodes), self.idle(nodes, allows_drills)].into_iter().flatten().collect()
    }

    fn all(&self) -> u64 {
        self.pairs.values().sum()
    }

    /// Nodes with pairs that are not started.
    fn missing(&self, nodes: u16) -> Option<Misfit> {
        let missing: Vec<u32> = self.pairs.keys().copied().filter(|node| *node >= u32::from(nodes)).collect();
        let last = missing.last()?;
        let count = missing.iter().map(|node| self.pairs[node]).sum();
        let (was, it) = if missing.len() == 1 { ("is", "it") } else { ("are", "they") };
        let took = if count == 1 { "takes it over, and keeps it" } else { "takes them over, and keeps them" };
        let what = format!(
            "{} {was} not started: {it} owned {} of this folder's {}, and who is started {took}",
            named(&missing),
            counted(count, "pair", "pairs"),
            self.all(),
        );
        let them = if missing.len() == 1 { "it" } else { "them" };
        let next = format!(
            "--nodes {} starts {them}, too: a node that still owns pairs then recovers them itself",
            last + 1
        );
        Some(Misfit { event: "nodes_missing", nodes: missing, what, next })
    }

    /// Nodes with pairs that are not among so many processes of a machine, from the first one's number on.
    /// Another supervisor may start them.
    pub(crate) fn elsewhere(&self, first: u32, processes: u16) -> Option<Misfit> {
        let own = first..first + u32::from(processes);
        let elsewhere: Vec<u32> = self.pairs.keys().copied().filter(|node| !own.contains(node)).collect();
        let (last, one) = (elsewhere.last()?, elsewhere.len() == 1);
        let count = elsewhere.iter().map(|node| self.pairs[node]).sum();
        let what = format!(
            "{} {} not among these processes: {} owned {} of this store's {}, which those that run take over \
             unless another supervisor starts {}",
            named(&elsewhere),
            if one { "is" } else { "are" },
            if one { "it" } else { "they" },
            counted(count, "pair", "pairs"),
            self.all(),
            if one { "it" } else { "them" },
        );
        let next = match elsewhere[0] >= first {
            true => format!("--processes {} starts the last one, too", last - first + 1),
            false => format!("a `node_id` from {} on begins with the first one", elsewhere[0]),
        };
        Some(Misfit { event: "nodes_missing", nodes: elsewhere, what, next })
    }

    /// Nodes that are started and own nothing.
    fn idle(&self, nodes: u16, allows_drills: bool) -> Option<Misfit> {
        let idle: Vec<u32> = (0..u32::from(nodes)).filter(|node| !self.pairs.contains_key(node)).collect();
        if idle.is_empty() {
            return None;
        }
        let owning: Vec<u32> = self.pairs.keys().copied().collect();
        let verb = if idle.len() == 1 { "owns" } else { "own" };
        let what = format!(
            "{} {verb} no pair: this folder's {} of {}, and {}",
            named(&idle),
            if self.all() == 1 {
                "only pair is that".to_owned()
            } else {
                format!("{} pairs are those", self.all())
            },
            named(&owning),
            if self.all() == 1 {
                "the others get some once that has split, as it does when it grows"
            } else {
                "balance moves some, about a minute after the start, if there is enough to share"
            },
        );
        let balance = "`cell balance status` says what moves, or why nothing does".to_owned();
        let next = match owning.iter().find(|node| **node < u32::from(nodes)) {
            Some(owner) if allows_drills => {
                format!("{balance}; `cell drill run kill --node {owner}` has the others take its pairs over")
            }
            _ => balance,
        };
        Some(Misfit { event: "nodes_without_pairs", nodes: idle, what, next })
    }
}

/// `node 1`, `nodes 1 and 2`, `nodes 1, 2 and 5`.
pub(crate) fn named(nodes: &[u32]) -> String {
    match nodes {
        [one] => format!("node {one}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            format!("nodes {} and {last}", first.join(", "))
        }
        [] => "no node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(pairs: &[(u32, u64)]) -> Owners {
        Owners { pairs: pairs.iter().copied().collect() }
    }

    fn whats(owners: &Owners, nodes: u16) -> Vec<String> {
        owners.misfits(nodes, true).into_iter().map(|misfit| misfit.what).collect()
    }

    #[test]
    fn misfits_of_a_fresh_folder_and_of_the_same_nodes_are_none() {
        assert_eq!(Owners::default().misfits(3, true), []);
        assert_eq!(owners(&[(0, 1), (1, 2), (2, 1)]).misfits(3, true), []);
        assert_eq!((Owners::default().last(3), owners(&[(0, 2), (7, 1)]).last(3)), (2, 0));
    }

    #[test]
    fn misfits_of_more_nodes_name_those_without_a_pair_and_who_has_them() {
        let one = owners(&[(0, 1)]);
        assert_eq!(
            whats(&one, 3),
            ["nodes 1 and 2 own no pair: this folder's only pair is that of node 0, and the others get \
                 some once that has split, as it does when it grows"]
        );
        let misfit = |allows| one.misfits(3, allows).remove(0);
        assert!(
            misfit(true).next.ends_with("`cell drill run kill --node 0` has the others take its pairs over")
        );
        assert_eq!(misfit(false).next, "`cell balance status` says what moves, or why nothing does");
        assert_eq!((misfit(true).event, misfit(true).nodes), ("nodes_without_pairs", vec![1, 2]));
        let two = whats(&owners(&[(0, 1), (2, 4)]), 3);
        // A dump and a new folder were advised, though balance moves pairs a minute later.
        assert_eq!(
            two[0],
            "node 1 owns no pair: this folder's 5 pairs are those of nodes 0 and 2, and balance moves some, \
             about a minute after the start, if there is enough to share"
        );
    }

    /// A machine's processes with other numbers than before were started without a word.
    #[test]
    fn elsewhere_names_owners_that_are_not_among_a_machines_processes() {
        let all = owners(&[(4, 1), (5, 2), (6, 1)]);
        assert_eq!(all.elsewhere(4, 3), None);
        assert_eq!(Owners::default().elsewhere(0, 2), None);
        let fewer = all.elsewhere(4, 1).unwrap();
        assert_eq!((fewer.event, &fewer.nodes[..]), ("nodes_missing", &[5, 6][..]));
        assert_eq!(
            fewer.what,
            "nodes 5 and 6 are not among these processes: they owned 3 pairs of this store's 4, which those \
             that run take over unless another supervisor starts them"
        );
        assert_eq!(fewer.next, "--processes 3 starts the last one, too");
        let later = all.elsewhere(5, 2).unwrap();
        assert!(later.what.starts_with("node 4 is not among these processes: it owned 1 pair of"));
        assert_eq!(later.next, "a `node_id` from 4 on begins with the first one");
    }

    #[test]
    fn misfits_of_fewer_nodes_name_those_that_are_missing() {
        let misfits = owners(&[(0, 1), (1, 1), (2, 1)]).misfits(1, true);
        assert_eq!(misfits.len(), 1);
        assert_eq!(
            misfits[0].what,
            "nodes 1 and 2 are not started: they owned 2 pairs of this folder's 3, and who is started takes \
             them over, and keeps them"
        );
        assert!(misfits[0].next.starts_with("--nodes 3 starts them, too"), "{}", misfits[0].next);
        assert_eq!((misfits[0].event, &misfits[0].nodes[..]), ("nodes_missing", &[1, 2][..]));
        // Both at once: all pairs are a node's that is not started.
        let both = owners(&[(4, 2)]).misfits(2, true);
        assert_eq!(
            both.iter().map(|misfit| misfit.event).collect::<Vec<_>>(),
            ["nodes_missing", "nodes_without_pairs"]
        );
    }
}
