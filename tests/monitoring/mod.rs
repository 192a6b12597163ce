//! What operators watch a node by: a real node's metrics, read by Prometheus' own tool; alert rules and
//! dashboard, which ask for nothing that a node does not report; the tree and its entries over HTTP.

mod conformity;
mod moves;
mod tree;
mod truth;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cell_tests::server::Server;
use cell_tests::wait;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops/monitoring")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).expect("it is committed")
}

/// Runs Prometheus' tool beside the rules; `None` where there is none.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("SKIPPED: metrics and alert rules by promtool: it is missing (apt install prometheus)");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join(); // a tool that does not read its input is no failure here
    Some(output)
}

fn assert_good(output: Option<Output>) {
    if let Some(output) = output {
        let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// The names of a node's metrics in a text, whatever stands around them.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.starts_with("cell_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alert_rules_fire_when_they_should_and_not_before() {
    assert_good(promtool(&["check", "config", "prometheus.yml"], ""));
    assert_good(promtool(&["test", "rules", "alerts_test.yml"], ""));
}

#[test]
fn alert_rules_are_all_tested() {
    let (rules, tests) = (text("alerts.yml"), text("alerts_test.yml"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5);
    for alert in alerts {
        assert!(tests.contains(alert), "{alert} has no test in alerts_test.yml");
    }
}

#[test]
fn metrics_of_a_node_please_the_linter_and_are_all_that_rules_and_dashboard_ask_for() {
    let server = Server::start_steady(&[]);
    assert_eq!(server.cell(&["put", "greeting", "hello"]).code, Some(0));
    // Only who balances knows how far nodes are off the mean, and nobody does at once.
    wait::until("the node balances", || {
        let metrics = server.http("/metrics");
        metrics.is_some_and(|(_, metrics)| metrics.contains("cell_balance_load_largest_ratio"))
    });
    let (status, metrics) = server.http("/metrics").expect("the node answers");
    assert_eq!(status, 200);
    assert_good(promtool(&["check", "metrics"], &metrics));
    let samples: String =
        metrics.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut exported = names(&samples);
    exported.insert("cell_http_certificate_left_seconds".to_owned()); // of nodes with TLS alone
    for file in ["alerts.yml", "alerts_test.yml", "grafana.json"] {
        let asked = names(&text(file));
        let lacking: Vec<_> = asked.difference(&exported).collect();
        assert!(lacking.is_empty(), "{file} asks for {lacking:?}, which no node exports");
    }
}
