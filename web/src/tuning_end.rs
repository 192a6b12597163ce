//! Tuned values whose time is over: each node looks once a second, and whoever is first takes them back.

use std::sync::atomic::{AtomicBool, Ordering};

use cell_cluster::{ClusterError, Coordinator, Tuned, Tuning, TuningRow, WantedTuning};
use tracing::info;

use crate::coordination::{CHANGE_PATIENCE, Coordination};

/// Who makes these changes, in the history.
const AUTHOR: &str = "cell";

/// Whether the end of values is being seen to.
#[derive(Debug, Default)]
pub(crate) struct TuningEnd {
    under_way: AtomicBool,
}

impl TuningEnd {
    /// Takes values back whose time is over, if the last look at the cluster showed such ones. What does not
    /// succeed is done at a later look, or by another node.
    pub(crate) async fn look(&self, coordination: &Coordination, seen: &TuningRow, now_unix_ms: u64) {
        if seen.expired(now_unix_ms).is_none() || self.under_way.swap(true, Ordering::Relaxed) {
            return;
        }
        let end = move |coordinator: std::sync::Arc<dyn Coordinator>| {
            end_expired(&Tuning::new(coordinator), now_unix_ms)
        };
        match coordination.call(CHANGE_PATIENCE, end).await {
            Ok(Some(revision)) => info!(revision, "the time of tuned values is over: they are taken back"),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "tuned values whose time is over are not taken back yet"),
        }
        self.under_way.store(false, Ordering::Relaxed);
    }
}

/// The revision that takes back what is over; none if nothing is, or another was faster.
fn end_expired(tuning: &Tuning, now_unix_ms: u64) -> Result<Option<u64>, ClusterError> {
    let row = tuning.current()?;
    let Some(over) = row.expired(now_unix_ms) else { return Ok(None) };
    let wanted = WantedTuning {
        id: row.revision, // whichever node's: all take the same back
        at_unix_ms: now_unix_ms,
        who: AUTHOR.to_owned(),
        reason: Some("its time to live ended".to_owned()),
        ..over
    };
    match tuning.change(row.revision, &wanted)? {
        Tuned::Changed(change) => Ok(Some(change.revision)),
        Tuned::Unchanged | Tuned::Stale(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_cluster::Sim;

    use super::*;

    #[tokio::test]
    async fn look_takes_back_what_is_over_once_and_leaves_the_rest() {
        let sim = Sim::new(1);
        let tuning = Tuning::new(Arc::new(sim.link()));
        let change = |revision, text: &str, expires_unix_ms| {
            let values = [("a".to_owned(), Some(text.to_owned()))].into();
            let wanted = WantedTuning { id: 9, expires_unix_ms, values, ..WantedTuning::default() };
            tuning.change(revision, &wanted).unwrap();
        };
        change(0, "1", None);
        change(1, "2", Some(5_000));
        let seen = tuning.current().unwrap();
        let link = sim.link();
        let coordination = Coordination::new(Some(Arc::new(link.clone())));
        let end = TuningEnd::default();
        end.look(&coordination, &seen, 4_999).await;
        assert_eq!(tuning.current().unwrap(), seen);
        link.set_cut(true);
        end.look(&coordination, &seen, 5_000).await;
        assert_eq!(tuning.current().unwrap(), seen, "the coordinator was away");
        link.set_cut(false);
        for _ in 0..2 {
            end.look(&coordination, &seen, 5_000).await;
            let row = tuning.current().unwrap();
            assert_eq!((row.revision, row.values["a"].text.as_str()), (3, "1"));
        }
        let last = tuning.changes(None, 1).unwrap().remove(0);
        assert_eq!((last.who.as_str(), last.reason.as_deref()), (AUTHOR, Some("its time to live ended")));
    }
}
