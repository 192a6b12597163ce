//! Whose turn it is to do a drill to the cluster: one at a time, and no node comes or goes meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cell_drill::wire::Refused;

use super::scale_wire::refuse;

/// Within such a time it is noticed that a drill has ended: another thread looks at its connection.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);

/// What the drill that runs is done to, if one runs.
#[derive(Clone)]
pub(crate) struct DrillTurns {
    running: Arc<(Mutex<Option<String>>, Condvar)>,
    noticed_within: Duration,
}

/// The turn of one connection, once it has taken it. Dropping it ends the turn.
pub(super) struct DrillTurn {
    turns: DrillTurns,
    taken: bool,
}

impl Default for DrillTurns {
    fn default() -> DrillTurns {
        DrillTurns { running: Arc::default(), noticed_within: NOTICED_WITHIN }
    }
}

impl DrillTurns {
    /// No drill runs, and none begins as long as this is held.
    ///
    /// # Errors
    /// One runs.
    pub(super) fn idle(&self) -> Result<MutexGuard<'_, Option<String>>, Refused> {
        let (running, ended) = &*self.running;
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ended.wait_timeout_while(running, self.noticed_within, |running| running.is_some());
        let (running, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let refused = running.as_ref().map(|what| is_running(what));
        refused.map_or(Ok(running), Err)
    }
}

impl DrillTurn {
    /// None yet.
    pub(super) fn new(turns: &DrillTurns) -> DrillTurn {
        DrillTurn { turns: turns.clone(), taken: false }
    }

    /// A drill begins, of this node or of all.
    ///
    /// # Errors
    /// Another one runs.
    pub(super) fn take(&mut self, node: Option<u16>) -> Result<(), Refused> {
        if !self.taken {
            let mut running = self.turns.idle()?;
            *running = Some(node.map_or_else(|| "all nodes".to_owned(), |node| format!("node {node}")));
            self.taken = true;
        }
        Ok(())
    }
}

impl Drop for DrillTurn {
    fn drop(&mut self) {
        if self.taken {
            let (running, ended) = &*self.turns.running;
            *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
            ended.notify_all();
        }
    }
}

fn is_running(what: &str) -> Refused {
    refuse(
        format!("a drill of {what} is running"),
        "wait until it has ended, or stop it; `cell drill ls` shows the nodes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(noticed_within: Duration) -> DrillTurns {
        DrillTurns { noticed_within, ..DrillTurns::default() }
    }

    /// Two that ran at once took each other's faults away, and a node left in the middle of one.
    #[test]
    fn turn_is_of_one_connection_until_that_ends() {
        let turns = turns(Duration::ZERO);
        let (mut first, mut second) = (DrillTurn::new(&turns), DrillTurn::new(&turns));
        assert_eq!(first.take(Some(1)), Ok(()));
        assert_eq!(first.take(Some(1)), Ok(()), "it is its own");
        assert_eq!(second.take(None).unwrap_err().what, "a drill of node 1 is running");
        assert_eq!(turns.idle().unwrap_err().what, "a drill of node 1 is running");
        drop(second);
        assert!(turns.idle().is_err(), "who was refused ends nothing");
        drop(first);
        assert!(turns.idle().is_ok());
        let mut third = DrillTurn::new(&turns);
        assert_eq!(third.take(None), Ok(()));
        assert_eq!(turns.idle().unwrap_err().what, "a drill of all nodes is running");
    }

    #[test]
    fn turn_that_ends_just_now_is_waited_for() {
        let turns = turns(Duration::from_secs(120));
        let mut first = DrillTurn::new(&turns);
        first.take(None).unwrap();
        let (mut second, ends) = (DrillTurn::new(&turns), std::thread::spawn(move || drop(first)));
        assert_eq!(second.take(Some(0)), Ok(()));
        ends.join().unwrap();
    }
}
