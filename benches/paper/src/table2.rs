//! Table 2, four servers of 1 to 8 cores, and Figure 6, the same of one server.

use serde_json::Value;

use crate::calibration::{Clients, PIPELINED, SERVERS};
use crate::cluster::{Cluster, fixed, policy};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, error, met, met_tenth, number};
use crate::study::{Outcome, Study};

/// What is found for a number of cores. Rates in thousands a second.
struct Row {
    cores: usize,
    /// By as many clients as keep all cores busy.
    server_only_k: f64,
    /// Processes of the clients of all that follows.
    processes: usize,
    same_server_only_k: f64,
    client_only_k: f64,
    cell_k: f64,
    cell_percent: f64,
    /// With the mean share of `cell`.
    fixed_ratio_k: f64,
    best_fixed_k: f64,
    best_percent: f64,
    paper_rule_k: f64,
    paper_rule_percent: f64,
}

impl Row {
    fn of_best_percent(&self) -> f64 {
        100.0 * self.cell_k / self.best_fixed_k
    }

    fn met_server_only(&self) -> Value {
        met(self.cell_k >= self.server_only_k)
    }
}

/// Numbers of clients' processes that are tried, for each server.
const PROCESSES: [usize; 3] = [3, 5, 10];
const CORES_MAX: usize = 8;

fn row(study: &Study, servers: usize, cores: usize) -> Row {
    let calibration = &study.calibration;
    let cluster = |clients: Clients, settings: &_| calibration.cluster((servers, cores), clients, settings);
    let many = Clients { processes: calibration.processes(servers * cores), in_hand: PIPELINED };
    let server_only_k = study.at_share(&cluster(many, &fixed(1.0)), 1.0).rate_k();
    let candidates = PROCESSES.map(|each| Clients { processes: each * servers, in_hand: PIPELINED });
    let adaptive = policy("adaptive");
    let (clients, cell) = study.saturated(&candidates, |clients| study.steady(cluster(clients, &adaptive)));
    let model: Cluster = cluster(clients, &adaptive);
    let paper_rule = study.steady(model.with(&policy("paper")));
    let share = cell.total().share();
    let (best_fixed_k, best_share) = study.best_fixed(&model, &[share, paper_rule.total().share()]);
    Row {
        cores,
        server_only_k,
        processes: clients.processes,
        same_server_only_k: study.at_share(&model, 1.0).rate_k(),
        client_only_k: study.at_share(&model, 0.0).rate_k(),
        cell_k: cell.rate_k(),
        cell_percent: 100.0 * share,
        fixed_ratio_k: study.at_share(&model, share).rate_k(),
        best_fixed_k,
        best_percent: 100.0 * best_share,
        paper_rule_k: paper_rule.rate_k(),
        paper_rule_percent: paper_rule.server_percent(),
    }
}

fn rows(study: &Study, servers: usize) -> Vec<Row> {
    let cores = (1..=CORES_MAX).filter(|cores| !study.short || [1, CORES_MAX].contains(cores));
    cores.map(|cores| row(study, servers, cores)).collect()
}

/// Of both sheets.
const OTHER_CLIENTS: &str = "`server_only` has 2.5 processes of clients a core. All else has those with the \
     lowest latency within 5 % of the highest throughput of `cell`, `processes` in all; what the servers \
     alone do of theirs is `same_clients_server_only`.";

const TABLE_COLUMNS: [&str; 23] = [
    "cores",
    "server_only_k",
    "cell_k",
    "cell_server_side_percent",
    "fixed_ratio_k",
    "best_fixed_k",
    "best_fixed_percent",
    "paper_rule_k",
    "paper_rule_percent",
    "processes",
    "same_clients_server_only_k",
    "paper_server_only_k",
    "paper_cell_k",
    "paper_server_side_percent",
    "paper_fixed_ratio_k",
    "server_only_error_percent",
    "cell_error_percent",
    "server_side_error_points",
    "fixed_ratio_error_percent",
    "cell_of_best_fixed_percent",
    "met_97_of_best",
    "met_at_least_server_only",
    "met_10_of_paper",
];

