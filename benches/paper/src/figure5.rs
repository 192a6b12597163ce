//! Figure 5: throughput of 1 to 16 servers with two cores each, and where the state of connections no longer
//! has room on their cards.

use serde_json::Value;

use crate::calibration::{Clients, PIPELINED};
use crate::cluster::{Cluster, fixed, policy};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, error, met_tenth, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;

const COLUMNS: [&str; 10] = [
    "servers",
    "processes",
    "connections_a_card",
    "server_only_k",
    "cell_k",
    "cell_server_side_percent",
    "paper_rule_k",
    "cell_times_one_server",
    "cell_times_server_only",
    "cell_us",
];

pub(crate) fn outcome(study: &Study) -> Outcome {
    let title =
        "searches of servers with two cores, in thousands a second; beyond 16 one server stands for all";
    let mut sheet = Sheet::new("figure5", title, &COLUMNS);
    let servers: &[usize] = if study.short { &[1, 16, 64] } else { &[1, 2, 4, 8, 16, 32, 64, 128] };
    let mut lines: Vec<Line> = ["adaptive", "rule of the paper", "server only"]
        .iter()
        .map(|name| Line { name: (*name).to_owned(), points: Vec::new(), is_paper: false })
        .collect();
    let (mut one_k, mut sixteen) = (0.0, None);
    for &servers in servers {
        let clients = Clients { processes: study.calibration.processes(servers * CORES), in_hand: PIPELINED };
        let model = cluster(study, servers, clients);
        let server_only_k = study.at_share(&model, 1.0).rate_k() * scale(servers);
        let cell = study.steady(model.with(&policy("adaptive")));
        let paper_k = study.steady(model.with(&policy("paper"))).rate_k() * scale(servers);
        let cell_k = cell.rate_k() * scale(servers);
        one_k = if servers == 1 { cell_k } else { one_k };
        if servers == 16 {
            sixteen = Some([cell_k, cell_k / one_k, cell_k / server_only_k]);
        }
        sheet.add(vec![
            Value::from(servers),
            Value::from(clients.processes),
            Value::from(clients.processes * CORES),
            number(server_only_k),
            number(cell_k),
            number(cell.server_percent()),
            number(paper_k),
            number(cell_k / one_k),
            number(cell_k / server_only_k),
            number(cell.total().latencies.quantile_us(0.5)),
        ]);
        for (line, rate_k) in lines.iter_mut().zip([cell_k, paper_k, server_only_k]) {
            line.points.push((servers as f64, rate_k));
        }
    }
    let points = vec![(16.0, study.data.outcome("sixteen_cell_k"))];
    lines.push(Line { name: "the paper's Cell".to_owned(), points, is_paper: true });
    let plot = Plot {
        name: "figure5",
        title: "Figure 5: servers of two cores".to_owned(),
        axes: ["servers", "thousands of searches a second"],
        logarithmic: [true; 2],
        lines,
    };
    let mut sheets = vec![sheet];
    sheets.extend(sixteen.map(|figures| of_sixteen(study, figures)));
    (sheets, vec![plot])
}

/// Above so many servers one is simulated.
const WHOLE_MAX: usize = 16;

fn scale(servers: usize) -> f64 {
    if servers > WHOLE_MAX { servers as f64 } else { 1.0 }
}

fn cluster(study: &Study, servers: usize, clients: Clients) -> Cluster {
    let model = study.calibration.cluster((servers, CORES), clients, &fixed(1.0));
    if servers > WHOLE_MAX { of_many(model) } else { model }
}

/// The first server of many that are alike; the others take as long.
pub(crate) fn of_many(model: Cluster) -> Cluster {
    let (servers, processes) = (model.machines.len(), model.machines[0].processes);
    Cluster {
        machines: model.machines[..1].to_vec(),
        asked: vec![1.0 / (servers * processes) as f64; processes],
        ..model
    }
}

fn of_sixteen(study: &Study, [cell_k, times_one, times_server_only]: [f64; 3]) -> Sheet {
    let columns = ["what", "model", "paper", "error_percent", "met_10_of_paper"];
    let mut sheet = Sheet::new("figure5_sixteen", "16 servers beside the text of 4.3", &columns);
    let mut add = |what: &str, model: f64, name: &str| {
        let paper = study.data.outcome(name);
        let (off, is_met) = (error(model, paper), met_tenth(model, paper));
        sheet.add(vec![Value::from(what), number(model), number(paper), off, is_met]);
    };
    add("cell, K/s", cell_k, "sixteen_cell_k");
    add("times one server", times_one, "sixteen_times_one");
    add("times server only", times_server_only, "sixteen_times_server_only");
    sheet
}
