//! Takeovers of pairs: which one is next, and one of them a step at a time. The threads of `recoverer` step
//! them, and so does the simulator.
//!
//! The pair with the least to replay comes first: that is what keeps the mean time that a key is unavailable
//! shortest.

use std::sync::Arc;

use cell_cluster::{Claim, NewPair, Ownership, PairRow, ShareTimes};
use cell_pair::Pair;
use cell_recovery::{
    ClaimRequest, Environment, Progress, PublishRequest, Recovered, RecoveryError, Restore, Takeover, Turn,
};
use cell_terms::{Incarnation, PairId};
use cell_wal::LogDevice;

/// A pair to be taken over.
#[derive(Debug)]
pub struct TakeoverJob {
    /// The pair, for whom, and by what right.
    pub claim: ClaimRequest,
    /// What a recovery reads, about.
    pub replay_bytes: u64,
    /// In whose incident its share is noted.
    pub dead: Incarnation,
    /// How far it is, for people.
    pub progress: Arc<Progress>,
    /// The pair's memory, if this node has it still.
    pub(crate) kept: Option<KeptPair>,
}

/// A pair that was handed over by a planned move and has come back by this node's own write, with its memory.
#[derive(Debug)]
pub(crate) struct KeptPair {
    pub(crate) pair: Box<Pair>,
    /// As that write has made it.
    pub(crate) row: Box<PairRow>,
}

impl KeptPair {
    /// What is left of its takeover; none if its memory cannot be of use.
    fn takeover(
        self,
        environment: &Environment,
        incarnation: Incarnation,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Option<Takeover> {
        let KeptPair { pair, row } = self;
        let ownership = Ownership { pair: row.pair, epoch: row.epoch, incarnation };
        let recovered = pair.into_recovered(row.epoch);
        let recovered = recovered.inspect_err(|error| {
            tracing::error!(%error, pair = %ownership.pair, "a pair that was kept in memory cannot be read");
        });
        Takeover::kept(environment, Claim { ownership, row: *row }, recovered.ok()?, publish, progress)
    }
}

/// Takeovers to come.
#[derive(Debug, Default)]
pub struct TakeoverQueue {
    jobs: Vec<TakeoverJob>,
}

impl TakeoverQueue {
    /// Takes jobs on, all that are known: the smallest of them comes first.
    pub fn push(&mut self, jobs: Vec<TakeoverJob>) {
        self.jobs.extend(jobs);
    }

    /// The job that is next: the smallest one.
    pub fn take_smallest(&mut self) -> Option<TakeoverJob> {
        let jobs = self.jobs.iter().enumerate();
        let (smallest, _) = jobs.min_by_key(|(_, job)| (job.replay_bytes, job.claim.pair))?;
        Some(self.jobs.swap_remove(smallest))
    }
}

/// A takeover under way, or a new pair that is being created.
pub struct TakeoverRun {
    pair: PairId,
    /// None: the pair is new.
    dead: Option<Incarnation>,
    is_kept: bool,
    takeover: Takeover,
    times: ShareTimes,
}

impl TakeoverRun {
    /// A takeover that begins with the claim, or, of a pair whose memory was kept, after it.
    #[must_use]
    pub fn begin(environment: &Environment, job: TakeoverJob, publish: PublishRequest) -> TakeoverRun {
        let TakeoverJob { claim, dead, progress, kept, .. } = job;
        let kept =
            kept.and_then(|kept| kept.takeover(environment, claim.incarnation, publish.clone(), &progress));
        TakeoverRun {
            pair: claim.pair,
            dead: Some(dead),
            is_kept: kept.is_some(),
            takeover: kept.unwrap_or_else(|| Takeover::new(environment, claim, publish, &progress)),
            times: ShareTimes::default(),
        }
    }

    /// Creates a pair in the table; the rest goes like a takeover. Where it fails, now or later, the row may
    /// be there all the same, or come: its owner's membership has the pair taken over then.
    ///
    /// # Errors
    /// The pair cannot be created, or its layout is not known.
    pub fn create(
        environment: &Environment,
        new: &NewPair,
        publish: PublishRequest,
        progress: &Arc<Progress>,
    ) -> Result<TakeoverRun, RecoveryError> {
        let restore = Restore::create(environment, new, progress)?;
        Ok(TakeoverRun {
            pair: restore.ownership().pair,
            dead: None,
            is_kept: false,
            takeover: Takeover::claimed(environment, restore, publish, progress),
            times: ShareTimes::default(),
        })
    }

    /// The pair.
    #[must_use]
    pub fn pair(&self) -> PairId {
        self.pair
    }

    /// In whose incident its share is noted; none: the pair is new.
    #[must_use]
    pub fn dead(&self) -> Option<Incarnation> {
        self.dead
    }

    /// Whether its memory is that of a pair which has come back, and nothing was read from its logs.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Does the next piece of work. The clock is read after it.
    ///
    /// # Errors
    /// See [`RecoveryError`]; nothing is served then, and the takeover is over.
    pub fn step(
        &mut self,
        device: &mut dyn LogDevice,
        clock_ns: impl FnOnce() -> u64,
    ) -> Result<Turn, RecoveryError> {
        let turn = self.takeover.step(device)?;
        self.mark(turn == Turn::Done, clock_ns() / 1_000_000);
        Ok(turn)
    }

    /// Marks how far it has come, the first time that it is seen to be there.
    fn mark(&mut self, done: bool, now_ms: u64) {
        let mark = |at: &mut u64, is: bool| {
            if is && *at == 0 {
                *at = now_ms;
            }
        };
        let (times, takeover) = (&mut self.times, &self.takeover);
        mark(&mut times.claimed_ms, takeover.ownership().is_some() || takeover.is_restored());
        mark(&mut times.cut_ms, takeover.is_cut());
        mark(&mut times.replayed_ms, takeover.is_restored());
        mark(&mut times.serving_ms, done);
    }

    /// What was taken over, and when it came how far. The times are reported all at once: each report is a
    /// write of the coordinator's, which renews leases meanwhile.
    ///
    /// # Panics
    /// Before [`Turn::Done`].
    #[must_use]
    pub fn finish(self) -> (Recovered, ShareTimes) {
        let recovered = self.takeover.finish();
        let replayed_bytes = recovered.image_bytes + recovered.log_bytes;
        (recovered, ShareTimes { replayed_bytes, ..self.times })
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::ClaimReason;
    use cell_terms::NodeId;

    use super::*;

    fn job(pair: u32, replay_bytes: u64) -> TakeoverJob {
        let (incarnation, reason) = (Incarnation(7), ClaimReason::LeaseEnded);
        TakeoverJob {
            claim: ClaimRequest { pair: PairId(pair), incarnation, node: NodeId(0), reason },
            replay_bytes,
            dead: Incarnation(3),
            progress: Arc::new(Progress::new(0)),
            kept: None,
        }
    }

    #[test]
    fn smallest_job_comes_first_and_the_lower_pair_of_two_that_are_alike() {
        let mut queue = TakeoverQueue::default();
        queue.push(vec![job(1, 50), job(4, 10), job(2, 10)]);
        let mut next = || queue.take_smallest().map(|job| job.claim.pair.0);
        assert_eq!((next(), next()), (Some(2), Some(4)));
        queue.push(vec![job(5, 20)]);
        let mut next = || queue.take_smallest().map(|job| job.claim.pair.0);
        assert_eq!((next(), next(), next()), (Some(5), Some(1), None));
    }
}
