//! The proof that a node which wants to join has the log root before it that the living nodes write to. The
//! id that lies in a log root does not show that: who copies one, or sets its disk back to a snapshot, has
//! the id as well.
//!
//! 1. A log root is copied, and then written to: what is acknowledged is not in the copy.
//! 2. A node starts over the copy, whose id is the cluster's, and joins.
//! 3. Another node dies, this one takes its pair over from the copy, and what was acknowledged since is lost.
//!
//! So the joining node makes a file of a new name in its log root, and a row that names it. Each member looks
//! for that file in its own log root, and the first one that knows writes whether it is there. Both rows hang
//! on the joining node's lease. A member of a version that does not know them passes them over.
//!
//! Nobody lists the rows: the joining node writes its own again until it has an answer, so that a member
//! whose watch is new sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::text::with_causes;
use cell_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::host::HostId;
use crate::member::{KEY_MEMBERS, MemberRow, Members};
use crate::number;
use crate::request::{KeyChange, KeyCondition, KeyValue, Transaction, TransactionOutcome};

/// Under which the rows lie.
const KEY_JOINING: &str = "joining/";
/// What the files' names begin with.
const FILE_PREFIX: &str = "joining-";
/// Digits of a lease, in hexadecimal.
const LEASE_DIGITS: usize = 16;

/// What a joining node asks the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootQuestion {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// The file that it has made in its log root.
    file: String,
}

/// What a member has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootAnswer {
    /// The member's node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Whether the file is in its log root.
    pub seen: bool,
}

/// How the proof stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootVerdict {
    /// There is nobody to ask, or the ids differ, which keeps the node out anyway.
    Unneeded,
    /// Members live, and none has answered yet.
    Unanswered,
    /// This node has the same log root.
    Seen,
    /// This node lives and has another one.
    Unseen(NodeId),
}

/// The questions and answers of a coordinator. Clones share it.
#[derive(Clone)]
pub struct RootProofs {
    coordinator: Arc<dyn Coordinator>,
}

impl RootQuestion {
    /// Of a node's life, with a random number.
    #[must_use]
    pub fn new(node: NodeId, lease: Incarnation, random: u64) -> RootQuestion {
        RootQuestion { node, file: format!("{FILE_PREFIX}{:016x}{random:016x}", lease.0) }
    }

    /// The file, right below the log root. None: the row names something that is no such file.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        RootQuestion::lease_of(&self.file).map(|_| self.file.as_str())
    }

    /// The life of a node that made the file with this name for a proof; none: it is no such file.
    #[must_use]
    pub fn lease_of(file: &str) -> Option<Incarnation> {
        let id = file.strip_prefix(FILE_PREFIX)?;
        let is_id = id.len() == 2 * LEASE_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lease = id.get(..LEASE_DIGITS).filter(|_| is_id)?;
        u64::from_str_radix(lease, 16).ok().map(Incarnation)
    }
}