pub(crate) fn outcome_of_table(study: &Study) -> Outcome {
    let title = "searches of four servers in thousands a second; `cell` is our default rule, `paper_rule` the \
         paper's in our code (input: server_only)";
    let mut sheet = Sheet::new("table2", title, &TABLE_COLUMNS);
    let rows = rows(study, SERVERS);
    for row in &rows {
        let paper = study.data.table2[row.cores - 1];
        let server_only_k = study.data.inputs.server_only_k[row.cores - 1];
        sheet.add(vec![
            Value::from(row.cores),
            number(row.server_only_k),
            number(row.cell_k),
            number(row.cell_percent),
            number(row.fixed_ratio_k),
            number(row.best_fixed_k),
            number(row.best_percent),
            number(row.paper_rule_k),
            number(row.paper_rule_percent),
            Value::from(row.processes),
            number(row.same_server_only_k),
            number(server_only_k),
            number(paper.cell_k),
            number(paper.server_side_percent),
            number(paper.fixed_ratio_k),
            error(row.server_only_k, server_only_k),
            error(row.cell_k, paper.cell_k),
            number(row.cell_percent - paper.server_side_percent),
            error(row.fixed_ratio_k, paper.fixed_ratio_k),
            number(row.of_best_percent()),
            met(row.of_best_percent() >= 97.0),
            row.met_server_only(),
            met_tenth(row.cell_k, paper.cell_k),
        ]);
    }
    sheet.note(OTHER_CLIENTS);
    let mut lines = lines(&rows);
    let mut of_paper = |name: &str, figure: &dyn Fn(usize) -> f64| {
        let points = (1..=CORES_MAX).map(|cores| (cores as f64, figure(cores - 1))).collect();
        lines.push(Line { name: name.to_owned(), points, is_paper: true });
    };
    of_paper("the paper's Cell", &|at| study.data.table2[at].cell_k);
    of_paper("the paper's server only", &|at| study.data.inputs.server_only_k[at]);
    (vec![sheet], vec![plot("table2", "Table 2: four servers", lines)])
}

fn lines(rows: &[Row]) -> Vec<Line> {
    let line = |name: &str, figure: fn(&Row) -> f64| Line {
        name: name.to_owned(),
        points: rows.iter().map(|row| (row.cores as f64, figure(row))).collect(),
        is_paper: false,
    };
    vec![
        line("adaptive", |row| row.cell_k),
        line("rule of the paper", |row| row.paper_rule_k),
        line("best fixed share", |row| row.best_fixed_k),
        line("server only", |row| row.server_only_k),
        line("client only", |row| row.client_only_k),
    ]
}

fn plot(name: &'static str, title: &str, lines: Vec<Line>) -> Plot {
    let axes = ["cores a server", "thousands of searches a second"];
    Plot { name, title: title.to_owned(), axes, logarithmic: [false; 2], lines }
}

const FIGURE_COLUMNS: [&str; 21] = [
    "cores",
    "server_only_k",
    "client_only_k",
    "cell_k",
    "cell_server_side_percent",
    "fixed_ratio_k",
    "best_fixed_k",
    "best_fixed_percent",
    "paper_rule_k",
    "paper_rule_percent",
    "processes",
    "same_clients_server_only_k",
    "cell_of_best_fixed_percent",
    "paper_server_only_k",
    "paper_client_only_k",
    "paper_cell_k",
    "server_only_error_percent",
    "client_only_error_percent",
    "cell_error_percent",
    "met_at_least_server_only",
    "met_10_of_paper",
];

pub(crate) fn outcome_of_figure6(study: &Study) -> Outcome {
    let title =
        "searches of one server in thousands a second; the paper's text has figures for 1 and 8 cores";
    let mut sheet = Sheet::new("figure6", title, &FIGURE_COLUMNS);
    let rows = rows(study, 1);
    let paper = |name: &str| study.data.outcome(name);
    let eight_k = paper("one_server_eight_cores_cell_k");
    let of_paper = |cores: usize| match cores {
        1 => (
            Some(paper("one_server_one_core_server_only_k")),
            None,
            Some(paper("one_server_one_core_cell_k")),
        ),
        8 => (
            Some(eight_k / paper("one_server_eight_cores_times_server_only")),
            Some(eight_k / paper("one_server_eight_cores_times_client_only")),
            Some(eight_k),
        ),
        _ => (None, None, None),
    };
    let shown = |figure: Option<f64>| figure.map_or(Value::Null, number);
    let beside = |ours: f64, figure: Option<f64>| figure.map_or(Value::Null, |theirs| error(ours, theirs));
    for row in &rows {
        let (server_only_k, client_only_k, cell_k) = of_paper(row.cores);
        sheet.add(vec![
            Value::from(row.cores),
            number(row.server_only_k),
            number(row.client_only_k),
            number(row.cell_k),
            number(row.cell_percent),
            number(row.fixed_ratio_k),
            number(row.best_fixed_k),
            number(row.best_percent),
            number(row.paper_rule_k),
            number(row.paper_rule_percent),
            Value::from(row.processes),
            number(row.same_server_only_k),
            number(row.of_best_percent()),
            shown(server_only_k),
            shown(client_only_k),
            shown(cell_k),
            beside(row.server_only_k, server_only_k),
            beside(row.client_only_k, client_only_k),
            beside(row.cell_k, cell_k),
            row.met_server_only(),
            cell_k.map_or(Value::Null, |theirs| met_tenth(row.cell_k, theirs)),
        ]);
    }
    sheet.note(OTHER_CLIENTS);
    let mut lines = lines(&rows);
    let points = [1, 8].map(|cores| (cores as f64, of_paper(cores).2.unwrap_or(0.0))).to_vec();
    lines.push(Line { name: "the paper's Cell".to_owned(), points, is_paper: true });
    (vec![sheet], vec![plot("figure6", "Figure 6: one server", lines)])
}
