//! Figure 8: latencies of 24 threads that search while 48 others insert, and meganodes split.

use serde_json::Value;

use crate::calibration::{Clients, SERVERS, group};
use crate::cluster::{Cluster, Group, Mix, fixed, policy};
use crate::plot::{Line, Plot};
use crate::sheet::{BESIDE_TEXT, Said, Sheet, beside_text, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;
const SEARCHERS: usize = 24;
const INSERTERS: usize = 48;
const WINDOW_NS: u64 = 50_000_000;
/// Windows without inserts, and with them.
const QUIET: usize = 20;
const BUSY: usize = 60;
const METHODS: [&str; 3] = ["server only", "adaptive", "rule of the paper"];

const COLUMNS: [&str; 10] = [
    "method",
    "quiet_us",
    "quiet_p90_us",
    "inserts_us",
    "inserts_p90_us",
    "quiet_server_side_percent",
    "inserts_server_side_percent",
    "searches_k",
    "inserts_k",
    "meganode_splits",
];

pub(crate) fn outcome(study: &Study) -> Outcome {
    let title =
        "searches of 24 threads before and while 48 others insert; four servers of two cores; medians";
    let mut sheet = Sheet::new("figure8", title, &COLUMNS);
    let (mut lines, mut figures) = (Vec::new(), Vec::new());
    let (quiet, busy) = if study.short { (QUIET / 10, BUSY / 10) } else { (QUIET, BUSY) };
    for (method, name) in METHODS.iter().enumerate() {
        let cluster = cluster(study, method, (quiet, busy));
        let run = cluster.run();
        let half = quiet / 2;
        let (before, after) = (run.between(0, half, quiet), run.between(0, quiet + half, quiet + busy));
        let inserted = run.between(1, quiet + half, quiet + busy);
        let rate_k = |done: u64| done as f64 * 1e6 / ((busy - half) as u64 * WINDOW_NS) as f64;
        sheet.add(vec![
            Value::from(*name),
            number(before.latencies.quantile_us(0.5)),
            number(before.latencies.quantile_us(0.9)),
            number(after.latencies.quantile_us(0.5)),
            number(after.latencies.quantile_us(0.9)),
            number(100.0 * before.share()),
            number(100.0 * after.share()),
            number(rate_k(after.done)),
            number(rate_k(inserted.done)),
            Value::from(run.splits),
        ]);
        let [median_us, p90_us] = [0.5, 0.9].map(|part| after.latencies.quantile_us(part));
        figures.push([median_us, p90_us, rate_k(inserted.done)]);
        for (part, of) in [(0.5, "median"), (0.9, "90 %")] {
            let point = |at: usize| {
                (at as f64 * WINDOW_NS as f64 / 1e9, run.windows[0][at].latencies.quantile_us(part))
            };
            let points = (1..quiet + busy).map(point).collect();
            lines.push(Line { name: format!("{name}, {of}"), points, is_paper: false });
        }
    }
    let plot = Plot {
        name: "figure8",
        title: "Figure 8: searches while others insert".to_owned(),
        axes: ["seconds", "latency, us"],
        logarithmic: [false, true],
        lines,
    };
    (vec![sheet, in_words(&figures)], vec![plot])
}

/// Medians, 90 % and inserts beside inserts, by [`METHODS`], beside the text, which has no figures: the
/// median slightly higher than that of the servers alone, 90 % far lower, and splits done faster.
fn in_words(figures: &[[f64; 3]]) -> Sheet {
    let title = "searches beside inserts, in percent of the servers alone, beside the text of 4.5, which has \
                 no figures: the median slightly higher, 90 % far lower, splits done faster";
    let mut sheet = Sheet::new("figure8_text", title, &BESIDE_TEXT);
    for (name, ours) in METHODS.iter().zip(figures).skip(1) {
        let said = [Said::Above(100.0), Said::Below(100.0), Said::Above(100.0)];
        for (at, what) in ["median", "90 %", "inserts"].into_iter().enumerate() {
            let percent = 100.0 * ours[at] / figures[0][at];
            sheet.add(beside_text(format!("{name}, {what}, % of server only's"), percent, said[at]));
        }
    }
    sheet
}

/// The searching threads from the begin, the inserting ones after the quiet windows.
fn cluster(study: &Study, method: usize, (quiet, busy): (usize, usize)) -> Cluster {
    let settings = [fixed(1.0), policy("adaptive"), policy("paper")][method].clone();
    let threads = |threads, mix, from: usize| Group {
        mix,
        works_ns: (from as u64 * WINDOW_NS, u64::MAX),
        settings: settings.clone(),
        ..group(threads, 1)
    };
    let inserts = Mix { inserts: 1.0, ..Mix::default() };
    let clients = Clients { processes: (SEARCHERS + INSERTERS) / 3, in_hand: 1 };
    let cluster = study.calibration.cluster((SERVERS, CORES), clients, &settings);
    Cluster {
        groups: vec![threads(SEARCHERS, Mix::default(), 0), threads(INSERTERS, inserts, quiet)],
        splits: Some(study.splits()),
        window_ns: WINDOW_NS,
        seed: study.seed,
        ..cluster.lasting(0, (quiet + busy) as u64 * WINDOW_NS)
    }
}
