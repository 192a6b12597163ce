//! `cell bench ycsb` by each way of searching: every workload runs, and its report says who searched,
//! what that is estimated to cost, and how long operations took.

use cell_client::Transport;
use cell_tests::program;
use cell_tests::server::Server;
use serde_json::Value;

/// The kinds of operations of each workload.
const WORKLOADS: [(&str, &[&str]); 6] = [
    ("a", &["read", "update"]),
    ("b", &["read", "update"]),
    ("c", &["read"]),
    ("d", &["read", "insert"]),
    ("e", &["scan", "insert"]),
    ("f", &["read", "read_modify_write"]),
];

pub(crate) fn ycsb_reports_who_searched(transport: Transport, flags: &[&str], operations: u64) {
    let server = Server::start_steady(flags);
    let address = server.address().to_string();
    let [records, operations] = [operations / 2, operations].map(|number| number.to_string());
    for search in ["auto", "client", "server"] {
        for (workload, kinds) in WORKLOADS {
            let arguments = [
                &["bench", "ycsb", "--server", &address, "--transport", transport.name()][..],
                &["--search", search, "--workload", workload, "--threads", "2", "--in-flight", "2"],
                &["--records", &records, "--operations", &operations, "--value-bytes", "100", "--json"],
            ];
            let said = program::run(&arguments.concat());
            assert_eq!(said.code, Some(0), "{}", said.err);
            let report: Value = serde_json::from_str(&said.out).expect("it is JSON");
            let run = &report["run"];
            assert_eq!(run["operations"].to_string(), operations, "{report:#}");
            check_selector(&run["selector"], search);
            for kind in kinds {
                let latency = &run["kinds"][kind]["latency_ns"];
                let quantiles = ["p50", "p90", "p99", "p999", "max"].map(|name| latency[name].as_u64());
                assert!(quantiles[0].is_some_and(|ns| ns > 0) && quantiles.is_sorted(), "{kind}: {run:#}");
            }
        }
    }
}

/// The ratio, and the estimates that it follows from.
fn check_selector(selector: &Value, search: &str) {
    let number = |name: &str| selector[name].as_f64();
    let share = number("server_share").unwrap_or_else(|| panic!("no ratio: {selector:#}"));
    match search {
        "server" => assert!(share == 1.0 && number("server_latency_ns") > Some(0.0), "{selector:#}"),
        "client" => {
            assert!(share < 1.0 && number("one_sided_latency_ns") > Some(0.0), "{selector:#}");
            assert!(number("reads_per_search").is_some(), "{selector:#}");
        }
        _ => {
            assert!((0.0..=1.0).contains(&share), "{selector:#}");
            // What was decided for was measured.
            let paths =
                [("server", &["server_latency_ns"][..]), ("one_sided", &["read_latency_ns", "rtt_ns"])];
            for (path, estimates) in paths {
                let known = estimates.iter().all(|name| number(name).is_some());
                assert!(known || number(path) == Some(0.0), "{path}: {selector:#}");
            }
        }
    }
}
