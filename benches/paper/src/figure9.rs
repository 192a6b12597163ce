//! Figure 9: mixes of gets and writes, and YCSB A and B, whose keys are drawn by Zipf's law.

use serde_json::Value;

use crate::calibration::{Clients, PIPELINED, SERVERS};
use crate::cluster::{Cluster, Mix, policy};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, met, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;
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
        model.extent_area = study.calibration.areas.of_bytes(pairs * PAIR_BYTES);
        if is_skewed {
            model.asked = zipf(SERVERS * CORES, pairs * SERVERS as f64);
        }
        let server_only_k = study.at_share(&model, 1.0).rate_k();
        let cell = study.steady(Cluster { ..model.clone() });
        let paper_k = study.steady(model.with(&policy("paper"))).rate_k();
        let has_gets = cell.total().searches > 0;
        sheet.add(vec![
            Value::from(name),
            number(server_only_k),
            number(cell.rate_k()),
            number(cell.rate_k() / server_only_k),
            if has_gets { number(cell.server_percent()) } else { Value::Null },
            number(paper_k),
            number(study.best_fixed(&model).0),
            met(cell.rate_k() >= 0.98 * server_only_k),
        ]);
        for (line, rate_k) in lines.iter_mut().zip([cell.rate_k(), paper_k, server_only_k]) {
            line.points.push((at as f64 + 1.0, rate_k));
        }
    }
    sheet.note(
        "A write is one message and takes the server one and a half searches; a get reads its pair besides.",
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
