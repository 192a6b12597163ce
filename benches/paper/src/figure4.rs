//! Figure 4: throughput and latency of one server with one core and one meganode, without cache and
//! pipelining, as clients become more.

use serde_json::Value;

use crate::calibration::Clients;
use crate::cluster::{Cluster, fixed, policy};
use crate::observed::Observed;
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, error, met, number};
use crate::study::{Outcome, Study};
use crate::tree::Reads;

const PROCESSES: usize = 12;
/// A full meganode.
const MEGANODE_BYTES: f64 = 67_108_864.0;
const METHODS: [&str; 4] = ["server only", "client only", "adaptive", "rule of the paper"];

fn observed(study: &Study, processes: usize, method: usize) -> Observed {
    let calibration = &study.calibration;
    let reads = study.data.inputs.single("meganode_levels");
    let area = calibration.areas.of_bytes(MEGANODE_BYTES);
    let settings = [fixed(1.0), fixed(0.0), policy("adaptive"), policy("paper")][method].clone();
    let cluster = calibration.cluster((1, 1), Clients { processes, in_hand: 1 }, &settings);
    let levels = std::iter::repeat_n(area, crate::calibration::rounded(reads)).collect();
    study.steady(Cluster { reads: Reads::each(levels), ..cluster })
}

pub(crate) fn outcome(study: &Study) -> Outcome {
    let columns = [
        "processes",
        "server_only_k",
        "server_only_us",
        "client_only_k",
        "client_only_us",
        "cell_k",
        "cell_us",
        "cell_server_side_percent",
        "paper_rule_k",
        "paper_rule_us",
    ];
    let title = "one server, one core, one meganode of five levels; median latency (input: the server alone)";
    let mut sheet = Sheet::new("figure4", title, &columns);
    let mut lines: Vec<Line> = METHODS
        .iter()
        .map(|name| Line { name: (*name).to_owned(), points: Vec::new(), is_paper: false })
        .collect();
    let mut peaks = [0.0_f64; METHODS.len()];
    for processes in 1..=PROCESSES {
        let runs: Vec<Observed> =
            (0..METHODS.len()).map(|method| observed(study, processes, method)).collect();
        let mut row = vec![Value::from(processes)];
        for (method, run) in runs.iter().enumerate() {
            let (rate_k, median_us) = (run.rate_k(), run.total().latencies.quantile_us(0.5));
            row.extend([number(rate_k), number(median_us)]);
            if method == 2 {
                row.push(number(run.server_percent()));
            }
            lines[method].points.push((rate_k, median_us));
            peaks[method] = peaks[method].max(rate_k);
        }
        sheet.add(row);
    }
    let plot = Plot {
        name: "figure4",
        title: "Figure 4: one server, one core, one meganode".to_owned(),
        axes: ["thousands of searches a second", "median latency, us"],
        logarithmic: [false; 2],
        lines,
    };
    (vec![sheet, highest(study, peaks)], vec![plot])
}

fn highest(study: &Study, [server_k, client_k, cell_k, paper_rule_k]: [f64; 4]) -> Sheet {
    let title = "the highest of each method beside the text of 4.2";
    let mut sheet = Sheet::new("figure4_highest", title, &["what", "model", "paper", "error_percent", "met"]);
    let paper = |name: &str| study.data.outcome(name);
    let sum_k = server_k + client_k;
    let mut add = |what: &str, model: f64, paper: f64, is_met: Value| {
        sheet.add(vec![Value::from(what), number(model), number(paper), error(model, paper), is_met]);
    };
    add("server only, K/s", server_k, study.data.inputs.single("single_server_only_k"), Value::Null);
    add("client only, K/s", client_k, paper("single_client_only_k"), Value::Null);
    add("cell, K/s", cell_k, paper("single_cell_k"), Value::Null);
    let (part, least) = (100.0 * cell_k / sum_k, paper("single_part_of_sum_percent"));
    add("cell of the sum, %", part, least, met(part >= least));
    add("rule of the paper, K/s", paper_rule_k, paper("single_cell_k"), Value::Null);
    let part = 100.0 * paper_rule_k / sum_k;
    add("rule of the paper of the sum, %", part, least, met(part >= least));
    sheet
}
