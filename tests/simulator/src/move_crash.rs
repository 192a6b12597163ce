//! One planned move of a pair, in a run without other faults, and one crash at a point of it. Clients go on
//! asking meanwhile. However the move ends, the pair is served by one node, and nothing is lost: what every
//! run is held to shows it.
//!
//! The points are those of `docs/design/moves.md`. What lies between two of them, such as the last round and
//! the opening of the logs between the handing and the publication, is met by processes that die at one of
//! their next touches of disk or coordinator.

use std::sync::Arc;

use cell_cluster::{Coordinator, Members, MoveOutcome, MoveRow, MoveStage, Moves, Table};

use crate::coverage::Event;
use crate::death::Death;
use crate::model::{Broken, broken};
use crate::move_points::{MoveCrash, MovePoint, Struck, Watched};
use crate::node::Node;
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{World, say};

/// A move that has no end by then never has one.
const PATIENCE_NS: u64 = 60_000 * MS;
/// What follows a crash has started by then.
const REST_NS: u64 = 200 * MS;
/// The coordinator stands still for so long: for less than a lease, and for more.
const STILL_NS: [u64; 2] = [50 * MS, 1_500 * MS];
/// After so many calls of anybody a handing of unknown outcome takes effect.
const LATE_CALLS: u64 = 25;
/// Tries of a handing, and of what follows it, that are not answered: more than are made at once.
const UNANSWERED: usize = 64;

impl World {
    /// Takes the move that is wished for a step further, up to its crash and what follows it.
    pub(crate) fn step_move_crash(&mut self) -> Result<(), Broken> {
        let Some(crash) = self.options.move_crash.filter(|_| self.move_watch.is_pending) else {
            return Ok(());
        };
        if self.phase != RunPhase::Traffic {
            return Ok(());
        }
        let Some(watched) = self.move_watch.watched else {
            self.begin_watched();
            return Ok(());
        };
        if self.now_ns - watched.since_ns > PATIENCE_NS {
            return Err(broken(format_args!("a move has no end: {watched:?}")));
        }
        match watched.struck_ns {
            None if self.is_at(crash.point, watched) => self.strike(crash, watched),
            None => {}
            Some(struck_ns) => {
                let rested = self.now_ns - struck_ns >= REST_NS;
                self.move_watch.is_pending = !(rested && self.all_served() && self.has_ended(watched));
            }
        }
        Ok(())
    }

    /// Asks for a move, once clients have written something and everything is served.
    fn begin_watched(&mut self) {
        let written = self.asked >= self.options.stop_after;
        if !written || !self.coordinator.answers() || !self.all_served() {
            return;
        }
        let owner = |node: &Node| Some((node.host, node.ownerships().next()?.pair));
        let Some((source, pair)) = self.nodes.iter().find_map(|node| owner(node)) else { return };
        let link = Arc::new(self.coordinator.link());
        let members = Members::new(link.clone()).list().unwrap_or_default();
        let Some(to) = members.iter().find(|member| member.node.0 + 1 != source) else { return };
        let Ok(row) = Moves::new(link).begin(pair, to, "a crash") else { return };
        say!(self, "{pair} is to move to {}", to.node);
        self.coverage.saw(Event::MovesWanted);
        self.move_watch.watched = Some(Watched {
            pair,
            number: row.number,
            source,
            target: to.node.0 + 1,
            since_ns: self.now_ns,
            frozen: false,
            struck_ns: None,
            calls: 0,
        });
    }

    /// The move's row, if that can be read now.
    fn move_row(&self, watched: Watched) -> Option<MoveRow> {
        let moves = Moves::new(Arc::new(self.coordinator.link()));
        moves.of(watched.pair).ok().flatten().filter(|of| of.number == watched.number)
    }

