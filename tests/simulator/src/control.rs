//! The control thread and the checkpoint's thread, without threads: what `cell_node`'s control does with the
//! worker's commands, each some time after it was given; the checkpoint's copy goes on between the worker's
//! turns.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_cluster::{CheckpointRow, Tenure};
use cell_memory::Watermarks;
use cell_node::{
    CheckTarget, CheckpointCommand, Command, ControlEvent, SlotEnds, WorkerInput, check, check_targets,
};
use cell_recovery::image::{ImageBase, ImageCopy, ImageSource, WrittenImage};
use cell_recovery::remove_unneeded;
use cell_terms::{Csn, PairId};
use cell_tree::{Meganode, Slot};

use crate::model::{Broken, broken};
use crate::node::{News, Node};
use crate::plan::US;

/// Tree nodes that the copier takes between two turns of the worker, at most.
const NODES_AT_ONCE: u64 = 8;

/// An event that is on its way to the worker.
#[derive(Debug)]
enum Work {
    Command(Command),
    Event(ControlEvent),
}

struct Copying {
    pair: PairId,
    copy: ImageCopy<Arc<ImageSource>>,
    due_ns: u64,
}

/// A pair that is served.
pub(crate) struct ServedPair {
    pub(crate) tenure: Tenure,
    /// Its memory.
    pub(crate) source: Arc<ImageSource>,
    ends: Arc<SlotEnds>,
    /// The watermarks that were last seen: they only grow within an epoch.
    pub(crate) watermarks: Option<Watermarks>,
    written: Option<WrittenImage>,
}

/// What the control thread works with.
#[derive(Default)]
pub struct Control {
    /// The pairs, once they are served, by their numbers.
    pub(crate) pairs: Vec<ServedPair>,
    queue: VecDeque<(u64, Work)>,
    copying: Vec<Copying>,
    /// Touches after which the process dies once the next checkpoint has begun.
    dies_in_checkpoint: Option<(u64, bool)>,
    /// A checkpoint failed in the last step: the process may have died of it.
    ended_checkpoint: bool,
}

impl Control {
    /// The pair is served from here on.
    pub(crate) fn begin(&mut self, tenure: Tenure, source: Arc<ImageSource>, ends: Arc<SlotEnds>) {
        self.pairs.push(ServedPair { tenure, source, ends, watermarks: None, written: None });
    }

    fn pair(&mut self, pair: PairId) -> Option<&mut ServedPair> {
        self.pairs.iter_mut().find(|served| served.tenure.pair == pair)
    }

    /// Takes a command of the worker's, to be carried out at some time.
    pub(crate) fn push(&mut self, due_ns: u64, command: Command) {
        self.queue.push_back((due_ns, Work::Command(command)));
    }
}

