//! Nodes that come and go while the others run.

use std::time::Instant;

use cell_drill::wire::Refused;
use serde_json::json;

use super::Supervisor;
use crate::dev::scale_wire::{NODES_MAX, ScaleDone, ScaleNode, ScaleStep, refuse};
use crate::dev::slot::Slot;

impl Supervisor {
    /// Adds a node, takes the last one away, or says who is there.
    pub(super) fn scale(&mut self, step: ScaleStep) -> ScaleDone {
        match step {
            ScaleStep::Look => {}
            ScaleStep::Add => self.add()?,
            ScaleStep::Retire(node) => self.retire(node)?,
        }
        let view = |slot: &Slot| ScaleNode {
            node: slot.spec.node,
            state: slot.state().to_owned(),
            server: self.plan.fabric(slot.spec.node).to_string(),
            http: self.plan.http(slot.spec.node).to_string(),
            pairs: 0,
            draining: false,
            stall: None,
        };
        Ok(self.slots.iter().map(view).collect())
    }

    fn add(&mut self) -> Result<(), Refused> {
        let node = self.nodes();
        if let Some(leaving) = self.slots.last().filter(|slot| slot.leaving) {
            let what = format!("node {} is being stopped", leaving.spec.node);
            return Err(refuse(what, "wait until it has ended"));
        }
        if node >= NODES_MAX {
            return Err(refuse(
                format!("a cluster here has at most {NODES_MAX} nodes"),
                "use several machines",
            ));
        }
        let Some(more) = &self.more else {
            return Err(refuse("this supervisor adds no nodes".to_owned(), "start the cluster with more"));
        };
        let spec = more(node).map_err(|error| refuse(format!("{error:#}"), "mend that, then try again"))?;
        self.slots.push(Slot::added(spec, Instant::now()));
        let (server, http) = (self.plan.fabric(node).to_string(), self.plan.http(node).to_string());
        let text = format!("node {node} is added: {server}");
        self.announcer.say("added", &text, &json!({"node": node, "server": server, "http": http}));
        Ok(())
    }

    /// Stops the last node for good. That it has no pairs is for who asks to know.
    fn retire(&mut self, node: u16) -> Result<(), Refused> {
        if self.nodes() == 1 || node + 1 != self.nodes() {
            let what = format!("node {node} is not the last of several: nodes leave from the last one on");
            return Err(refuse(what, "`cell dev scale N` takes them away in their order"));
        }
        let slot = &mut self.slots[usize::from(node)];
        slot.leaving = true;
        if !slot.ask_to_stop() {
            self.gone(node);
        }
        Ok(())
    }

    /// A node that left has no process any more.
    pub(super) fn gone(&mut self, node: u16) {
        self.slots.truncate(usize::from(node));
        self.announcer.say("removed", &format!("node {node} has left"), &json!({"node": node}));
    }
}
