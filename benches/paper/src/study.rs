//! What all tables and figures share: the paper's figures, the calibrated machines, how long is simulated,
//! and which of many runs is shown.

use crate::calibration::{Calibration, Clients};
use crate::cluster::{Cluster, Splits, fixed};
use crate::data::PaperData;
use crate::observed::Observed;
use crate::plot::Plot;
use crate::sheet::Sheet;

/// What is shown of one table or figure.
pub type Outcome = (Vec<Sheet>, Vec<Plot>);

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Study {
    /// The paper's figures.
    pub data: PaperData,
    /// The model's machines.
    pub calibration: Calibration,
    /// What all draws come from.
    pub seed: u64,
    /// A tenth of the time, fewer servers: it shows that everything works, and its figures mean little.
    pub short: bool,
}

impl Study {
    /// A study of the paper's figures.
    #[must_use]
    pub fn new(data: PaperData, seed: u64, short: bool) -> Study {
        let calibration = Calibration::new(&data.inputs);
        Study { data, calibration, seed, short }
    }

    /// So much time, or a tenth of it, in whole windows of 5 ms.
    pub(crate) fn time_ns(&self, ms: u64) -> u64 {
        let ms = if self.short { (ms / 10).max(10) } else { ms };
        ms.div_ceil(5) * 5_000_000
    }

    /// Runs it until all clients have settled, and then as long as figures need.
    pub(crate) fn steady(&self, cluster: Cluster) -> Observed {
        self.settled(cluster, 150)
    }

    /// As [`Study::steady`], with so much time that counts.
    pub(crate) fn settled(&self, cluster: Cluster, counted_ms: u64) -> Observed {
        let warm_ns = self.time_ns(300);
        let until_ns = warm_ns + self.time_ns(counted_ms);
        Cluster { seed: self.seed, ..cluster.lasting(warm_ns, until_ns) }.run()
    }

    /// One run with a fixed share, which has nothing to settle.
    pub(crate) fn at_share(&self, cluster: &Cluster, share: f64) -> Observed {
        let warm_ns = self.time_ns(20);
        let until_ns = warm_ns + self.time_ns(60);
        Cluster { seed: self.seed, ..cluster.with(&fixed(share)).lasting(warm_ns, until_ns) }.run()
    }

    /// The splits that inserts cause. Where the time is a tenth, meganodes are, too: some split in it.
    pub(crate) fn splits(&self) -> Splits {
        let of_the_paper = Splits::OF_THE_PAPER;
        let parts = if self.short { 10 } else { 1 };
        let (inserts, pieces) = (of_the_paper.inserts / parts, of_the_paper.pieces / parts);
        Splits { inserts, pieces, ..of_the_paper }
    }

    /// The best of all fixed shares, to an eightieth, and that share. Those of `also` are tried, too: what a
    /// rule came to in the mean.
    pub(crate) fn best_fixed(&self, cluster: &Cluster, also: &[f64]) -> (f64, f64) {
        let rate = |share: f64| (self.at_share(cluster, share).rate_k(), share);
        let best = |shares: &[f64]| {
            let rates = shares.iter().map(|share| rate(*share));
            rates.max_by(|one, other| one.0.total_cmp(&other.0)).expect("there are shares")
        };
        let found = best(&[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]);
        let found = [0.05, 0.025, 0.0125].into_iter().fold(found, |found, step| {
            let beside = [found.1 - step, found.1 + step];
            // Beyond the ends there is nothing, and the end itself was tried.
            let shares: Vec<f64> = beside.into_iter().filter(|share| (0.0..=1.0).contains(share)).collect();
            better(found, best(&shares))
        });
        also.iter().fold(found, |found, share| better(found, rate(*share)))
    }

    /// Of several numbers of clients the one whose latency is lowest, of those within 5 % of the highest
    /// throughput: as the paper has it (4.2).
    pub(crate) fn saturated(
        &self,
        candidates: &[Clients],
        run: impl Fn(Clients) -> Observed,
    ) -> (Clients, Observed) {
        let mut runs: Vec<(Clients, Observed)> =
            candidates.iter().map(|clients| (*clients, run(*clients))).collect();
        let highest_k = runs.iter().map(|(_, run)| run.rate_k()).fold(0.0, f64::max);
        runs.retain(|(_, run)| run.rate_k() >= 0.95 * highest_k);
        let mean_us = |run: &Observed| run.total().latencies.mean_us();
        let nearest = runs.into_iter().min_by(|one, other| mean_us(&one.1).total_cmp(&mean_us(&other.1)));
        nearest.expect("there are candidates")
    }
}

/// The higher of two rates with their shares; the first if they are alike.
fn better(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    if other.0 > one.0 { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::PIPELINED;
    use crate::card::Card;
    use crate::data::DATA;
    use crate::tree::Areas;

    /// About what the calibration finds, without that: any machines will do here.
    fn study() -> Study {
        let data = PaperData::parse(&DATA).unwrap();
        let calibration = Calibration {
            inputs: data.inputs.clone(),
            cards: vec![(1.0, Card::of_rates(1.04, 0.75, 1.6, 0.125))],
            cpu_ns: vec![8_000.0],
            single_cpu_ns: 6_300.0,
            wire_ns: 14_800.0,
            connections_max: f64::INFINITY,
            state_ns: 0.0,
            areas: Areas::new(&data.inputs),
        };
        Study { data, calibration, seed: 7, short: true }
    }

    /// As the mean share of a rule, which lies beside the steps and was once better than the best of them.
    #[test]
    fn best_fixed_share_is_no_worse_than_any_that_it_is_given() {
        let study = study();
        let clients = Clients { processes: 40, in_hand: PIPELINED };
        let model = study.calibration.cluster((4, 1), clients, &fixed(1.0));
        let shares: Vec<f64> = (0..20).map(|at| 0.2 + 0.0083 * f64::from(at)).collect();
        let rates = shares.iter().map(|share| study.at_share(&model, *share).rate_k());
        let highest_k = rates.fold(0.0, f64::max);
        let (best_k, best_share) = study.best_fixed(&model, &shares);
        assert!(best_k >= highest_k, "{best_k} at {best_share}, {highest_k}");
        assert!(best_k >= study.best_fixed(&model, &[]).0, "and than the best of the steps");
    }
}
