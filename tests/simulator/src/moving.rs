//! Planned moves of pairs: those that operators want, why pairs have moved, and what became of moves.

use std::sync::Arc;

use cell_cluster::{
    Coordinator, KEY_DRILL, Members, MoveMotive, MoveOutcome, MoveRow, Moves, Table, Transaction,
};
use cell_terms::PairId;

use crate::coverage::Event;
use crate::plan::MS;
use crate::world::{World, say};

impl World {
    /// One of a host's pairs is to move to another node.
    pub(crate) fn let_move(&mut self, host: u32) {
        let Some(node) = self.nodes.iter().find(|node| node.host == host) else { return };
        let pairs: Vec<_> = node.ownerships().map(|ownership| ownership.pair).collect();
        if pairs.is_empty() || !self.coordinator.answers() {
            return;
        }
        let link = Arc::new(self.coordinator.link());
        let members = Members::new(link.clone()).list().unwrap_or_default();
        let others: Vec<_> = members.iter().filter(|member| member.node.0 + 1 != host).collect();
        if others.is_empty() {
            return;
        }
        let (pair, to) = (self.random.pick(&pairs), others[self.random.index(others.len())]);
        let moves = Moves::new(link);
        let earlier = moves.of(pair).ok().flatten();
        if moves.begin(pair, to, "a fault").is_ok() {
            say!(self, "{pair} is to move to {}", to.node);
            self.coverage.saw(Event::MovesWanted);
            self.count_outcome(earlier.as_ref());
        }
    }

    /// Whether no move is said to be under way whose pair's row shows what became of it.
    pub(crate) fn moves_are_closed(&self) -> bool {
        let link = Arc::new(self.coordinator.link());
        let (moves, pairs) = (Moves::new(link.clone()).list(), Table::new(link).pairs());
        let (Ok(moves), Ok((pairs, _))) = (moves, pairs) else { return false };
        moves.iter().filter(|of| of.is_under_way()).all(|of| {
            let row = pairs.iter().find(|row| row.pair == of.pair);
            row.is_none_or(|row| of.verdict(row).is_none())
        })
    }

    /// In some runs a move begins before a fault; how much later that befalls.
    pub(crate) fn move_before_fault(&mut self) -> u64 {
        let percent = self.plan.moved_percent;
        if percent == 0 || !self.random.percent(percent) {
            return 0;
        }
        let Some(host) = self.victim() else { return 0 };
        self.let_move(host);
        let longest_ns = self.random.pick(&[10, 100, 500]) * MS;
        self.random.below(longest_ns)
    }

    /// A pair has moved: why.
    pub(crate) fn count_cause(&mut self, pair: PairId) {
        let cause = match self.plan.balance {
            None => Some(MoveMotive::Operator), // nobody else moves any
            Some(_) => {
                let of = Moves::new(Arc::new(self.coordinator.link())).of(pair).ok().flatten();
                of.map(|of| of.cause)
            }
        };
        match cause {
            Some(MoveMotive::Operator) => self.coverage.saw(Event::MovedByOperators),
            Some(MoveMotive::Drain) => self.coverage.saw(Event::MovedForDrains),
            Some(MoveMotive::Balance) => self.coverage.saw(Event::Balanced),
            Some(MoveMotive::Fresh) => self.coverage.saw(Event::MovedFresh),
            None => {} // the coordinator does not answer just now
        }
    }

    /// Nothing moves by itself any more, as while a drill is under way.
    pub(crate) fn rest_balance(&mut self) {
        if self.plan.balance.is_some() {
            let drill = Transaction::new().put(KEY_DRILL, "{}");
            let paused = self.coordinator.link().transact(drill);
            say!(self, "balance rests: {}", paused.is_ok());
        }
    }

    /// What became of a move, once nothing of it is to be seen any more.
    pub(crate) fn count_outcome(&mut self, of: Option<&MoveRow>) {
        match of.and_then(|of| of.outcome.as_ref()) {
            Some(MoveOutcome::Back { .. }) => self.coverage.saw(Event::MovesBack),
            Some(MoveOutcome::GivenUp { .. }) => self.coverage.saw(Event::MovesGivenUp),
            _ => {}
        }
    }
}
