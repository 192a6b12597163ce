//! Looks at one meganode: its levels, its slot, a tree node, the way to a key. The memory is read as the
//! copier of an image and a check read it, on the thread that asks: the worker does nothing for it. Each tree
//! node is seen as of one moment, the whole is not. A check of all meganodes ([`TreeLook::begin_check`]) is
//! the worker's.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cell_pair::ImageSubject;
use cell_protocol::MeganodeUse;
use cell_terms::{PairId, Pointer, SlotIndex};
use cell_tree::{Geometry, Meganode, MeganodeRole, NodeIndex, PathStep, Slot, TreeNodeState};

use crate::command::ControlEvent;
use crate::messages::{ToWorker, Work};
use crate::tree_check::TreeCheckRun;

/// How long the control thread may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Keys of a tree node that are returned at most.
const KEYS_MAX: usize = 64;

/// Why there is nothing to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// The node does not serve the pair.
    #[error("this node does not serve the pair")]
    NotServed,
    /// The slot holds nothing, or the tree node is not in use.
    #[error("there is none in that place")]
    NotInUse,
    /// The node is starting or stopping, or its coordinator keeps it waiting.
    #[error("the node is too busy to say where its memory is")]
    Busy,
    /// A writer was in the way as often as a reader tries, or the key has just moved.
    #[error("the tree changes all the time there")]
    Changing,
}

/// A meganode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeganodeView {
    /// What it holds.
    pub used: MeganodeUse,
    /// Keys at or above this.
    pub low: Vec<u8>,
    /// Keys below this; `None` for plus infinity.
    pub high: Option<Vec<u8>>,
    /// Where the keys behind it are.
    pub right: Option<(PairId, SlotIndex)>,
    /// Its levels, leaves first.
    pub levels: Vec<LevelView>,
    /// By tree node of the slot: its state, and whether it is a leaf.
    pub slots: Vec<(TreeNodeState, bool)>,
}

/// A level of a meganode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelView {
    /// Tree nodes.
    pub nodes: u64,
    /// Their entries.
    pub entries: u64,
    /// Tree nodes by fill: the first counts those below 10 %, the last those from 90 %.
    pub fill: [u64; 10],
}

/// A tree node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNodeView {
    /// It grows by two with each change.
    pub version: u64,
    /// Its level: 0 for leaves.
    pub level: u8,
    /// Keys at or above this.
    pub low: Vec<u8>,
    /// Keys below this; `None` for plus infinity.
    pub high: Option<Vec<u8>>,
    /// Entries.
    pub entries: usize,
    /// The first keys of the entries, 64 at most.
    pub keys: Vec<Vec<u8>>,
    /// Its right neighbour, if that is in the same meganode.
    pub right: Option<NodeIndex>,
}

/// See the module's text. It outlives the node, and then returns nothing.
#[derive(Clone, Debug)]
pub struct TreeLook {
    to_control: Sender<Work>,
    to_worker: ToWorker,
}

impl TreeLook {
    pub(crate) fn new(to_control: Sender<Work>, to_worker: ToWorker) -> TreeLook {
        TreeLook { to_control, to_worker }
    }

    /// Begins a check of all meganodes of the node. It goes on as long as the node serves.
    #[must_use]
    pub fn begin_check(&self) -> Arc<TreeCheckRun> {
        let run = Arc::<TreeCheckRun>::default();
        self.to_worker.event(ControlEvent::CheckTree(run.clone()));
        run
    }

