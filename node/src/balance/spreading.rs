//! What the worker is told of the others, so that halves of its meganodes go to who has less.

use std::sync::Arc;

use cell_cluster::ClusterView;
use cell_placement::MemberState;

use super::{BalanceDriver, picture};
use crate::command::ControlEvent;
use crate::split::SpreadView;

/// When the worker is told next, and whether it was told of others.
#[derive(Debug, Default)]
pub(super) struct Spreading {
    due_ns: u64,
    told: bool,
}

impl Spreading {
    /// Something has changed by which halves go.
    pub(super) fn hurry(&mut self) {
        self.due_ns = 0;
    }
}

impl BalanceDriver {
    /// What the worker is to be told now, if it is time.
    pub(crate) fn spread(&mut self, view: &ClusterView, now_ns: u64) -> Option<ControlEvent> {
        if now_ns < self.spreading.due_ns {
            return None;
        }
        self.spreading.due_ns = now_ns.saturating_add(self.every_ms() * 1_000_000);
        let shown = self.spread_view(view, now_ns);
        let told = std::mem::replace(&mut self.spreading.told, shown.is_some());
        (told || shown.is_some()).then(|| ControlEvent::Spread(shown.map(Arc::new)))
    }

    /// None: all halves stay here.
    fn spread_view(&self, view: &ClusterView, now_ns: u64) -> Option<SpreadView> {
        if self.stopping || !self.options.on || view.members.len() < 2 {
            return None;
        }
        let figures = picture::figures(view, &self.seen, self.options.on, now_ns);
        let members = figures.members.iter();
        let sharing = members.filter(|member| member.state == MemberState::Serving && !member.draining);
        if figures.pause.is_some() || figures.takeovers_open > 0 || sharing.count() < 2 {
            return None;
        }
        let others = view.balance.figures.values().filter(|(row, _)| row.node != self.member.node);
        let meganodes = others.fold(0, |sum: u64, (row, _)| sum.saturating_add(row.meganodes));
        let shown = SpreadView {
            node: self.member.node,
            figures,
            meganodes,
            rules: self.options.rules.clone(),
            pairs_max: self.options.pairs_max,
            log_bytes: self.options.log_bytes,
        };
        Some(shown.summed())
    }
}
