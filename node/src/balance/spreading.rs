//! What the worker knows of the others, so that halves of its meganodes go to who has less.

use std::sync::Arc;

use cell_placement::{Figures, MemberState};

use crate::command::ControlEvent;
use crate::split::SpreadView;

/// When the worker gets it next, and whether it knows of others.
#[derive(Debug, Default)]
pub(super) struct Spreading {
    due_ns: u64,
    is_informed: bool,
}

impl Spreading {
    /// Something has changed by which halves go.
    pub(super) fn hurry(&mut self) {
        self.due_ns = 0;
    }

    /// Whether the worker is to get it, every so often.
    pub(super) fn is_due(&mut self, every_ms: u64, now_ns: u64) -> bool {
        let due = now_ns >= self.due_ns;
        if due {
            self.due_ns = now_ns.saturating_add(every_ms * 1_000_000);
        }
        due
    }

    /// The worker gets this; what it has not got needs not be taken back.
    pub(super) fn event(&mut self, shown: Option<SpreadView>) -> Option<ControlEvent> {
        let is_informed = std::mem::replace(&mut self.is_informed, shown.is_some());
        (is_informed || shown.is_some()).then(|| ControlEvent::Spread(shown.map(Arc::new)))
    }
}

/// Whether there is somebody that halves can go to, and nothing that forbids it.
pub(super) fn may_spread(figures: &Figures) -> bool {
    let members = figures.members.iter();
    let sharing = members.filter(|member| member.state == MemberState::Serving && !member.draining);
    figures.pause.is_none() && figures.takeovers_open == 0 && sharing.count() >= 2
}
