//! What comes back from the control thread.

use super::{Worker, WorkerPhase};
use crate::command::ControlEvent;
use crate::settings::WorkerOptions;

impl Worker {
    /// Takes the answer to a command, or a wish of the operator's.
    pub fn control(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::SessionOpened { connection, header, session } => {
                self.session_opened(connection, header, session);
            }
            ControlEvent::SessionEnded { session, answer, recorded } => {
                self.session_ended(session, answer, recorded);
            }
            ControlEvent::SessionAsked { session, open } => self.session_asked(session, open),
            ControlEvent::SessionsMissed => self.sessions_missed(),
            ControlEvent::SessionsListed { before, open } => self.sessions_listed(before, open.as_ref()),
            ControlEvent::Checked { connection, header, outcome } => {
                self.checked(connection, header, &outcome)
            }
            ControlEvent::StructureChecked => self.structure_checked(),
            ControlEvent::Table(table) => self.on_table(table),
            ControlEvent::Cluster(cluster) => self.cluster = cluster,
            ControlEvent::Notices(notices) => self.splits.on_notices(notices),
            ControlEvent::NoticeWritten { key, revision } => self.splits.on_notice_written(&key, revision),
            ControlEvent::PairAdded { pair, meant_for } => {
                self.splits.on_pair_added(Some((pair, meant_for)), self.now_ns);
            }
            ControlEvent::PairRefused => self.splits.on_pair_added(None, self.now_ns),
            ControlEvent::Spread(view) => self.splits.on_spread(view, self.now_ns),
            ControlEvent::ImageWritten { pair, written } => self.image_written(pair, written),
            ControlEvent::CheckpointRecorded { pair, recorded } => self.checkpoint_recorded(pair, recorded),
            ControlEvent::Leave { pair } => self.leave(pair, None),
            ControlEvent::Freeze { pair, ticket } => self.leave(pair, Some(ticket)),
            ControlEvent::Thaw { pair, ticket } => self.thaw(pair, ticket),
            ControlEvent::Handed { pair, ticket } => self.handed(pair, ticket),
            ControlEvent::KeepLog { pair, keep } => {
                let at = self.pairs.at(pair);
                at.into_iter().for_each(|at| self.pairs.get_mut(at).keep_log(keep));
            }
            ControlEvent::DiskFree(bytes) => self.health.disk_free = Some(bytes),
            ControlEvent::Alive => self.health.on_control(),
            ControlEvent::CoordinatorFails(why) => self.health.on_look(why, self.now_ns),
            ControlEvent::OptionsChanged(options) => self.apply_live(&options),
            ControlEvent::CheckTree(run) => self.tree_checker.begin(run),
            ControlEvent::Stop { checkpoint } => match self.phase {
                WorkerPhase::Serving => {
                    self.phase = WorkerPhase::Stopping;
                    self.pairs.iter_mut().for_each(|pair| pair.checkpointing.stop(checkpoint));
                }
                WorkerPhase::Recovering => self.phase = WorkerPhase::Stopping,
                WorkerPhase::Stopping | WorkerPhase::Failed(_) => {}
            },
        }
        self.drain_backlogs();
        if self.phase != WorkerPhase::Serving {
            self.drain_parked(); // refused now
        }
    }

    fn apply_live(&mut self, options: &WorkerOptions) {
        self.options.apply_live(options);
        for owned in self.pairs.iter_mut() {
            owned.pair.apply_live(&self.options.pair);
            if let Some(times) = self.options.log_times {
                owned.pair.set_log_times(times);
            }
        }
    }
}
