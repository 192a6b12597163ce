//! How a node that wants to join proves that its log root is the one that the living nodes write to, and no
//! copy of it: it makes a file there, and waits until a member has looked for it in its own.

use std::sync::Arc;

use cell_cluster::{Coordinator, HostId, MemberRow, RootProofs, RootQuestion, RootVerdict};
use cell_wal::storage::Access;
use cell_wal::{RealStorage, Storage, StorageError, WalError};

use crate::error::NodeError;

/// For so long an answer is waited for while others live. Then the node joins without: the others may be of
/// an earlier version, which answers nobody, and one that hangs must not keep a cluster from being started
/// again.
const ANSWER_NS: u64 = 10_000_000_000;
/// The same for a log root that was proven before. It is longer than a member takes to say that it does not
/// see the file.
const KNOWN_ANSWER_NS: u64 = 5_000_000_000;
/// Between two questions no more counts: the disk, the coordinator or the machine stood still.
const COUNTED_NS: u64 = 1_000_000_000;

/// See the module's text. Times are the caller's.
pub(crate) struct RootProof {
    proofs: RootProofs,
    joining: MemberRow,
    question: RootQuestion,
    /// The file was made.
    made: bool,
    /// Whether there is a file by which it can be proven; none: that was not tried.
    can_prove: Option<bool>,
    /// When was asked last; none: the attempt before has failed.
    asked_ns: Option<u64>,
    /// For how long an answer was waited for, and how long that is done.
    waited_ns: u64,
    patience_ns: u64,
    /// It was seen, or is not waited for any longer.
    settled: bool,
    /// It was seen.
    proven: bool,
}

impl RootProof {
    /// Of a node that is to be this member, with a random number.
    pub(crate) fn new(coordinator: Arc<dyn Coordinator>, joining: MemberRow, random: u64) -> RootProof {
        let question = RootQuestion::new(joining.node, joining.incarnation, random);
        let proofs = RootProofs::new(coordinator);
        RootProof {
            proofs,
            joining,
            question,
            made: false,
            can_prove: None,
            asked_ns: None,
            waited_ns: 0,
            patience_ns: ANSWER_NS,
            settled: false,
            proven: false,
        }
    }

    /// By its name the log root is one that was proven before. So it is if its disk was set back to a
    /// snapshot: it is asked all the same, and waited for less long beside nodes that have died.
    pub(crate) fn known(&mut self) {
        self.patience_ns = KNOWN_ANSWER_NS;
    }

    /// Whether a member has seen it.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Takes the proof a step further. Where nothing is in the way the node may join.
    ///
    /// # Errors
    /// [`NodeError::LogRootUnanswered`]: call it again. [`NodeError::LogRootUnseen`]: the node must not join.
    /// Others: the coordinator's, or the disk's.
    pub(crate) fn step(
        &mut self,
        storage: &RealStorage,
        host: Option<HostId>,
        now_ns: u64,
    ) -> Result<(), NodeError> {
        if self.settled {
            return Ok(());
        }
        let lease = self.joining.incarnation;
        let asked_ns = self.asked_ns.take(); // what fails below leaves none
        match self.proofs.verdict(&self.joining, host)? {
            RootVerdict::Unneeded => {}
            RootVerdict::Seen => (self.settled, self.proven) = (true, true),
            RootVerdict::Unseen(by) => {
                let file = storage.absolute(self.question.file().unwrap_or_default());
                return Err(NodeError::LogRootUnseen { by, file: file.display().to_string() });
            }
            RootVerdict::Unanswered => {
                if self.can_prove.is_none() {
                    self.can_prove = Some(self.make_file(storage)?);
                }
                let passed_ns = asked_ns.map_or(0, |asked| now_ns.saturating_sub(asked));
                self.waited_ns += passed_ns.min(COUNTED_NS);
                self.settled = self.can_prove == Some(false) || self.waited_ns >= self.patience_ns;
                if !self.settled {
                    self.proofs.ask(lease, &self.question)?;
                    self.asked_ns = Some(now_ns);
                    return Err(NodeError::LogRootUnanswered);
                }
                tracing::warn!(
                    root = %storage.root().display(),
                    "no living node has said whether this node has the cluster's log root: it joins without \
                     that proof"
                );
            }
        }
        Ok(())
    }

