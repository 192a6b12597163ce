//! The control thread and the checkpoint's thread, without threads: the worker's commands are carried out by
//! `cell_node`'s driver of the control side (production code), each some time after it was given; the
//! checkpoint's copy (`cell_pair::ImageRun`) goes on between the worker's turns.

use cell_cluster::Ownership;
use cell_fabric::ConnectionId;
use cell_node::{Command, ControlEffect, ControlEvent, WorkerInput};
use cell_pair::{CheckTarget, ImageJob, ImageTurn, check, check_targets};
use cell_protocol::RequestHeader;
use cell_recovery::image::ImageError;
use cell_terms::PairId;
use cell_tree::{Meganode, Slot};

use crate::model::{Broken, broken};
use crate::news::News;
use crate::node::Node;
use crate::plan::US;
use crate::threads::{Copying, Work};

/// Tree nodes that the copier takes between two turns of the worker, at most.
const NODES_AT_ONCE: u64 = 8;

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

    /// Checks everything that is served here.
    ///
    /// # Errors
    /// It breaks a rule.
    pub fn check_everything(&self) -> Result<(), Broken> {
        let pairs = self.control.pairs.iter();
        let targets: Vec<_> = pairs.flat_map(|pair| check_targets(&pair.source, &pair.ends)).collect();
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
        if let Some(driver) = &mut self.claims.driver {
            driver.stop();
        }
        self.notify(ControlEvent::Stop { checkpoint });
    }

    /// A pair is to leave it, in order.
    pub fn let_leave(&mut self, pair: PairId) {
        self.notify(ControlEvent::Leave { pair });
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
                Work::Event(event) => self.notify(event),
            }
        }
        self.step_copies(now_ns, news);
        let queued = self.control.queue.front().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        self.control.copying.iter().map(|copying| copying.due_ns).fold(queued, u64::min)
    }

    /// What the coordinator said comes to the worker when its call has taken its time.
    fn answer(&mut self, event: ControlEvent, now_ns: u64) {
        let due_ns = now_ns + self.random.time_ns(self.plan.call_ns);
        self.control.queue.push_front((due_ns, Work::Event(event)));
    }

    pub(crate) fn notify(&mut self, event: ControlEvent) {
        self.hand_in(WorkerInput::Control(event));
    }

    fn carry_out(&mut self, command: Command, now_ns: u64, news: &mut Vec<News>) {
        let notes = matches!(command, Command::Note { .. });
        match command {
            // It may be this node's in a later epoch by now.
            Command::Left { pair, epoch, handed, .. } => {
                let is_that = |of: &Ownership| of.pair == pair && of.epoch == epoch;
                let left = self.control.pairs.extract_if(.., |served| is_that(&served.ownership));
                let lives = !self.fuse.is_burnt();
                news.extend(left.filter(|_| !handed && lives).map(|served| News::Left(served.ownership)));
            }
            Command::Stays { .. } => news.push(News::Stays),
            _ => {}
        }
        let Some(driver) = &mut self.claims.driver else { return };
        match driver.carry_out(command) {
            Some(ControlEffect::Notify(event)) => {
                self.note_thaw(&event, news);
                self.look_at_answer(&event, news);
                self.answer(event, now_ns);
            }
            Some(effect) => self.follow(effect, now_ns, news),
            None => {}
        }
        if notes {
            self.wake(now_ns); // what there is now is to be seen
        }
    }

    /// A pair that was frozen is served on: trust is granted in it again.
    pub(crate) fn note_thaw(&mut self, event: &ControlEvent, news: &mut Vec<News>) {
        if let ControlEvent::Thaw { ticket, .. } = event {
            news.extend(self.control.frozen.thaws(*ticket).map(News::Thawed));
        }
    }

    /// What is reported to the world of what the coordinator said.
    fn look_at_answer(&mut self, event: &ControlEvent, news: &mut Vec<News>) {
        match event {
            ControlEvent::SessionEnded { recorded: true, .. } => news.push(News::SessionEnded),
            ControlEvent::CheckpointRecorded { recorded, .. } => {
                self.control.ended_checkpoint = !recorded;
                news.push(if *recorded { News::Checkpointed } else { News::CheckpointFailed });
            }
            _ => {}
        }
    }

    pub(crate) fn check(
        &mut self,
        (connection, header): (ConnectionId, RequestHeader),
        targets: &[CheckTarget],
        now_ns: u64,
        news: &mut Vec<News>,
    ) {
        let outcome = check(targets, || {});
        if outcome.violations > 0 {
            news.push(News::Violations(outcome.first_violation.clone()));
        }
        // Writes wait until the structure has been walked, and that takes a while.
        let walked_ns = now_ns + self.random.time_ns(200 * US);
        self.control.queue.push_back((walked_ns, Work::Event(ControlEvent::StructureChecked)));
        let event = ControlEvent::Checked { connection, header, outcome };
        self.control.queue.push_back((walked_ns + 50 * US, Work::Event(event)));
    }

    pub(crate) fn begin_copy(&mut self, job: ImageJob, now_ns: u64, news: &mut Vec<News>) {
        if let Some((touches, after)) = self.control.dies_in_checkpoint.take() {
            self.fuse.light(touches, after);
        }
        let pair = job.pair();
        let turn = job.begin(self.environment.storage.clone(), 1);
        self.copied(pair, turn, now_ns, news);
    }

    fn step_copies(&mut self, now_ns: u64, news: &mut Vec<News>) {
        if self.control.copying.is_empty() {
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.control.copying)
            .into_iter()
            .partition(|copying| copying.due_ns <= now_ns);
        self.control.copying = later;
        for Copying { pair, run, .. } in due {
            let nodes = u32::try_from(self.random.between(1, NODES_AT_ONCE)).unwrap_or(1);
            let turn = run.step(nodes);
            let due_ns = now_ns + self.random.time_ns(200 * US);
            self.copied(pair, turn, due_ns, news);
        }
    }

    /// What a step of a copy led to; if there is a next one, it is due then.
    fn copied(&mut self, pair: PairId, turn: ImageTurn, due_ns: u64, news: &mut Vec<News>) {
        match turn {
            ImageTurn::More(run) => self.control.copying.push(Copying { pair, run, due_ns }),
            ImageTurn::Written(end) => self.notify(end.into()),
            ImageTurn::Failed { end, error } => {
                if let ImageError::Damaged { .. } = error {
                    news.push(News::Broken(format!("a checkpoint met damage: {error}")));
                }
                self.control.ended_checkpoint = true;
                news.push(News::CheckpointFailed);
                self.notify(end.into());
            }
        }
    }
}
