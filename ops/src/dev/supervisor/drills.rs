//! What drills do to nodes, and what they learn of them.

use std::time::{Duration, Instant};

use cell_cluster::boottime_ns;
use cell_drill::DELAY_MS;
use cell_drill::wire::{DrillAnswer, DrillRequest, NodeView, Refused, Status};
use serde_json::json;

use super::Supervisor;
use crate::dev::backoff::Repeated;
use crate::dev::child::NodeChild;
use crate::dev::slot::Slot;

impl Supervisor {
    /// Does what a drill asks for.
    pub(super) fn carry_out(&mut self, request: DrillRequest) -> DrillAnswer {
        let (first, count) = (self.plan.id(0), self.present().count());
        if let DrillRequest::SlowDisk { delay_ms: delay_ms @ 1.., .. } = request
            && !DELAY_MS.contains(&delay_ms)
        {
            return refuse_delay(delay_ms);
        }
        let place = request.node().map(|node| (node, self.plan.place(node)));
        let slot = match place {
            Some((node, Some(place))) => Some((node, self.slots.get_mut(place).filter(|slot| !slot.left))),
            Some((node, None)) => Some((node, None)),
            None => None,
        };
        let done = match (request, slot) {
            (DrillRequest::Status | DrillRequest::Nodes, _) => return self.status(),
            // Whose turn it is, is known to who hands requests on.
            (DrillRequest::Begin { .. }, _) | (_, None) => false,
            (_, Some((node, None))) => return refuse_unknown(node, first, count),
            // The rest is a row of the coordinator, which who hands this on writes.
            (DrillRequest::Drain { .. }, Some(_)) => true,
            (DrillRequest::Kill { down_ms, .. }, Some((_, Some(slot)))) => {
                slot.kill(Duration::from_millis(down_ms))
            }
            (DrillRequest::Stop { .. }, Some((_, Some(slot)))) => slot.pause(),
            (DrillRequest::Cont { .. }, Some((_, Some(slot)))) => slot.cont(),
            (DrillRequest::Restart { .. }, Some((_, Some(slot)))) => slot.restart(Instant::now()),
            // What is not there now is cut off when it comes.
            (DrillRequest::Partition { on, way, .. }, Some((_, Some(slot)))) => {
                slot.partition(on.then_some(way)) || !on || slot.due().is_some()
            }
            (DrillRequest::SlowDisk { delay_ms, .. }, Some((_, Some(slot)))) => {
                slot.slow_disk(delay_ms) || delay_ms == 0 || slot.due().is_some()
            }
        };
        let at_ns = boottime_ns();
        let node = request.node();
        if !done {
            let node = node.map_or(String::new(), |node| format!("node {node}"));
            let refused = Refused {
                what: format!("{node} has no process to {}", request.word()),
                next: "wait until it is started again: `cell drill ls` shows it".into(),
                is_away: false,
            };
            return DrillAnswer { at_ns, refused: Some(refused), status: None };
        }
        let text = node.map_or(String::new(), |node| format!("drill: {} node {node}", request.word()));
        self.announcer.say("drill", &text, &json!({"do": request.word(), "node": node}));
        DrillAnswer { at_ns, ..DrillAnswer::default() }
    }

    /// The processes; the rest is added by who hands the answer on.
    fn status(&self) -> DrillAnswer {
        let view = |slot: &Slot| NodeView {
            node: u16::try_from(self.plan.id(slot.spec.node)).unwrap_or(u16::MAX),
            pid: slot.child.as_ref().map(NodeChild::pid),
            state: slot.state().to_owned(),
            lives: slot.lives,
            partitioned: slot.faults.partition.is_some(),
            partition: slot.faults.partition,
            disk_delay_ms: slot.faults.disk_delay_ms,
            why: slot.repeated().map(Repeated::words),
            drained_by: None,
            drain_stall: None,
            server: self.plan.fabric(slot.spec.node),
            http: self.plan.http(slot.spec.node),
        };
        let status = Status { nodes: self.present().map(view).collect(), ..Status::default() };
        DrillAnswer { at_ns: boottime_ns(), refused: None, status: Some(status) }
    }
}

fn refuse_unknown(node: u16, first: u32, count: usize) -> DrillAnswer {
    let refused = Refused {
        what: format!("there is no node {node}: the cluster has {count}, counted from {first}"),
        next: "`cell drill ls` lists them".into(),
        is_away: false,
    };
    DrillAnswer { at_ns: boottime_ns(), refused: Some(refused), status: None }
}

fn refuse_delay(delay_ms: u64) -> DrillAnswer {
    let (least, most) = (DELAY_MS.start(), DELAY_MS.end());
    let refused = Refused {
        what: format!("a disk cannot be slower by {delay_ms} ms: from {least} ms to {most} ms"),
        next: "give a delay within these bounds, or 0 to end it".into(),
        is_away: false,
    };
    DrillAnswer { at_ns: boottime_ns(), refused: Some(refused), status: None }
}