    /// Whether there is a file. On a disk that is full there is none.
    fn make_file(&mut self, storage: &RealStorage) -> Result<bool, WalError> {
        let (Some(file), made) = (self.question.file(), &mut self.made) else { return Ok(false) };
        let mut make = || -> Result<(), StorageError> {
            storage.check_root()?;
            drop(storage.open(file, Access::Create)?);
            *made = true;
            storage.sync_folder("")
        };
        match make() {
            Ok(()) => Ok(true),
            Err(error) if error.errno.is_shortage() => {
                tracing::warn!(%error, "the log root cannot be proven to be the cluster's");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes away what the proof has left, and what nodes have left that ended before they could.
    pub(crate) fn end(&self, storage: &RealStorage) {
        if !self.made {
            return;
        }
        if let Err(error) = self.proofs.end(self.joining.incarnation) {
            tracing::debug!(%error, "what was asked for the proof stays until the lease ends");
        }
        let names = storage.list("").unwrap_or_default();
        for name in names {
            let Some(lease) = RootQuestion::lease_of(&name) else { continue };
            if (lease == self.joining.incarnation || self.proofs.has_ended(lease).unwrap_or(false))
                && let Err(error) = storage.unlink(&name)
            {
                tracing::debug!(%error, "a file of a proof is left over"); // its name is no log's
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cell_cluster::{
        ClusterTerms, Joining, LeaseTerms, Members, RootAnswer, Sim, Transaction, Watch, boottime_ns,
    };
    use cell_terms::{Durability, Incarnation, NodeId};
    use cell_wal::LogRoot;

    use super::*;
    use crate::membership::MembershipOptions;
    use crate::root_answers::RootAnswers;

    const SECOND: u64 = 1_000_000_000;
    const LEASE_MS: u64 = 60_000;

    /// A node over a log root, of a cluster.
    struct Node {
        coordinator: Arc<dyn Coordinator>,
        root: LogRoot,
        row: MemberRow,
        watch: Watch,
    }

    impl Node {
        fn over(root: &Path, sim: &Sim, number: u32) -> Node {
            let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
            let row = MemberRow {
                incarnation: coordinator.grant(LEASE_MS).unwrap().lease,
                node: NodeId(number),
                fabric: format!("sim:{number}"),
                http: String::new(),
                pid: 1,
                memory_limit_bytes: 0,
            };
            let watch = Watch::new(coordinator.clone());
            Node { coordinator, root: LogRoot::open(root).unwrap(), row, watch }
        }

        fn host(&self) -> Option<HostId> {
            self.root.id.map(|id| HostId::new(1, id))
        }

        fn join(&self) {
            let lease = LeaseTerms::new(LEASE_MS, 0.05);
            let terms = ClusterTerms::new(1, self.host(), Durability::Sync, lease);
            let home = format!("/data/node-{}", self.row.node.0);
            let joining = Joining { terms, host: self.host(), home };
            Members::new(self.coordinator.clone()).join(&self.row, &joining).unwrap();
        }

        fn answers(&self) -> RootAnswers {
            let MemberRow { incarnation, node, .. } = self.row;
            let options = MembershipOptions { incarnation, node, joined_ns: 0, grace_ns: 0 };
            RootAnswers::new(self.coordinator.clone(), options)
        }

        fn proof(&self) -> RootProof {
            RootProof::new(self.coordinator.clone(), self.row.clone(), boottime_ns())
        }
    }

    /// A member looks once a second, and the joining node after it: how that ends, and after how many looks.
    fn ask(member: &mut Node, joining: &Node, mut proof: RootProof) -> (Result<(), NodeError>, u64) {
        let mut answers = member.answers();
        let storage = &joining.root.storage;
        let ended = (0..60).find_map(|second| {
            let now_ns = second * SECOND;
            let step = proof.step(storage, joining.host(), now_ns);
            if !matches!(step, Err(NodeError::LogRootUnanswered)) {
                return Some((step, second));
            }
            member.watch.look().unwrap();
            answers.look(member.watch.questions(), &member.root.storage, now_ns);
            None
        });
        proof.end(storage);
        ended.unwrap()
    }

    fn names(node: &Node) -> Vec<String> {
        let mut names = node.root.storage.list("").unwrap();
        names.sort_unstable();
        names
    }

    /// A copy has the id: a node joined over it, took a dead one's pair over, and served what was in it.
    #[test]
    fn proof_over_a_copy_of_the_log_root_is_refused_by_a_member_that_does_not_see_it() {
        let folder = tempfile::tempdir().unwrap();
        let (log, copy) = (folder.path().join("log"), folder.path().join("copy"));
        let sim = Sim::new(1);
        let mut member = Node::over(&log, &sim, 0);
        member.join();
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(log.join("log-root-id"), copy.join("log-root-id")).unwrap();
        let stale = Node::over(&copy, &sim, 5);
        assert_eq!(stale.host(), member.host(), "by its id it is the same");
        let file = copy.canonicalize().unwrap().join("joining-");
        // A disk that was set back to a snapshot has the name that was proven before.
        for was_proven in [false, true] {
            let mut proof = stale.proof();
            if was_proven {
                proof.known();
            }
            let (ended, _) = ask(&mut member, &stale, proof);
            let Err(error @ NodeError::LogRootUnseen { .. }) = ended else { panic!("{ended:?}") };
            let words = error.to_string();
            for part in ["node 0 does not see", file.to_str().unwrap(), "a copy or a snapshot"] {
                assert!(words.contains(part), "{words}");
            }
            assert_eq!(names(&stale), ["log-root-id"], "nothing is left");
            assert!(sim.link().list("joining/").unwrap().entries.is_empty());
        }
    }

    #[test]
    fn proof_over_the_clusters_log_root_is_seen_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new(1);
        let mut member = Node::over(folder.path(), &sim, 0);
        member.join();
        let joining = Node::over(folder.path(), &sim, 5);
        let left = RootQuestion::new(NodeId(7), Incarnation(u64::MAX), 1);
        std::fs::write(folder.path().join(left.file().unwrap()), "").unwrap();
        let (ended, looks) = ask(&mut member, &joining, joining.proof());
        // The member's first look starts its watch, and its second one sees what was asked again.
        assert!(ended.is_ok() && looks == 2, "{ended:?}, {looks}");
        assert_eq!(names(&joining), ["log-root-id"], "also of what another one has left");
        assert!(sim.link().list("joining/").unwrap().entries.is_empty());
        let own_successor = Node::over(folder.path(), &sim, 0);
        assert!(own_successor.proof().step(&own_successor.root.storage, own_successor.host(), 0).is_ok());
    }

    /// Members of an earlier version answer nobody, and one that hangs may be all that lives.
    #[test]
    fn proof_that_nobody_answers_is_waited_for_no_longer_than_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::new(1);
        let member = Node::over(folder.path(), &sim, 0);
        member.join();
        let joining = Node::over(folder.path(), &sim, 5);
        let mut proof = joining.proof();
        let mut step = |now_ns| proof.step(&joining.root.storage, joining.host(), now_ns);
        let seconds = ANSWER_NS / SECOND;
        assert!(matches!(step(0), Err(NodeError::LogRootUnanswered)));
        // The machine is suspended for a minute, say: that is no time in which somebody could have answered.
        for passed in 1..seconds {
            assert!(matches!(step((60 + passed) * SECOND), Err(NodeError::LogRootUnanswered)), "{passed} s");
        }
        assert!(step((60 + seconds) * SECOND).is_ok());
        // One that says so later does not end it.
        let answer = RootAnswer { node: NodeId(0), seen: false };
        let key = format!("joining/{:016x}/answer", joining.row.incarnation.0);
        let text = serde_json::to_string(&answer).unwrap();
        sim.link().transact(Transaction::new().put_leased(key, text, joining.row.incarnation)).unwrap();
        assert!(step((61 + seconds) * SECOND).is_ok());
        proof.end(&joining.root.storage);
        assert_eq!(names(&joining), ["log-root-id"]);
    }
}
