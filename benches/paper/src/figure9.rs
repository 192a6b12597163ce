//! Figure 9: mixes of gets and writes, and YCSB A and B, whose keys are drawn by Zipf's law.

use serde_json::Value;

use crate::calibration::{Clients, PIPELINED, SERVERS};
use crate::cluster::{Cluster, Mix, fixed, policy};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, met, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;
/// Of inserts so much time counts: some meganodes split in it.
const INSERTS_MS: u64 = 3_000;
/// YCSB's.
pub(crate) const THETA: f64 = 0.99;
/// Keys that are drawn so often that each one is placed for itself.
const HOT_KEYS: u64 = 100_000;
/// A server's pairs take so much: keys of 36 bytes and values of 132 in the mean.
const PAIR_BYTES: f64 = 168.0;

/// How often each process is asked if keys are drawn by Zipf's law, and lie where chance has put them.
pub(crate) fn zipf(processes: usize, keys: f64) -> Vec<f64> {
    let weight = |rank: f64| rank.powf(-THETA);
    // The rest by the integral: (n^(1 - theta) - m^(1 - theta)) / (1 - theta).
    let whole = |rank: f64| rank.powf(1.0 - THETA) / (1.0 - THETA);
    let rest = whole(keys) - whole(HOT_KEYS as f64);
    let mut asked = vec![rest / processes as f64; processes];
    for rank in 1..=HOT_KEYS {
        let mixed = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let at = usize::try_from(mixed).expect("32 bits") % processes;
        asked[at] += weight(rank as f64);
    }
    let sum: f64 = asked.iter().sum();
    asked.iter().map(|one| one / sum).collect()
}

const COLUMNS: [&str; 8] = [
    "workload",
    "server_only_k",
    "cell_k",
    "cell_times_server_only",
    "gets_server_side_percent",
    "paper_rule_k",
    "best_fixed_k",
    "met_at_least_server_only",
];

/// What is found of a workload. Rates in thousands a second.
struct Found {
    server_only_k: f64,
    cell_k: f64,
    paper_rule_k: f64,
    /// Gets by the servers, and the best of all fixed shares of them; where nothing is got no selector is
    /// asked.
    gets_percent: Option<f64>,
    best_fixed_k: Option<f64>,
}

impl Found {
    fn new(study: &Study, model: &Cluster) -> Found {
        let mix = model.groups[0].mix;
        if mix.gets == 0.0 {
            let counted_ms = if mix.inserts > 0.0 { INSERTS_MS } else { 150 };
            let rate_k = study.settled(model.clone(), counted_ms).rate_k();
            let (server_only_k, cell_k, paper_rule_k) = (rate_k, rate_k, rate_k);
            return Found { server_only_k, cell_k, paper_rule_k, gets_percent: None, best_fixed_k: None };
        }
        let by = |settings: &_| study.steady(model.with(settings));
        let (cell, paper_rule) = (by(&policy("adaptive")), by(&policy("paper")));
        let shares = [&cell, &paper_rule].map(|run| run.total().share());
        Found {
            server_only_k: by(&fixed(1.0)).rate_k(),
            cell_k: cell.rate_k(),
            paper_rule_k: paper_rule.rate_k(),
            gets_percent: Some(cell.server_percent()),
            best_fixed_k: Some(study.best_fixed(model, &shares).0),
        }
    }

    fn row(&self, name: &str) -> Vec<Value> {
        let of_gets = |figure: Option<f64>| figure.map_or(Value::Null, number);
        vec![
            Value::from(name),
            number(self.server_only_k),
            number(self.cell_k),
            number(self.cell_k / self.server_only_k),
            of_gets(self.gets_percent),
            number(self.paper_rule_k),
            of_gets(self.best_fixed_k),
            self.gets_percent.map_or(Value::Null, |_| met(self.cell_k >= self.server_only_k)),
        ]
    }
}

pub(crate) fn outcome(study: &Study) -> Outcome {
    let title = "operations of four servers with two cores, in thousands a second; the paper's figure has no \
         numbers in the text";
    let mut sheet = Sheet::new("figure9", title, &COLUMNS);
    let mut lines: Vec<Line> = ["adaptive", "rule of the paper", "server only"]
        .iter()
        .map(|name| Line { name: (*name).to_owned(), points: Vec::new(), is_paper: false })
        .collect();
    let clients = Clients { processes: study.calibration.processes(SERVERS * CORES), in_hand: PIPELINED };
    let pairs = 1e6 * study.data.inputs.single("pairs_per_server");
    let adaptive = policy("adaptive");
    for (at, (name, mix, is_skewed)) in workloads().into_iter().enumerate() {
        let mut model = study.calibration.cluster((SERVERS, CORES), clients, &adaptive);
        model.groups[0].mix = mix;
        model.splits = Some(study.splits());
        model.extent_area = study.calibration.areas.of_bytes(pairs * PAIR_BYTES);
        if is_skewed {
            model.asked = zipf(SERVERS * CORES, pairs * SERVERS as f64);
        }
        let found = Found::new(study, &model);
        sheet.add(found.row(name));
        for (line, rate_k) in lines.iter_mut().zip([found.cell_k, found.paper_rule_k, found.server_only_k]) {
            line.points.push((at as f64 + 1.0, rate_k));
        }
    }
    sheet.note(
        "A write is one message and takes the server one and a half searches; an insert 1.64 in the mean, \
         with the nodes that split, and a meganode is copied now and then. A get reads its pair besides. \
         Where nothing is searched no selector is asked: one run stands for all.",
    );
    let plot = Plot {
        name: "figure9",
        title: "Figure 9: gets and writes, in the order of the table".to_owned(),
        axes: ["workload", "thousands of operations a second"],
        logarithmic: [false; 2],
        lines,
    };
    (vec![sheet], vec![plot])
}

/// Names, what is done, and whether keys are drawn by Zipf's law.
fn workloads() -> [(&'static str, Mix, bool); 8] {
    let updates = |updates: f64| Mix { gets: 1.0 - updates, updates, inserts: 0.0 };
    [
        ("100 % get", updates(0.0), false),
        ("75 % get, 25 % update", updates(0.25), false),
        ("50 % get, 50 % update", updates(0.5), false),
        ("25 % get, 75 % update", updates(0.75), false),
        ("100 % update", updates(1.0), false),
        ("100 % insert", Mix { inserts: 1.0, ..Mix::default() }, false),
        ("YCSB A: 50 % update, Zipf", updates(0.5), true),
        ("YCSB B: 5 % update, Zipf", updates(0.05), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_parts_sum_up_to_one_and_the_hottest_key_makes_its_process_hot() {
        let asked = zipf(32, 320e6);
        assert!((asked.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let hottest = asked.iter().copied().fold(0.0, f64::max);
        assert!((0.045..0.12).contains(&hottest), "{hottest}");
        assert_eq!(zipf(32, 320e6), asked);
    }
}
