//! What a member found that looked at a pair's data and could not read it whole. One member's finding says
//! nothing for sure of the data: its mount, its way to the disk or its memory may be at fault. So it gives
//! the pair up and leaves the finding in the pair's row, and another member looks. Damage is believed when
//! two members found some.
//!
//! Findings count until the pair is served. Who alone could not read what another one read is named in the
//! row from then on, so that it can be warned of.

use std::collections::BTreeSet;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId, PairId};
use serde::{Deserialize, Serialize};

use crate::missing::Missing;
use crate::number;

/// Findings that a row keeps, the newest, one of each node; and as many of those that were refuted.
const FINDINGS_MAX: usize = 4;

/// A member looked at a pair's data and found damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The member.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// What it found.
    pub missing: Missing,
}

/// A finding of one member alone, after which another member read the same data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefutedFinding {
    /// What the one found.
    pub finding: Finding,
    /// The node of the other.
    #[serde(with = "number")]
    pub read_by: NodeId,
}

impl RefutedFinding {
    /// What is to be said of the finding's node, without a subject.
    #[must_use]
    pub fn words(&self, pair: PairId) -> String {
        let what = match self.finding.missing {
            Missing::Checkpoint { .. } => "checkpoint",
            Missing::Verification { .. } => "data",
            _ => "log",
        };
        format!(
            "could not read the {what} of pair {} that node {} read: look at its mount of the log root, then \
             restart it",
            pair.0, self.read_by.0
        )
    }
}

/// Adds a finding, in place of an earlier one of its node.
pub(crate) fn add(findings: &mut Vec<Finding>, new: Finding) {
    findings.retain(|old| old.node != new.node);
    findings.push(new);
    keep_newest(findings);
}

/// Whether two members found damage.
pub(crate) fn are_believed(findings: &[Finding]) -> bool {
    let alone = planted(Mutant::DamageBelievedAlone);
    findings.len() > 1 || (alone && !findings.is_empty())
}

/// A node serves the pair: what was found of it counts no more. Damage that several found has been mended
/// since; what one alone found was its own trouble.
pub(crate) fn settle(findings: &mut Vec<Finding>, refuted: &mut Vec<RefutedFinding>, reader: NodeId) {
    refuted.retain(|old| old.finding.node != reader);
    let found = std::mem::take(findings);
    if let [finding] = &found[..]
        && finding.node != reader
    {
        refuted.retain(|old| old.finding.node != finding.node);
        refuted.push(RefutedFinding { finding: finding.clone(), read_by: reader });
        keep_newest(refuted);
    }
}

fn keep_newest<T>(list: &mut Vec<T>) {
    list.drain(..list.len().saturating_sub(FINDINGS_MAX));
}

/// What was found, and by whom.
pub(crate) fn in_words(findings: &[Finding]) -> String {
    let mut found: Vec<(&Missing, BTreeSet<NodeId>)> = Vec::new();
    for Finding { node, missing, .. } in findings {
        match found.iter_mut().find(|(known, _)| *known == missing) {
            Some((_, nodes)) => _ = nodes.insert(*node),
            None => found.push((missing, BTreeSet::from([*node]))),
        }
    }
    let words = found.iter().map(|(what, nodes)| {
        let nodes: Vec<String> = nodes.iter().map(|node| format!("node {}", node.0)).collect();
        format!("{what} (found by {})", nodes.join(" and "))
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(node: u32, file: &str) -> Finding {
        let missing = Missing::Checkpoint { file: file.to_owned() };
        Finding { incarnation: Incarnation(u64::from(node) + 70), node: NodeId(node), missing }
    }

    fn nodes(findings: &[Finding]) -> Vec<u32> {
        findings.iter().map(|finding| finding.node.0).collect()
    }

    #[test]
    fn findings_are_one_of_each_node_and_the_newest() {
        let mut findings = Vec::new();
        for node in [1, 2, 1] {
            add(&mut findings, finding(node, "c"));
        }
        assert_eq!(nodes(&findings), [2, 1]);
        (3..=6).for_each(|node| add(&mut findings, finding(node, "c")));
        assert_eq!(nodes(&findings), [3, 4, 5, 6]);
    }

    #[test]
    fn damage_is_believed_of_two_nodes_and_not_of_one_twice() {
        let mut findings = Vec::new();
        assert!(!are_believed(&findings));
        for _ in 0..2 {
            add(&mut findings, finding(1, "c"));
            assert!(!are_believed(&findings));
        }
        add(&mut findings, finding(2, "c"));
        assert!(are_believed(&findings));
    }

    #[test]
    fn finding_of_one_alone_is_refuted_by_another_one_that_serves_the_pair() {
        let settled = |found: &[u32], before: Vec<RefutedFinding>, reader| {
            let mut findings = found.iter().map(|node| finding(*node, "c")).collect();
            let mut refuted = before;
            settle(&mut findings, &mut refuted, NodeId(reader));
            assert!(findings.is_empty());
            refuted
        };
        let refuted = settled(&[1], vec![], 2);
        assert_eq!(refuted, [RefutedFinding { finding: finding(1, "c"), read_by: NodeId(2) }]);
        assert_eq!(settled(&[], refuted.clone(), 3), refuted, "it stands");
        assert_eq!(settled(&[], refuted.clone(), 1), [], "the node itself reads the pair");
        assert_eq!(settled(&[1], vec![], 1), [], "it was mended");
        assert_eq!(settled(&[1, 2], vec![], 3), [], "it was mended, too");
        let again = settled(&[1], refuted, 3);
        assert_eq!(again, [RefutedFinding { finding: finding(1, "c"), read_by: NodeId(3) }], "one a node");
    }

    #[test]
    fn words_name_what_was_found_and_by_whom() {
        let found = [finding(4, "a"), finding(3, "b"), finding(1, "a")];
        let words = "the checkpoint a cannot be read whole (found by node 1 and node 4); \
                     the checkpoint b cannot be read whole (found by node 3)";
        assert_eq!(in_words(&found), words);
        let refuted = RefutedFinding { finding: finding(1, "a"), read_by: NodeId(2) };
        let words = refuted.words(PairId(3));
        let begin = "could not read the checkpoint of pair 3 that node 2 read: look at its mount";
        assert!(words.starts_with(begin), "{words}");
    }
}
