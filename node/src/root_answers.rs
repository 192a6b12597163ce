//! What a member answers to nodes that want to join: whether what they have made in their log root is in its
//! own, where its logs are. A core but for coordinator and storage, which it is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{Coordinator, RootAnswer, RootProofs, RootQuestion};
use cell_terms::{Incarnation, NodeId};
use cell_wal::storage::Access;
use cell_wal::{Errno, Storage};

use crate::membership::MembershipOptions;

/// A file system may keep for a while that a name was not there. A file that is not seen for so long is not
/// there.
const UNSEEN_NS: u64 = 3_000_000_000;

/// See the module's text.
pub(crate) struct RootAnswers {
    proofs: RootProofs,
    own: Incarnation,
    node: NodeId,
    /// Each question that is there, and since when it is looked into; none: it is answered.
    asked: BTreeMap<Incarnation, Option<u64>>,
}

impl RootAnswers {
    /// Of this member.
    pub(crate) fn new(coordinator: Arc<dyn Coordinator>, options: MembershipOptions) -> RootAnswers {
        let MembershipOptions { incarnation: own, node, .. } = options;
        RootAnswers { proofs: RootProofs::new(coordinator), own, node, asked: BTreeMap::new() }
    }

    /// Answers what can be answered by now.
    pub(crate) fn look(
        &mut self,
        questions: &BTreeMap<Incarnation, RootQuestion>,
        storage: &dyn Storage,
        now_ns: u64,
    ) {
        self.asked.retain(|joining, _| questions.contains_key(joining));
        for (joining, question) in questions.iter().filter(|(joining, _)| **joining != self.own) {
            let asked = self.asked.entry(*joining).or_insert(Some(now_ns));
            let Some(since_ns) = *asked else { continue };
            let waited_ns = now_ns.saturating_sub(since_ns);
            let Some(seen) = sees(storage, question).filter(|seen| *seen || waited_ns >= UNSEEN_NS) else {
                continue;
            };
            match self.proofs.answer(*joining, question, RootAnswer { node: self.node, seen }) {
                Ok(is_answer) => {
                    *asked = None;
                    if is_answer && !seen {
                        tracing::warn!(
                            node = question.node.0,
                            file = question.file(),
                            "a node that wants to join has another log root, or a copy of this one"
                        );
                    }
                }
                // Each further one would take its whole time, too; the next look asks again.
                Err(error) => {
                    tracing::debug!(%error, "a joining node is not answered just now");
                    return;
                }
            }
        }
    }
}

/// Whether the file is there; none: nobody can tell.
fn sees(storage: &dyn Storage, question: &RootQuestion) -> Option<bool> {
    match storage.open(question.file()?, Access::Read) {
        Ok(_) => Some(true),
        Err(error) if error.errno == Errno::ENOENT => Some(false),
        Err(error) => {
            tracing::debug!(%error, "what a joining node has made in its log root cannot be looked for");
            None
        }
    }
}
