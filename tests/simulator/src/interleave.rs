//! Steps one node, and within its calls of the coordinator (`calls`) those others that are due before its
//! answer comes. What they report to the world is handled when the caller's step is over.

use std::cell::RefCell;
use std::rc::Rc;

use cell_cluster::Sim;
use cell_random::Random;

use crate::calls::{self, Others, Turn};
use crate::news::News;
use crate::node::Node;

/// Steps of others within one call, at most.
const STEPS_MAX: u32 = 4;

/// Who goes on within the calls of the node that is being stepped.
struct OtherNodes {
    nodes: Vec<Box<Node>>,
    now_ns: u64,
    coordinator: Sim,
    random: Random,
    /// Of a hundred calls, within how many others go on.
    percent: u64,
    /// A call's usual time.
    call_ns: u64,
    /// From then on calls take no time.
    ends_ns: u64,
    gathered: Vec<(u32, Vec<News>)>,
    steps: u64,
}

/// What happened within the calls of a step.
pub(crate) struct Between {
    /// What the others reported, in the order of their steps.
    pub(crate) gathered: Vec<(u32, Vec<News>)>,
    /// How many steps they took.
    pub(crate) steps: u64,
    /// The time when the last call was answered.
    pub(crate) now_ns: u64,
}

/// How calls go.
pub(crate) struct Calls {
    /// The present.
    pub(crate) now_ns: u64,
    /// Of a hundred calls, within how many others go on.
    pub(crate) percent: u64,
    /// A call's usual time.
    pub(crate) call_ns: u64,
    /// All calls of a step take no longer. Whoever is stepped is one thread of its process; that which renews
    /// the lease is not stepped meanwhile.
    pub(crate) longest_ns: u64,
    /// Decides what happens within these calls.
    pub(crate) random: Random,
}

/// Steps one of the nodes; the others may go on within its calls.
pub(crate) fn step(
    at: usize,
    nodes: &mut Vec<Box<Node>>,
    coordinator: &Sim,
    calls: Calls,
    news: &mut Vec<News>,
) -> Between {
    let Calls { now_ns, percent, call_ns, longest_ns, random } = calls;
    if percent == 0 || nodes.len() < 2 {
        nodes[at].step(now_ns, news);
        return Between { gathered: Vec::new(), steps: 0, now_ns };
    }
    let mut node = nodes.remove(at);
    let others = OtherNodes {
        nodes: std::mem::take(nodes),
        now_ns,
        coordinator: coordinator.clone(),
        random,
        percent,
        call_ns,
        ends_ns: now_ns + longest_ns,
        gathered: Vec::new(),
        steps: 0,
    };
    let others = Rc::new(RefCell::new(others));
    calls::with_others(others.clone(), || node.step(now_ns, news));
    let others = Rc::into_inner(others).expect("a step puts the others back").into_inner();
    *nodes = others.nodes;
    nodes.insert(at, node);
    Between { gathered: others.gathered, steps: others.steps, now_ns: others.now_ns }
}

impl Others for OtherNodes {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn turn_in_call(&mut self) -> Option<Turn> {
        let goes_on = self.random.percent(self.percent);
        goes_on.then(|| if self.random.percent(50) { Turn::Before } else { Turn::After })
    }

    fn go_on(&mut self) {
        let until_ns = (self.now_ns + self.random.time_ns(self.call_ns)).min(self.ends_ns.max(self.now_ns));
        for _ in 0..STEPS_MAX {
            let Some(at) = (0..self.nodes.len()).min_by_key(|at| self.nodes[*at].due_ns()) else { break };
            let node = &mut self.nodes[at];
            let due_ns = node.due_ns().max(self.now_ns);
            if due_ns > until_ns || node.fuse.is_burnt() {
                break;
            }
            self.now_ns = due_ns;
            self.coordinator.set_now(due_ns);
            let mut news = Vec::new();
            node.step(due_ns, &mut news);
            self.steps += 1;
            let has_news = !news.is_empty();
            self.gathered.push((node.host, news));
            if has_news {
                break; // the world is to handle it before that node goes on
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        self.coordinator.set_now(self.now_ns);
    }
}
