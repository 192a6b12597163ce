//! One drill at a time in a cluster: a row of the coordinator that names it, and that goes with the lease of
//! who runs it: a node, or the agent that has the drill's turn.

use std::thread;
use std::time::Duration;

use cell_cluster::{ClusterError, Coordinator, KeyCondition, Transaction, TransactionOutcome};
use cell_terms::Incarnation;
use serde::{Deserialize, Serialize};

const KEY: &str = cell_cluster::KEY_DRILL;
/// Tries of one call, against others that come and go.
const TRIES: usize = 5;
/// The kind of a drill of which none is known.
pub const ANY_KIND: &str = "drill";
/// Between tries to take the row away while the coordinator is not reached.
const AGAIN: Duration = Duration::from_secs(1);
const RELEASES_MAX: usize = 60;

/// The drill that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// Its name.
    pub id: String,
    /// The node that runs it, or the first one of the agent that has its turn.
    pub runner: u32,
    /// What is done; [`ANY_KIND`] where who has the turn is not known.
    pub kind: String,
    /// The node that it is done to.
    pub node: u16,
    /// What distinguishes it from other requests, if it may be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_id: Option<u64>,
    /// The lease of the agent that keeps it, until what the drill has left is taken back: who runs the drill
    /// takes it away no more. None: no agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<u64>,
}

impl ClaimRow {
    /// Whether both come of one request, which was sent twice.
    #[must_use]
    pub fn is_same(&self, other: &ClaimRow) -> bool {
        self.repeat_id.is_some() && self.repeat_id == other.repeat_id
    }

    /// The number that its name ends with; none of a name without one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        u64::from_str_radix(self.id.rsplit_once('-')?.1, 16).ok()
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("plain structures with text keys")
    }

    /// Writes the row, unless another drill has it: that one.
    ///
    /// # Errors
    /// The coordinator's.
    pub fn take(
        &self,
        coordinator: &dyn Coordinator,
        lease: Incarnation,
    ) -> Result<Option<ClaimRow>, ClusterError> {
        for _ in 0..TRIES {
            let absent = KeyCondition::Absent { key: KEY.to_owned() };
            let put = Transaction::new().when(absent).put_leased(KEY, self.text(), lease);
            match coordinator.transact(put) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(None),
                Ok(TransactionOutcome::Refused { .. }) | Err(ClusterError::OutcomeUnknown(_)) => {}
                Err(error) => return Err(error),
            }
            let found = coordinator.read(KEY)?;
            let found = found.and_then(|row| serde_json::from_str::<ClaimRow>(&row.value).ok());
            match found {
                Some(row) if row == *self => return Ok(None),
                Some(row) => return Ok(Some(row)),
                None => {}
            }
        }
        Err(ClusterError::Contended { what: "the drill" })
    }

    /// Has the row, if it is this one, go with an agent's lease from now on, and by nothing else; whether it
    /// does. A row that an agent keeps is that agent's: its drill runs, or is taken back, and whoever names
    /// it does not get it, or would end it. Without its agent it goes by itself.
    ///
    /// # Errors
    /// The coordinator's.
    pub fn keep_under(
        &self,
        coordinator: &dyn Coordinator,
        lease: Incarnation,
    ) -> Result<bool, ClusterError> {
        if let Some(keeper) = self.kept_by {
            return Ok(keeper == lease.0); // the answer to a try before was lost
        }
        let own = KeyCondition::Value { key: KEY.to_owned(), value: self.text() };
        let kept = ClaimRow { kept_by: Some(lease.0), ..self.clone() };
        let put = Transaction::new().when(own).put_leased(KEY, kept.text(), lease);
        Ok(matches!(coordinator.transact(put)?, TransactionOutcome::Applied { .. }))
    }

    /// Takes the row away if it is this one and no agent keeps it, in one try.
    ///
    /// # Errors
    /// The coordinator's.
    pub fn try_release(&self, coordinator: &dyn Coordinator) -> Result<(), ClusterError> {
        if self.kept_by.is_some() {
            return Ok(());
        }
        let own = KeyCondition::Value { key: KEY.to_owned(), value: self.text() };
        coordinator.transact(Transaction::new().when(own).delete(KEY)).map(drop)
    }

    /// Takes the row away. Blocks while the coordinator is not reached, for a minute or so.
    pub fn release(&self, coordinator: &dyn Coordinator) {
        for _ in 0..RELEASES_MAX {
            match self.try_release(coordinator) {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the drill's row could not be taken away yet"),
            }
            thread::park_timeout(AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Fault, Sim};

    use super::*;

    fn row(id: &str) -> ClaimRow {
        ClaimRow { id: id.to_owned(), runner: 1, kind: "kill".to_owned(), ..ClaimRow::default() }
    }

    #[test]
    fn take_is_granted_to_one_until_it_releases_or_its_lease_ends() {
        let sim = Sim::new(1);
        let link = sim.link();
        let lease = link.grant(1_000).unwrap().lease;
        assert_eq!(row("a").take(&link, lease).unwrap(), None);
        assert_eq!(row("a").take(&link, lease).unwrap(), None, "it is its own already");
        assert_eq!(row("b").take(&link, lease).unwrap(), Some(row("a")));
        row("b").release(&link); // not its own: stays
        assert_eq!(row("b").take(&link, lease).unwrap(), Some(row("a")));
        row("a").release(&link);
        assert_eq!(row("b").take(&link, lease).unwrap(), None);
        sim.advance(2_000_000_000);
        let lease = link.grant(1_000).unwrap().lease;
        assert_eq!(row("c").take(&link, lease).unwrap(), None, "b's lease has ended");
    }

    #[test]
    fn keep_under_another_lease_outlasts_the_one_it_was_taken_under() {
        let sim = Sim::new(1);
        let link = sim.link();
        let [short, long] = [1_000, 60_000].map(|ms| link.grant(ms).unwrap().lease);
        assert_eq!(row("a").take(&link, short).unwrap(), None);
        assert!(!row("b").keep_under(&link, long).unwrap(), "it is another one's");
        assert!(row("a").keep_under(&link, long).unwrap());
        sim.advance(2_000_000_000);
        let lease = link.grant(1_000).unwrap().lease;
        let kept = ClaimRow { kept_by: Some(long.0), ..row("a") };
        assert_eq!(row("b").take(&link, lease).unwrap(), Some(kept.clone()));
        assert!(!kept.keep_under(&link, lease).unwrap(), "it is the agent's, whoever names it");
        assert!(kept.keep_under(&link, long).unwrap(), "the agent has it already");
        for runners in [&row("a"), &kept] {
            runners.release(&link);
            let other = row("b").take(&link, lease).unwrap();
            assert_eq!(other.as_ref(), Some(&kept), "it is the agent's, which still heals");
        }
        link.end_lease(long).unwrap();
        assert_eq!(row("b").take(&link, lease).unwrap(), None);
    }

    #[test]
    fn number_is_what_the_name_of_a_run_ends_with() {
        let numbers = ["drill-2-00000000000000ff", "drill-0-1", "drill-x", "a"].map(|id| row(id).number());
        assert_eq!(numbers, [Some(255), Some(1), None, None]);
    }

    #[test]
    fn take_whose_answer_is_lost_knows_its_own_row() {
        let link = Sim::new(1).link();
        let lease = link.grant(1_000).unwrap().lease;
        link.plan([Fault::AnswerLost]);
        assert_eq!(row("a").take(&link, lease).unwrap(), None);
        link.plan([Fault::NotReached]);
        assert!(row("b").take(&link, lease).is_err());
    }
}