    /// Whether the move is at a point. One that has ended before it is started anew.
    fn is_at(&mut self, point: MovePoint, watched: Watched) -> bool {
        let source = self.nodes.iter().find(|node| node.host == watched.source);
        match point {
            MovePoint::Frozen if watched.frozen => return true,
            MovePoint::Unanswered if watched.frozen => {
                let Some(source) = source else { return false };
                let left = source.coordinator.late_left();
                if left == 0 {
                    source.coordinator.delay([LATE_CALLS; UNANSWERED]);
                }
                return left > 0 && left < UNANSWERED;
            }
            MovePoint::Unlisted => {
                let worker = source.and_then(|node| node.serving.worker());
                let serves =
                    worker.is_some_and(|worker| worker.pairs().any(|pair| pair.id() == watched.pair));
                return serves && worker.is_some_and(|worker| !worker.is_listed(watched.pair));
            }
            _ => {}
        }
        if self.coordinator.calls() == watched.calls {
            return false; // nothing has changed
        }
        let row = self.move_row(watched);
        let calls = self.coordinator.calls();
        self.move_watch.watched.iter_mut().for_each(|watched| watched.calls = calls);
        let Some(row) = row else { return false };
        let stage = row.outcome.is_none().then_some(row.stage);
        let is_there = match point {
            MovePoint::Wanted => stage == Some(MoveStage::Wanted),
            MovePoint::Copying => stage == Some(MoveStage::Copying),
            MovePoint::Ready => stage == Some(MoveStage::Ready),
            MovePoint::Handed => stage == Some(MoveStage::Handed),
            MovePoint::Published => stage == Some(MoveStage::Handed) && self.is_published(&row),
            MovePoint::Moved => row.outcome == Some(MoveOutcome::Moved),
            MovePoint::Unlisted | MovePoint::Frozen | MovePoint::Unanswered => false,
        };
        if !is_there && row.outcome.is_some() {
            self.move_watch.watched = None;
        }
        is_there
    }

    fn is_published(&self, of: &MoveRow) -> bool {
        let table = Table::new(Arc::new(self.coordinator.link()));
        table.pair(of.pair).is_ok_and(|row| row.epoch == of.epoch_of_target() && row.is_published())
    }

    fn strike(&mut self, crash: MoveCrash, watched: Watched) {
        say!(self, "{crash:?}");
        let now_ns = self.now_ns;
        self.move_watch.watched.iter_mut().for_each(|watched| watched.struck_ns = Some(now_ns));
        if crash.point == MovePoint::Unanswered {
            self.nodes.iter().for_each(|node| node.coordinator.hurry());
        }
        let Watched { source, target, .. } = watched;
        let hosts: &[u32] = match crash.struck {
            Struck::Source => &[source],
            Struck::Target => &[target],
            Struck::Both => &[source, target],
            Struck::Coordinator => return self.still_coordinator(STILL_NS[usize::from(crash.touch > 0)]),
            Struck::CoordinatorEnds => return self.end_coordinator(crash.touch > 0),
        };
        for host in hosts {
            match crash.touch {
                0 => {
                    self.coverage.saw(Event::Kills);
                    self.remove_process(*host, Death::Killed);
                }
                touch => {
                    let node = self.nodes.iter().find(|node| node.host == *host);
                    node.into_iter().for_each(|node| node.fuse.light(touch - 1, crash.after));
                }
            }
        }
    }

    fn end_coordinator(&mut self, by_power: bool) {
        if by_power {
            self.coordinator.cut_power(); // until some time later: see `step_coordinator`
        } else {
            self.coverage.saw(Event::CoordinatorRestarts);
            self.coordinator.restart();
        }
    }

    /// Whether nobody takes the move further: it is over, or one of its ends is dead.
    fn has_ended(&self, watched: Watched) -> bool {
        if !self.coordinator.answers() {
            return false;
        }
        let Some(row) = self.move_row(watched) else { return true };
        let link = self.coordinator.link();
        let is_dead = |lease| link.remaining_ns(lease).is_ok_and(|left| left.is_none());
        row.outcome.is_some() || is_dead(row.source.incarnation) || is_dead(row.target.incarnation)
    }
}
