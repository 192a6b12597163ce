//! Whether etcd's history is the one that was seen before. One that was restored from a backup counts its
//! revisions from an earlier one on: then a row may be another one at the revision at which it was read, and
//! a transaction that is conditional on that would be carried out.
//!
//! A question that every member answers as of when it was asked is answered with a revision that is no lower
//! than any that was known before it was asked. Where it is lower, rows are gone that somebody has seen.
//!
//! An answer of another cluster of etcd is none. An endpoint that leads there, by a slip or by a name that
//! moved, shows other rows: a node that went by them would own what another one owns.

use cell_terms::mutant::{Mutant, planted};

use crate::providers::etcd::gateway::Header;
use crate::request::Revision;

/// What is known of the history, from answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    cluster_id: Option<u64>,
    revision: Revision,
    is_lost: bool,
}

impl History {
    /// What an answer is compared with: take it before asking.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// For good.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether an answer is of another cluster of etcd than those before.
    pub(super) fn is_of_another(&self, header: Header) -> bool {
        let is_other = self.cluster_id.is_some_and(|id| id != header.cluster_id);
        is_other && !planted(Mutant::OtherClusterBelieved)
    }

    /// Which cluster of etcd has answered; none: nobody has.
    pub(super) fn cluster_id(&self) -> Option<u64> {
        self.cluster_id
    }

    /// Nobody is left of the history that was seen.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Takes an answer in, asked for when `known` was known. Whether it is of the history that was seen.
    pub(super) fn observe(&mut self, known: Revision, header: Header) -> bool {
        let other = self.is_of_another(header);
        self.cluster_id.get_or_insert(header.cluster_id);
        if (other || header.revision < known) && !planted(Mutant::HistoryUnasked) {
            self.is_lost = true;
        }
        self.revision = self.revision.max(header.revision);
        !self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cluster_id: u64, revision: Revision) -> Header {
        Header { cluster_id, member_id: 1, revision }
    }

    /// Whether a history that goes back is known for another one, and stays so.
    fn restored_is_seen() -> bool {
        let mut history = History::default();
        assert!(history.observe(0, at(1, 100)));
        let known = history.revision();
        !history.observe(known, at(1, 90)) && !history.observe(known, at(1, 200)) && history.is_lost()
    }

    #[test]
    fn observe_an_answer_from_before_what_was_known_when_it_was_asked_for_is_another_history() {
        assert!(restored_is_seen());
        let mut history = History::default();
        assert!(history.observe(0, at(1, 100)));
        assert!(!history.observe(100, at(2, 300)), "another cluster answers");
    }

    /// Two questions, the first one's answer late.
    #[test]
    fn observe_answers_out_of_order_are_of_one_history() {
        let mut history = History::default();
        assert!(history.observe(0, at(1, 100)));
        let known = history.revision();
        assert!(history.observe(known, at(1, 120)) && history.observe(known, at(1, 110)));
        assert_eq!(history.revision(), 120);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_history_unasked_is_caught() {
        use cell_terms::mutant::{in_own_process, plant};
        in_own_process(|| {
            plant(Some(Mutant::HistoryUnasked));
            let caught = !restored_is_seen();
            plant(None);
            assert!(caught);
            println!("mutant {} caught by cell-cluster's history of etcd", Mutant::HistoryUnasked.name());
        });
    }
}
