//! What nodes report to the world: pairs taken over or not, checkpoints, ends; and whether an injected fault
//! explains what went wrong.

use std::sync::Arc;

use cell_cluster::{PairState, Table};
use cell_recovery::{Recovered, RecoveryError};
use cell_terms::PairId;
use cell_wal::sim::SimDevice;

use crate::check;
use crate::coverage::Event;
use crate::death::Death;
use crate::faults::Undo;
use crate::model::{Broken, broken};
use crate::news::{Exit, News, is_excused};
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{World, say};

impl World {
    /// What a node reports.
    pub(crate) fn on_news(&mut self, host: u32, news: News) -> Result<(), Broken> {
        match news {
            News::Recovered { recovered, device, wanted, moved, kept } => {
                self.coverage.add(Event::Moved, u64::from(moved));
                self.coverage.add(Event::BackInMemory, u64::from(kept));
                if moved {
                    self.count_cause(recovered.pair);
                }
                self.recovered(host, *recovered, device, wanted)?;
            }
            News::Claiming => {
                let fuse = self.operators.fuse.take();
                let node = self.nodes.iter().find(|node| node.host == host);
                if let (Some((touches, after)), Some(node)) = (fuse, node) {
                    node.fuse.light(touches, after);
                }
            }
            News::Refused { pair, error, stays } => self.refused(host, pair, &error, stays)?,
            News::Unplaced(pairs) => {
                say!(self, "host {host}: nobody has memory for {pairs} pairs");
                self.coverage.add(Event::Unplaced, pairs);
            }
            News::Checkpointed => {
                say!(self, "host {host}: a checkpoint is recorded");
                self.coverage.saw(Event::Checkpoints);
            }
            News::ServedOn => {
                say!(self, "host {host} serves on");
                self.coverage.saw(Event::ServedOn);
            }
            News::Left(ownership) => {
                say!(self, "host {host}: {} has left", ownership.pair);
                self.coverage.saw(Event::PairsLeft);
                self.owners.left(ownership);
            }
            News::Frozen(ownership) => {
                say!(self, "host {host}: {} is frozen", ownership.pair);
                self.move_watch.froze(ownership.pair);
                self.owners.left(ownership);
            }
            News::Thawed(ownership) => {
                say!(self, "host {host}: {} is served on", ownership.pair);
                self.coverage.saw(Event::Thawed);
                self.owners.stays(ownership);
            }
            News::Stays => self.coverage.saw(Event::PairsStayed),
            News::CheckpointFailed => self.coverage.saw(Event::CheckpointFailed),
            News::SessionEnded => self.coverage.saw(Event::SessionsEnded),
            News::Violations(what) => return Err(broken(format_args!("a check found: {what}"))),
            News::Broken(what) => return Err(broken(what)),
            News::Exit(exit) => self.exited(host, &exit)?,
        }
        Ok(())
    }

    /// A pair was taken over: it is looked at, and then served.
    fn recovered(
        &mut self,
        host: u32,
        recovered: Recovered,
        device: SimDevice,
        wanted: bool,
    ) -> Result<(), Broken> {
        let Some(at) = self.nodes.iter().position(|node| node.host == host) else { return Ok(()) };
        let snapshot = check::examine(&recovered)?;
        say!(
            self,
            "host {host} has recovered {}, {}: cut {}, {} entries, {} log bytes, checkpoint {}",
            recovered.pair,
            recovered.epoch,
            recovered.csn_cut,
            recovered.entries,
            recovered.log_bytes,
            recovered.csn_checkpoint
        );
        self.note(recovered.csn_cut.0 << 8 | 2);
        self.has_recovered(host, &recovered, snapshot, wanted)?;
        let now_ns = self.now_ns;
        let mut news = Vec::new();
        self.nodes[at].hand_over(recovered, device, wanted, now_ns, &mut news);
        news.into_iter().try_for_each(|news| self.on_news(host, news))
    }

    /// A takeover failed: an injected fault must explain it. Where an operator has to look, one does.
    fn refused(&mut self, host: u32, pair: PairId, error: &RecoveryError, stays: bool) -> Result<(), Broken> {
        say!(self, "host {host} does not get {pair}: {error}");
        if matches!(error, RecoveryError::Memory { .. }) {
            self.coverage.saw(Event::Declined);
            return Ok(());
        }
        if self.phase == RunPhase::Rotten && error.missing(pair).is_some() {
            return self.rot_refused(error);
        }
        if self.misreads(host, error, pair) {
            return self.misread(host, pair);
        }
        if !is_excused(error) {
            return Err(broken(format_args!("a recovery refused sound data: {error}: {error:?}")));
        }
        self.coverage.saw(Event::RecoveryFailed);
        if stays {
            let after_ns = self.random.time_ns(20 * MS);
            self.later(after_ns, Undo::Restart(host));
        }
        Ok(())
    }

    /// Whether a takeover ended because its process sees no log root. A process of two takeovers may end by
    /// one of them before the other's end is looked at.
    fn misreads(&self, host: u32, error: &RecoveryError, pair: PairId) -> bool {
        let is_damage = error.missing(pair).is_some() && !error.is_of_this_survivor();
        let node = self.nodes.iter().find(|node| node.host == host);
        let is_unmounted = node.map_or(self.operators.unmounted == Some(host), |node| node.is_unmounted);
        is_damage && is_unmounted
    }

    /// A process without its log root could not read a pair, which is whole: it is not believed, and others
    /// have the pair or may take it.
    fn misread(&mut self, host: u32, pair: PairId) -> Result<(), Broken> {
        self.coverage.saw(Event::Misread);
        if !self.coordinator.answers() {
            return Ok(());
        }
        let row = Table::new(Arc::new(self.coordinator.link())).pair(pair).map_err(broken)?;
        let node = self.nodes.iter().find(|node| node.host == host);
        let is_kept = row.owner.is_some() && row.owner == node.and_then(|node| node.incarnation());
        if is_kept && matches!(row.state, PairState::Unavailable { .. }) {
            return Err(broken(format_args!("host {host} keeps {pair}, which it alone found damaged")));
        }
        Ok(())
    }

    fn exited(&mut self, host: u32, exit: &Exit) -> Result<(), Broken> {
        say!(self, "host {host} exits: {exit:?}");
        match exit {
            Exit::Stopped => self.coverage.saw(Event::Stops),
            Exit::Failed(cell_node::FailureKind::LogFailed) => self.coverage.saw(Event::Poisoned),
            Exit::Failed(_) | Exit::LeaseEnded => self.coverage.saw(Event::LeaseLost),
            Exit::Refused(RecoveryError::Memory { .. }) => self.coverage.saw(Event::Declined),
            Exit::Refused(error) if self.misreads(host, error, PairId(1)) => {
                self.coverage.saw(Event::Misread);
            }
            Exit::Refused(error) if self.phase == RunPhase::Rotten => {
                self.rot_refused(error)?;
            }
            Exit::Refused(error) if is_excused(error) => self.coverage.saw(Event::RecoveryFailed),
            Exit::Refused(error) => {
                return Err(broken(format_args!("a recovery refused sound data: {error}: {error:?}")));
            }
        }
        if self.random.percent(80)
            && let Some(node) = self.nodes.iter_mut().find(|node| node.host == host)
        {
            node.release();
        }
        self.remove_process(host, Death::ByItself);
        Ok(())
    }
}