    /// A meganode, all of its tree nodes: some milliseconds for a large one.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn meganode(&self, pair: PairId, slot: SlotIndex) -> Result<MeganodeView, LookError> {
        self.look(pair, slot, meganode)
    }

    /// A tree node that is in use.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn tree_node(
        &self,
        pair: PairId,
        slot: SlotIndex,
        node: NodeIndex,
    ) -> Result<TreeNodeView, LookError> {
        self.look(pair, slot, |looked| tree_node(looked, node))
    }

    /// The tree nodes by which a search in a meganode comes to a key.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn path_to(&self, pair: PairId, slot: SlotIndex, key: &[u8]) -> Result<Vec<PathStep>, LookError> {
        self.look(pair, slot, |looked| looked.meganode().path_to(key).map_err(|_| LookError::Changing))
    }

    fn look<T>(
        &self,
        pair: PairId,
        slot: SlotIndex,
        look: impl FnOnce(&Looked) -> Result<T, LookError>,
    ) -> Result<T, LookError> {
        let (answer, answered) = channel();
        self.to_control.send(Work::Look { pair, answer }).map_err(|_| LookError::NotServed)?;
        let subject = answered.recv_timeout(PATIENCE).map_err(|_| LookError::Busy)?;
        let subject = subject.ok_or(LookError::NotServed)?;
        let slot = Slot { region: subject.source.node.spec().id, index: slot };
        let end = subject.ends.end(slot.index);
        if end == NodeIndex(0) {
            return Err(LookError::NotInUse);
        }
        look(&Looked { subject, slot, end })
    }
}

/// A meganode that is looked at.
struct Looked {
    subject: ImageSubject,
    slot: Slot,
    /// One above the highest tree node that was ever in use: a look behind it would give the slot memory.
    end: NodeIndex,
}

impl Looked {
    fn geometry(&self) -> Geometry {
        self.subject.source.geometry
    }

    fn is_router(&self) -> bool {
        self.subject.ends.is_router(self.slot.index)
    }

    fn meganode(&self) -> Meganode<'_, cell_memory::Region> {
        let role = if self.is_router() { MeganodeRole::Router } else { MeganodeRole::Data };
        Meganode::new(&self.subject.source.node, self.geometry(), self.slot).with_role(role)
    }

    /// The place of a tree node that a right link names.
    fn place(&self, right: Pointer) -> Option<(Slot, NodeIndex)> {
        self.geometry().locate(right)
    }
}

fn meganode(looked: &Looked) -> Result<MeganodeView, LookError> {
    let (meganode, geometry) = (looked.meganode(), looked.geometry());
    let mut words = vec![0; geometry.node_words()];
    let root = meganode.copy_node(NodeIndex::ROOT, &mut words).map_err(|_| LookError::Changing)?;
    let used = match (looked.is_router(), root.state()) {
        (_, TreeNodeState::Free) => return Err(LookError::NotInUse),
        (true, _) => MeganodeUse::Router,
        (false, TreeNodeState::Valid) => MeganodeUse::Leaf,
        (false, TreeNodeState::Hidden) => MeganodeUse::Adopted,
    };
    let mut levels = vec![LevelView::default(); usize::from(root.level()) + 1];
    let mut slots = vec![(TreeNodeState::Free, false); geometry.nodes()];
    for (node, slot) in (0..looked.end.0).map(NodeIndex).zip(&mut slots) {
        let shape = meganode.node_shape(node).map_err(|_| LookError::Changing)?;
        *slot = (shape.state, shape.level == 0);
        let Some(level) = levels.get_mut(usize::from(shape.level)) else { continue };
        if shape.state.is_built() {
            level.nodes += 1;
            level.entries += shape.entries as u64;
            level.fill[(shape.used_bytes * 10 / geometry.node_bytes()).min(9)] += 1;
        }
    }
    let right = looked.place(root.right()).map(|(slot, _)| (slot.region.pair(), slot.index));
    Ok(MeganodeView { used, low: root.low(), high: root.high(), right, levels, slots })
}

fn tree_node(looked: &Looked, node: NodeIndex) -> Result<TreeNodeView, LookError> {
    if node >= looked.end {
        return Err(LookError::NotInUse);
    }
    let mut words = vec![0; looked.geometry().node_words()];
    let meganode = looked.meganode();
    let copy = meganode.copy_node(node, &mut words).map_err(|_| LookError::Changing)?;
    if !copy.state().is_built() {
        return Err(LookError::NotInUse);
    }
    let right = looked.place(copy.right()).filter(|(slot, _)| *slot == looked.slot);
    Ok(TreeNodeView {
        version: copy.words()[0],
        level: copy.level(),
        low: copy.low(),
        high: copy.high(),
        entries: copy.count(),
        keys: copy.keys(KEYS_MAX),
        right: right.map(|(_, node)| node),
    })
}
