//! Nodes that come and go while the others run, and those that are started again though they were given up.

use std::time::{Duration, Instant};

use cell_drill::wire::Refused;
use serde_json::json;

use super::Supervisor;
use crate::dev::scale_wire::{NODES_MAX, ScaleDone, ScaleNode, ScaleStep, refuse};
use crate::dev::slot::Slot;

impl Supervisor {
    /// Has a node run, takes one away, or says who is there.
    pub(super) fn scale(&mut self, step: ScaleStep) -> ScaleDone {
        match step {
            ScaleStep::Look => {}
            ScaleStep::Start(node) => self.start_node(node)?,
            ScaleStep::Retire(node) => self.retire(node)?,
        }
        let view = |slot: &Slot| ScaleNode {
            node: slot.spec.node,
            state: slot.state().to_owned(),
            server: self.plan.fabric(slot.spec.node).to_string(),
            http: self.plan.http(slot.spec.node).to_string(),
            pairs: 0,
            draining: false,
            removed: false,
            drained_by: None,
            stall: None,
            memory_limit_bytes: slot.memory_share,
        };
        Ok(self.present().map(view).collect())
    }

    /// The places of nodes that have not left.
    pub(super) fn present(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.left)
    }

    /// Starts a node again that was given up, or adds one; one that runs goes on.
    fn start_node(&mut self, node: u16) -> Result<(), Refused> {
        match self.slots.get_mut(usize::from(node)).filter(|slot| !slot.left) {
            None => self.add(node),
            Some(slot) if slot.leaving => {
                Err(refuse(format!("node {node} is being stopped"), "wait until it has ended"))
            }
            Some(slot) => {
                if slot.given_up().is_some() {
                    slot.restart(Instant::now());
                    self.announcer.restarting(node.into(), Duration::ZERO, None);
                }
                Ok(())
            }
        }
    }

    fn add(&mut self, node: u16) -> Result<(), Refused> {
        if node >= NODES_MAX {
            return Err(refuse(
                format!("a cluster here has at most {NODES_MAX} nodes"),
                "use several machines",
            ));
        }
        if node > self.nodes() {
            let what = format!("node {node} is not the next one: that is node {}", self.nodes());
            return Err(refuse(what, "`cell dev scale N` adds them in their order"));
        }
        let Some(more) = &self.more else {
            return Err(refuse("this supervisor adds no nodes".to_owned(), "start the cluster with more"));
        };
        let spec = more(node).map_err(|error| refuse(format!("{error:#}"), "mend that, then try again"))?;
        let mut slot = Slot::added(spec, Instant::now());
        match self.slots.get_mut(usize::from(node)) {
            Some(left) => {
                // What is still to be heard of the lives before is no news of the next ones.
                slot.lives = left.lives;
                *left = slot;
            }
            None => self.slots.push(slot),
        }
        self.share_memory();
        let (server, http) = (self.plan.fabric(node).to_string(), self.plan.http(node).to_string());
        let text = format!("node {node} is added: {server}");
        self.announcer.say("added", &text, &json!({"node": node, "server": server, "http": http}));
        Ok(())
    }

    /// Stops a node for good. That it has no pairs is for who asks to know.
    fn retire(&mut self, node: u16) -> Result<(), Refused> {
        let is_last = self.present().count() == 1;
        let Some(slot) = self.slots.get_mut(usize::from(node)).filter(|slot| !slot.left) else {
            return Err(refuse(format!("there is no node {node}"), "`cell dev scale N` says who leaves"));
        };
        if is_last {
            let what = format!("node {node} is the only one: one at least has to stay");
            return Err(refuse(what, "stop `cell dev` itself"));
        }
        slot.leaving = true;
        if !slot.ask_to_stop() {
            self.gone(node);
        }
        Ok(())
    }

    /// A node that left has no process any more. Its place goes, if none comes after it.
    pub(super) fn gone(&mut self, node: u16) {
        self.slots[usize::from(node)].leave();
        while self.slots.last().is_some_and(|slot| slot.left) {
            self.slots.pop();
        }
        self.share_memory();
        self.announcer.say("removed", &format!("node {node} has left"), &json!({"node": node}));
    }

    /// Divides the memory between the nodes that there are.
    pub(super) fn share_memory(&mut self) {
        let nodes = u16::try_from(self.present().count()).unwrap_or(u16::MAX);
        let Some(share) = self.memory.and_then(|memory| memory.each(nodes)) else { return };
        for slot in self.slots.iter_mut().filter(|slot| !slot.left) {
            slot.share_memory(share);
        }
    }

    /// Starts those again that were given up: what they ended of may have been mended.
    pub(super) fn start_given_up(&mut self) {
        let now = Instant::now();
        for slot in self.slots.iter_mut().filter(|slot| !slot.left && slot.given_up().is_some()) {
            slot.restart(now);
            self.announcer.restarting(self.plan.id(slot.spec.node), Duration::ZERO, None);
        }
    }
}