impl RootProofs {
    /// Those that `coordinator` knows.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> RootProofs {
        RootProofs { coordinator }
    }

    /// Asks, or asks again.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`]; see [`Coordinator::call`].
    pub fn ask(&self, lease: Incarnation, question: &RootQuestion) -> Result<(), ClusterError> {
        let ask = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put_leased(
            question_key(lease),
            text(question),
            lease,
        );
        match self.coordinator.transact(ask)? {
            TransactionOutcome::Applied { .. } => Ok(()),
            TransactionOutcome::Refused { .. } => Err(ClusterError::LeaseEnded { lease }),
        }
    }

    /// Answers a question, unless somebody has, or nobody asks any more: whether this was the answer.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn answer(
        &self,
        lease: Incarnation,
        question: &RootQuestion,
        answer: RootAnswer,
    ) -> Result<bool, ClusterError> {
        let answer = Transaction::new()
            .when(KeyCondition::Value { key: question_key(lease), value: text(question) })
            .when(KeyCondition::Absent { key: answer_key(lease) })
            .put_leased(answer_key(lease), text(&answer), lease);
        let outcome = self.coordinator.transact(answer)?;
        Ok(matches!(outcome, TransactionOutcome::Applied { .. }))
    }

    /// How the proof of a joining node stands, over the log root of `host`.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn verdict(&self, joining: &MemberRow, host: Option<HostId>) -> Result<RootVerdict, ClusterError> {
        // Whose row does not read may be anybody.
        let is_other = |row: &KeyValue| {
            parse::<MemberRow>("a member", &row.value).map_or(true, |row| row.node != joining.node)
        };
        if !self.coordinator.list(KEY_MEMBERS)?.entries.iter().any(is_other) {
            return Ok(RootVerdict::Unneeded);
        }
        let members = Members::new(self.coordinator.clone());
        let here = host.map(|host| format!("{:032x}", host.log_root()));
        let cluster = members.terms()?.and_then(|terms| terms.log_root);
        if here.zip(cluster).is_some_and(|(here, cluster)| here != cluster) {
            return Ok(RootVerdict::Unneeded);
        }
        let Some(entry) = self.coordinator.read(&answer_key(joining.incarnation))? else {
            return Ok(RootVerdict::Unanswered);
        };
        let RootAnswer { node, seen } = parse("an answer to a joining node", &entry.value)?;
        let is_proven = seen || planted(Mutant::RootUnproven);
        Ok(if is_proven { RootVerdict::Seen } else { RootVerdict::Unseen(node) })
    }

    /// Takes question and answer away.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn end(&self, lease: Incarnation) -> Result<(), ClusterError> {
        let end = Transaction::new().delete(question_key(lease)).delete(answer_key(lease));
        self.coordinator.transact(end).map(drop)
    }

    /// Whether this life of a node has ended: what it has left in the log root is nobody's.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn has_ended(&self, lease: Incarnation) -> Result<bool, ClusterError> {
        Ok(self.coordinator.living_lease(lease)?.is_none())
    }
}

fn question_key(lease: Incarnation) -> String {
    format!("{KEY_JOINING}{:016x}", lease.0)
}

fn answer_key(lease: Incarnation) -> String {
    format!("{}/answer", question_key(lease))
}

/// Takes a change of a question in. One that does not read is answered by nobody.
pub(crate) fn take(questions: &mut BTreeMap<Incarnation, RootQuestion>, change: &KeyChange) {
    let id = change.key.strip_prefix(KEY_JOINING).filter(|id| id.len() == LEASE_DIGITS);
    let Some(lease) = id.and_then(|id| u64::from_str_radix(id, 16).ok()).map(Incarnation) else { return };
    questions.remove(&lease);
    let Some(entry) = &change.value else { return };
    match parse("what a joining node asks", &entry.value) {
        Ok(question) => drop(questions.insert(lease, question)),
        Err(error) => {
            let why = with_causes(&error);
            tracing::debug!(key = change.key, why, "what a joining node asks does not read: it is skipped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_proof_texts_are_pinned() {
        let question = RootQuestion::new(NodeId(5), Incarnation(9), 10);
        let written = r#"{"node":5,"file":"joining-0000000000000009000000000000000a"}"#;
        assert_eq!(text(&question), written);
        assert_eq!(serde_json::from_str::<RootQuestion>(written).unwrap(), question);
        let answer = RootAnswer { node: NodeId(0), seen: true };
        assert_eq!(text(&answer), r#"{"node":0,"seen":true}"#);
        assert_eq!(serde_json::from_str::<RootAnswer>(r#"{"node":0,"seen":true}"#).unwrap(), answer);
        assert_eq!(question_key(Incarnation(9)), "joining/0000000000000009");
        assert_eq!(answer_key(Incarnation(9)), "joining/0000000000000009/answer");
    }

    #[test]
    fn file_of_a_question_is_one_of_its_own_kind_right_below_the_log_root() {
        let question = RootQuestion::new(NodeId(5), Incarnation(9), u64::MAX);
        assert_eq!(question.file().and_then(RootQuestion::lease_of), Some(Incarnation(9)));
        for file in ["", "joining-", "log-root-id", "joining-../../etc/passwd", "joining-0000000000000009"] {
            assert_eq!(RootQuestion { file: file.to_owned(), ..question.clone() }.file(), None, "{file}");
        }
    }
}
