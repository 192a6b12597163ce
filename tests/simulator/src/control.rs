//! The control thread and the checkpoint's thread, without threads: what `cell_node`'s control does with the
//! worker's
//! commands, each some time after it was given; the checkpoint's copy goes on between the worker's turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cell_cluster::{CheckpointRow, Tenure};
use cell_node::{CheckTarget, CheckpointCommand, Command, ControlEvent, check};
use cell_recovery::image::{ImageCopy, ImageSource, WrittenImage};
use cell_recovery::remove_unneeded;
use cell_terms::Csn;
use cell_tree::NodeIndex;

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
    copy: ImageCopy<Arc<ImageSource>>,
    completions: Vec<u8>,
    due_ns: u64,
}

/// What the control thread works with.
#[derive(Default)]
pub struct Control {
    /// The pair's tenure, once it is served.
    pub(crate) tenure: Option<Tenure>,
    /// The pair's memory.
    pub(crate) source: Option<Arc<ImageSource>>,
    nodes_end: Arc<AtomicU32>,
    queue: VecDeque<(u64, Work)>,
    copying: Option<Copying>,
    written: Option<WrittenImage>,
    /// Touches after which the process dies once the next checkpoint has begun.
    dies_in_checkpoint: Option<(u64, bool)>,
    /// A checkpoint failed in the last step: the process may have died of it.
    ended_checkpoint: bool,
}

impl Control {
    /// The pair is served from here on.
    pub(crate) fn begin(&mut self, tenure: Tenure, source: Arc<ImageSource>, nodes_end: Arc<AtomicU32>) {
        self.tenure = Some(tenure);
        self.source = Some(source);
        self.nodes_end = nodes_end;
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
        let pairs = self.worker.as_ref().map(|worker| worker.snapshot().pairs).unwrap_or_default();
        pairs.iter().any(|pair| pair.checkpoint_running) || self.control.ended_checkpoint
    }

    /// Lets the process die after so many touches of the world by, or beside, its next checkpoint.
    pub fn die_in_checkpoint(&mut self, touches: u64, after: bool) {
        match self.control.copying {
            Some(_) => self.fuse.light(touches, after),
            None => self.control.dies_in_checkpoint = Some((touches, after)),
        }
    }

    /// The death in a checkpoint is called off.
    pub fn spare(&mut self) {
        self.control.dies_in_checkpoint = None;
    }

    /// The operator's wish.
    pub fn stop(&mut self, checkpoint: bool) {
        if let Some(worker) = &mut self.worker {
            worker.control(ControlEvent::Stop { checkpoint });
        }
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
        self.step_copy(now_ns, news);
        let queued = self.control.queue.front().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        queued.min(self.control.copying.as_ref().map_or(u64::MAX, |copying| copying.due_ns))
    }

    fn tell(&mut self, event: ControlEvent) {
        if let Some(worker) = &mut self.worker {
            worker.control(event);
        }
    }

    fn carry_out(&mut self, command: Command, now_ns: u64, news: &mut Vec<News>) {
        match command {
            Command::OpenSession { connection, header } => {
                let incarnation = self.incarnation().unwrap_or_default();
                let session = self.environment.sessions.open(incarnation).ok();
                self.tell(ControlEvent::SessionOpened { connection, header, session });
            }
            Command::EndSession { session, answer } => {
                let recorded = self.environment.sessions.end(session).is_ok();
                news.extend(recorded.then_some(News::SessionEnded));
                self.tell(ControlEvent::SessionEnded { session, answer, recorded });
            }
            Command::Check { connection, header } => self.check(connection, header, now_ns, news),
            Command::Checkpoint(CheckpointCommand::WriteImage { base, completions }) => {
                self.begin_copy(base, completions, now_ns, news);
            }
            Command::Checkpoint(CheckpointCommand::Record { base, csn_max }) => {
                let recorded = self.record(base, csn_max);
                self.control.ended_checkpoint = !recorded;
                news.push(if recorded { News::Checkpointed } else { News::CheckpointFailed });
                self.tell(ControlEvent::CheckpointRecorded { recorded });
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
        let Some(source) = &self.control.source else { return };
        let target = CheckTarget {
            node: source.node.clone(),
            extent: source.extent.clone(),
            geometry: source.geometry,
            slot: source.slot,
            nodes_end: NodeIndex(self.control.nodes_end.load(Ordering::Acquire)),
        };
        let outcome = check(&target, || {});
        if outcome.violations > 0 {
            news.push(News::Violations(outcome.first_violation.clone()));
        }
        // Writes wait until the structure has been walked, and that takes a while.
        let walked_ns = now_ns + self.random.time_ns(200 * US);
        self.control.queue.push_back((walked_ns, Work::Event(ControlEvent::StructureChecked)));
        let event = ControlEvent::Checked { connection, header, outcome };
        self.control.queue.push_back((walked_ns + 50 * US, Work::Event(event)));
    }

    fn begin_copy(&mut self, base: Csn, completions: Vec<u8>, now_ns: u64, news: &mut Vec<News>) {
        let Some(source) = self.control.source.clone() else { return };
        if let Some((touches, after)) = self.control.dies_in_checkpoint.take() {
            self.fuse.light(touches, after);
        }
        match ImageCopy::begin(source, self.environment.storage.clone(), 1, base) {
            Ok(copy) => self.control.copying = Some(Copying { copy, completions, due_ns: now_ns }),
            Err(_) => self.image_failed(news),
        }
    }

    fn step_copy(&mut self, now_ns: u64, news: &mut Vec<News>) {
        let Some(mut copying) = self.control.copying.take_if(|copying| copying.due_ns <= now_ns) else {
            return;
        };
        let nodes = u32::try_from(self.random.between(1, NODES_AT_ONCE)).unwrap_or(1);
        let end = NodeIndex(self.control.nodes_end.load(Ordering::Acquire));
        match copying.copy.step(end, nodes) {
            Ok(true) => {
                copying.due_ns = now_ns + self.random.time_ns(200 * US);
                self.control.copying = Some(copying);
            }
            Ok(false) => match copying.copy.finish(&copying.completions) {
                Ok(image) => {
                    let csn_max = Some(image.csn_max);
                    self.control.written = Some(image);
                    self.tell(ControlEvent::ImageWritten { csn_max });
                }
                Err(_) => self.image_failed(news),
            },
            Err(error) => {
                copying.copy.abandon();
                if let cell_recovery::image::ImageError::Damaged { .. } = error {
                    news.push(News::Broken(format!("a checkpoint met damage: {error}")));
                }
                self.image_failed(news);
            }
        }
    }

    fn image_failed(&mut self, news: &mut Vec<News>) {
        self.control.ended_checkpoint = true;
        news.push(News::CheckpointFailed);
        self.tell(ControlEvent::ImageWritten { csn_max: None });
    }

    fn record(&mut self, base: Csn, csn_max: Csn) -> bool {
        let (Some(image), Some(tenure)) = (self.control.written.take(), self.control.tenure) else {
            return false;
        };
        let row = CheckpointRow { epoch: tenure.epoch, csn: base, csn_max, file: image.path };
        let Ok(row) = self.environment.table.record_checkpoint(tenure, &row) else { return false };
        // What is left over is removed the next time.
        let _ = remove_unneeded(&*self.environment.storage, &row);
        true
    }
}