impl Node {
    /// Whether a checkpoint is in progress, from the wish for it to its record in the table.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        let pairs = self.serving.worker().map(|worker| worker.snapshot().pairs).unwrap_or_default();
        pairs.iter().any(|pair| pair.checkpoint_running) || self.control.ended_checkpoint
    }

    /// Checks the tree nodes on the way to a key that was just written, if this node has it.
    ///
    /// # Errors
    /// They break a rule.
    pub fn check_path(&self, key: &[u8]) -> Result<(), Broken> {
        for pair in &self.control.pairs {
            let source = &pair.source;
            for index in pair.ends.used().filter(|slot| !pair.ends.is_router(*slot)) {
                let slot = Slot { region: source.node.spec().id, index };
                let meganode = Meganode::new(&source.node, source.geometry, slot);
                let path = meganode.validate_path(key);
                if path.map_err(|violation| broken(format_args!("after a write of {key:x?}: {violation}")))? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check_targets(&self) -> Vec<CheckTarget> {
        self.control.pairs.iter().flat_map(|pair| check_targets(&pair.source, &pair.ends)).collect()
    }

    /// Checks everything that is served here.
    ///
    /// # Errors
    /// It breaks a rule.
    pub fn check_everything(&self) -> Result<(), Broken> {
        let targets = self.check_targets();
        let outcome = check(&targets, || {});
        if outcome.violations > 0 {
            return Err(broken(format_args!("between two steps: {}", outcome.first_violation)));
        }
        Ok(())
    }

    /// Lets the process die after so many touches of the world by, or beside, its next checkpoint.
    pub fn die_in_checkpoint(&mut self, touches: u64, after: bool) {
        if self.control.copying.is_empty() {
            self.control.dies_in_checkpoint = Some((touches, after));
        } else {
            self.fuse.light(touches, after);
        }
    }

    /// The death in a checkpoint is called off.
    pub fn spare(&mut self) {
        self.control.dies_in_checkpoint = None;
    }

    /// The operator's wish.
    pub fn stop(&mut self, checkpoint: bool) {
        self.tell(ControlEvent::Stop { checkpoint });
    }

    /// Carries out what is due; when the next is.
    pub(crate) fn step_control(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        self.control.ended_checkpoint = false;
        while let Some((due_ns, _)) = self.control.queue.front() {
            if *due_ns > now_ns {
                break;
            }
            let Some((_, work)) = self.control.queue.pop_front() else { break };
            match work {
                Work::Command(command) => self.carry_out(command, now_ns, news),
                Work::Event(event) => self.tell(event),
            }
        }
        self.step_copies(now_ns, news);
        let queued = self.control.queue.front().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        self.control.copying.iter().map(|copying| copying.due_ns).fold(queued, u64::min)
    }

    /// What the coordinator said comes to the worker when its call has taken its time.
    fn answer(&mut self, event: Option<ControlEvent>, now_ns: u64) {
        let Some(event) = event else { return };
        let due_ns = now_ns + self.random.time_ns(self.plan.call_ns);
        self.control.queue.push_front((due_ns, Work::Event(event)));
    }

    pub(crate) fn tell(&mut self, event: ControlEvent) {
        self.hand_in(WorkerInput::Control(event));
    }

    fn carry_out(&mut self, command: Command, now_ns: u64, news: &mut Vec<News>) {
        match command {
            Command::OpenSession { connection, header } => {
                let opened = self.claims.agent.as_ref().map(|agent| agent.open_session(connection, header));
                self.answer(opened, now_ns);
            }
            Command::EndSession { session, answer } => {
                let ended = self.claims.agent.as_ref().map(|agent| agent.end_session(session, answer));
                let recorded = matches!(ended, Some(ControlEvent::SessionEnded { recorded: true, .. }));
                news.extend(recorded.then_some(News::SessionEnded));
                self.answer(ended, now_ns);
            }
            Command::AskSession { session } => {
                let asked = self.claims.agent.as_ref().map(|agent| agent.ask_session(session));
                self.answer(asked, now_ns);
            }
            Command::ListSessions { before } => {
                let listed = self.claims.agent.as_ref().map(|agent| agent.list_sessions(before));
                listed.into_iter().for_each(|event| self.tell(event));
            }
            Command::Check { connection, header } => self.check(connection, header, now_ns, news),
            Command::Checkpoint(pair, CheckpointCommand::WriteImage { base }) => {
                self.begin_copy(pair, *base, now_ns, news);
            }
            Command::Checkpoint(pair, CheckpointCommand::Record { base, csn_max }) => {
                let recorded = self.record(pair, base, csn_max);
                self.control.ended_checkpoint = !recorded;
                news.push(if recorded { News::Checkpointed } else { News::CheckpointFailed });
                self.answer(Some(ControlEvent::CheckpointRecorded { pair, recorded }), now_ns);
            }
            Command::AddPair => self.add_pair(now_ns),
            Command::Note { key, notice } => {
                let agent = self.claims.agent.as_mut();
                let written = agent.and_then(|agent| agent.write_notice(key, notice.as_ref()));
                self.answer(written, now_ns);
                self.wake(now_ns); // what there is now is to be seen
            }
            Command::Failed(_) => {}
        }
    }

    fn check(
        &mut self,
        connection: cell_fabric::ConnectionId,
        header: cell_protocol::RequestHeader,
        now_ns: u64,
        news: &mut Vec<News>,
    ) {
        let targets = self.check_targets();
        let outcome = check(&targets, || {});
        if outcome.violations > 0 {
            news.push(News::Violations(outcome.first_violation.clone()));
        }
        // Writes wait until the structure has been walked, and that takes a while.
        let walked_ns = now_ns + self.random.time_ns(200 * US);
        self.control.queue.push_back((walked_ns, Work::Event(ControlEvent::StructureChecked)));
        let event = ControlEvent::Checked { connection, header, outcome };
        self.control.queue.push_back((walked_ns + 50 * US, Work::Event(event)));
    }

    fn begin_copy(&mut self, pair: PairId, base: ImageBase, now_ns: u64, news: &mut Vec<News>) {
        let Some(source) = self.control.pair(pair).map(|served| served.source.clone()) else { return };
        if let Some((touches, after)) = self.control.dies_in_checkpoint.take() {
            self.fuse.light(touches, after);
        }
        match ImageCopy::begin(source, self.environment.storage.clone(), 1, base) {
            Ok(copy) => self.control.copying.push(Copying { pair, copy, due_ns: now_ns }),
            Err(_) => self.image_failed(pair, news),
        }
    }

    fn step_copies(&mut self, now_ns: u64, news: &mut Vec<News>) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.control.copying)
            .into_iter()
            .partition(|copying| copying.due_ns <= now_ns);
        self.control.copying = later;
        due.into_iter().for_each(|copying| self.step_copy(copying, now_ns, news));
    }

    fn step_copy(&mut self, mut copying: Copying, now_ns: u64, news: &mut Vec<News>) {
        let pair = copying.pair;
        let nodes = u32::try_from(self.random.between(1, NODES_AT_ONCE)).unwrap_or(1);
        let Some(served) = self.control.pair(pair) else { return };
        match copying.copy.step(&|slot| served.ends.end(slot), nodes) {
            Ok(true) => {
                copying.due_ns = now_ns + self.random.time_ns(200 * US);
                self.control.copying.push(copying);
            }
            Ok(false) => match copying.copy.finish() {
                Ok(image) => {
                    let csn_max = Some(image.csn_max);
                    served.written = Some(image);
                    self.tell(ControlEvent::ImageWritten { pair, csn_max });
                }
                Err(_) => self.image_failed(pair, news),
            },
            Err(error) => {
                copying.copy.abandon();
                if let cell_recovery::image::ImageError::Damaged { .. } = error {
                    news.push(News::Broken(format!("a checkpoint met damage: {error}")));
                }
                self.image_failed(pair, news);
            }
        }
    }

    fn image_failed(&mut self, pair: PairId, news: &mut Vec<News>) {
        self.control.ended_checkpoint = true;
        news.push(News::CheckpointFailed);
        self.tell(ControlEvent::ImageWritten { pair, csn_max: None });
    }

    fn record(&mut self, pair: PairId, base: Csn, csn_max: Csn) -> bool {
        let Some(served) = self.control.pair(pair) else { return false };
        let tenure = served.tenure;
        let Some(image) = served.written.take() else { return false };
        let row = CheckpointRow { epoch: tenure.epoch, csn: base, csn_max, file: image.path };
        let Ok(row) = self.environment.table.record_checkpoint(tenure, &row) else { return false };
        // What is left over is removed the next time.
        let _ = remove_unneeded(&*self.environment.storage, &row);
        true
    }
}
