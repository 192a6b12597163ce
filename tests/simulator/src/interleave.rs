//! Calls of the coordinator take time, and other nodes go on meanwhile. A call is a function that is called,
//! so the others are stepped within it: while one node is stepped, they lie here, and who calls lets those of
//! them go on that are due before its answer comes. What they tell the world is heard when the caller's step
//! is over.

use std::cell::RefCell;

use cell_cluster::Sim;

use crate::node::{News, Node};
use crate::random::Random;

/// Steps of others within one call, at most.
const STEPS_MAX: u32 = 4;

/// Who goes on within the calls of the node that is being stepped.
struct Others {
    nodes: Vec<Node>,
    now_ns: u64,
    coordinator: Sim,
    random: Random,
    /// Of a hundred calls, within how many others go on.
    percent: u64,
    /// A call's usual time.
    call_ns: u64,
    heard: Vec<(u32, Vec<News>)>,
    steps: u64,
}

thread_local! {
    static OTHERS: RefCell<Option<Others>> = const { RefCell::new(None) };
}

/// What happened within the calls of a step.
pub(crate) struct Between {
    /// What the others told, in the order of their steps.
    pub(crate) heard: Vec<(u32, Vec<News>)>,
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
    /// Decides what happens within these calls.
    pub(crate) random: Random,
}

/// Steps one of the nodes; the others may go on within its calls.
pub(crate) fn step(
    at: usize,
    nodes: &mut Vec<Node>,
    coordinator: &Sim,
    calls: Calls,
    news: &mut Vec<News>,
) -> Between {
    let Calls { now_ns, percent, call_ns, random } = calls;
    if percent == 0 || nodes.len() < 2 {
        nodes[at].step(now_ns, news);
        return Between { heard: Vec::new(), steps: 0, now_ns };
    }
    let mut node = nodes.remove(at);
    let (others, coordinator, heard) = (std::mem::take(nodes), coordinator.clone(), Vec::new());
    let others = Others { nodes: others, now_ns, coordinator, random, percent, call_ns, heard, steps: 0 };
    OTHERS.set(Some(others));
    node.step(now_ns, news);
    let others = OTHERS.take().expect("a step puts the others back");
    *nodes = others.nodes;
    nodes.insert(at, node);
    Between { heard: others.heard, steps: others.steps, now_ns: others.now_ns }
}

/// The present of the node that is being stepped: later than the time at which its step began, if a call of
/// it has taken time since.
pub(crate) fn present_ns(begun_ns: u64) -> u64 {
    OTHERS.with_borrow(|others| others.as_ref().map_or(begun_ns, |others| others.now_ns.max(begun_ns)))
}

/// A call of the node that is being stepped: before or after it is carried out, others go on.
pub(crate) fn around<T>(call: impl FnOnce() -> T) -> T {
    // Taken out: calls of the others are not interleaved once more.
    let Some(mut others) = OTHERS.take() else { return call() };
    let before = others.goes_on().then(|| others.random.percent(50));
    if before == Some(true) {
        others.go_on();
    }
    let answer = call();
    if before == Some(false) {
        others.go_on();
    }
    OTHERS.set(Some(others));
    answer
}

impl Others {
    fn goes_on(&mut self) -> bool {
        self.random.percent(self.percent)
    }

    /// Time passes until the answer comes; who is due before is stepped when it is due.
    fn go_on(&mut self) {
        let until_ns = self.now_ns + self.random.time_ns(self.call_ns);
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
            let told = !news.is_empty();
            self.heard.push((node.host, news));
            if told {
                break; // the world is to hear it before that node goes on
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        self.coordinator.set_now(self.now_ns);
    }
}
