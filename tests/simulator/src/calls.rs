//! Calls of the coordinator take time, and other nodes go on meanwhile. A call is a function that is called,
//! so the others are stepped within it: while one node is stepped, they lie here, and who calls lets them go
//! on.

use std::cell::RefCell;
use std::rc::Rc;

/// When others go on, seen from the moment at which a call is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Before,
    After,
}

/// Who goes on within the calls of the node that is being stepped.
pub(crate) trait Others {
    /// The present.
    fn now_ns(&self) -> u64;

    /// Whether they go on within the next call, and when.
    fn turn_in_call(&mut self) -> Option<Turn>;

    /// Time passes until the answer comes; who is due before is stepped when it is due.
    fn go_on(&mut self);
}

thread_local! {
    static OTHERS: RefCell<Option<Rc<RefCell<dyn Others>>>> = const { RefCell::new(None) };
}

/// Does something, within whose calls these go on.
pub(crate) fn with_others(others: Rc<RefCell<dyn Others>>, step: impl FnOnce()) {
    OTHERS.set(Some(others));
    step();
    OTHERS.set(None);
}

/// The present of the node that is being stepped: later than the time at which its step began, if a call of
/// it has taken time since.
pub(crate) fn present_ns(started_ns: u64) -> u64 {
    let present_ns = |others: &Rc<RefCell<dyn Others>>| others.borrow().now_ns().max(started_ns);
    OTHERS.with_borrow(|others| others.as_ref().map_or(started_ns, present_ns))
}

/// A call of the node that is being stepped: before or after it is carried out, others go on.
pub(crate) fn around<T>(call: impl FnOnce() -> T) -> T {
    // Taken out: calls of the others are not interleaved once more.
    let Some(others) = OTHERS.take() else { return call() };
    let turn = others.borrow_mut().turn_in_call();
    if turn == Some(Turn::Before) {
        others.borrow_mut().go_on();
    }
    let answer = call();
    if turn == Some(Turn::After) {
        others.borrow_mut().go_on();
    }
    OTHERS.set(Some(others));
    answer
}
