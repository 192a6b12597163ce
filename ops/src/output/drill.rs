//! What a drill found, for people; its notices and errors.

use cell_drill::{DrillError, DrillVerdict, FaultKind, Notice, Report};
use serde::Deserialize;

use super::message;
use super::number::{bytes, count, counted, moment};
use super::table;
use crate::exit::{Exit, Failure};
use crate::hint::Reached;
use crate::store;

/// A report for people.
pub(crate) fn text(report: &Report) -> String {
    let mut text = match report.fault {
        FaultKind::Rolling => format!("{}: rolling restart of all nodes", report.verdict().word()),
        fault => format!("{}: {} node {}", report.verdict().word(), fault.word(), report.node),
    };
    if let Some(delay) = report.delay {
        text.push_str(&format!(", each write and sync of its logs {} ms longer", delay.as_millis()));
    }
    for reason in report.reasons() {
        text.push_str(&format!("\n  {reason}"));
    }
    text.push_str("\n\n");
    let rows = report.timeline.moments().into_iter().map(|moment| {
        let of = moment.pair.map_or(String::new(), |pair| format!("pair {pair}"));
        vec![milliseconds(report.timeline.since_ms(moment.at_ns)), moment.event.word().replace('_', " "), of]
    });
    text.push_str(&table::plain(&["after", "event", ""], &[0], rows.collect()));
    text.push_str(&sentences(report));
    for (key, what) in report.proof.iter().flat_map(|proof| &proof.named) {
        text.push_str(&format!("  {what}: {}\n", key.escape_ascii()));
    }
    text
}

fn sentences(report: &Report) -> String {
    let tally = report.tally;
    let mut lines = vec![format!(
        "{} by the clients, {} writes acknowledged, {} of unknown outcome",
        counted(tally.operations, "operation", "operations"),
        count(tally.writes),
        count(tally.unknown),
    )];
    let unavailable = &report.unavailable;
    lines.push(format!(
        "{} asked for during the fault: unavailable for {} at most, 99 % of them for less than {}",
        counted(unavailable.keys, "key", "keys"),
        milliseconds(unavailable.max_ms),
        milliseconds(unavailable.p99_ms),
    ));
    if let Some(replayed) = report.timeline.replayed_bytes() {
        lines.push(format!("{} replayed", bytes(replayed)));
    }
    if let Some(proof) = &report.proof {
        lines.push(format!(
            "{} acknowledged: {} found, {} lost, {} stale, {} phantom (read by one-sided search, by the \
             servers, and by a full scan)",
            counted(proof.acknowledged, "key", "keys"),
            count(proof.found),
            count(proof.lost),
            count(proof.stale),
            count(proof.phantom),
        ));
        lines.push(format!(
            "{} checked, {} not linearizable",
            counted(proof.histories, "history", "histories"),
            count(proof.not_linearizable),
        ));
    }
    format!("\n{}\n", lines.join("\n"))
}

/// A run as the admin API returns it.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiRun {
    id: String,
    kind: String,
    /// The node that the fault is done to.
    node: u32,
    /// The node that runs it.
    runner: u32,
    /// One word.
    pub(crate) state: String,
    /// Before it begins.
    waits_for: Option<String>,
    begun_unix_ms: u64,
    who: String,
    halted_by: Option<String>,
    timeline: Vec<ApiMoment>,
    report: Option<ApiReport>,
}

#[derive(Debug, Deserialize)]
struct ApiMoment {
    name: String,
    at_ms: u64,
    pair: Option<u32>,
}

/// What `cell drill run --json` prints; of a run that did not come to its end the verdict and why.
#[derive(Debug, Deserialize)]
struct ApiReport {
    verdict: String,
    reasons: Vec<String>,
    #[serde(flatten)]
    figures: Option<ApiFigures>,
}

#[derive(Debug, Deserialize)]
struct ApiFigures {
    operations: u64,
    writes_acknowledged: u64,
    unknown: u64,
    unavailable_ms_max: f64,
    unavailable_ms_p99: f64,
    replayed_bytes: Option<u64>,
    acknowledged: u64,
    found: u64,
    lost: u64,
    stale: u64,
    phantom: u64,
    histories: u64,
    not_linearizable: u64,
    wrong: Vec<ApiWrongKey>,
}

#[derive(Debug, Deserialize)]
struct ApiWrongKey {
    key: String,
    what: String,
}

/// A run for people, with its report as far as there is one.
pub(crate) fn text_of_run(run: &ApiRun) -> String {
    let verdict = run.report.as_ref().map_or_else(|| run.state.clone(), |report| report.verdict.clone());
    let mut text = format!("{verdict}: {} node {}", run.kind, run.node);
    for reason in run.report.iter().flat_map(|report| &report.reasons) {
        text.push_str(&format!("\n  {reason}"));
    }
    let who = if run.who.is_empty() { "somebody" } else { &run.who };
    text.push_str(&format!(
        "\n\n{}, started at {} by {}, run by node {}",
        run.id,
        moment(run.begun_unix_ms),
        message::on_one_line(who),
        run.runner
    ));
    if let Some(waits_for) = &run.waits_for {
        text.push_str(&format!("; waits for {}", message::on_one_line(waits_for)));
    }
    if let Some(halted_by) = &run.halted_by {
        text.push_str(&format!("; halted by {}", message::on_one_line(halted_by)));
    }
    text.push_str("\n\n");
    let rows = run.timeline.iter().map(|moment| {
        let of = moment.pair.map_or(String::new(), |pair| format!("pair {pair}"));
        vec![format!("{} ms", moment.at_ms), moment.name.replace('_', " "), of]
    });
    text.push_str(&table::plain(&["after", "event", ""], &[0], rows.collect()));
    if let Some(figures) = run.report.as_ref().and_then(|report| report.figures.as_ref()) {
        text.push_str(&sentences_of_run(figures));
    }
    text
}

fn sentences_of_run(of: &ApiFigures) -> String {
    let mut lines = vec![
        format!(
            "{} by the clients, {} writes acknowledged, {} of unknown outcome",
            counted(of.operations, "operation", "operations"),
            count(of.writes_acknowledged),
            count(of.unknown),
        ),
        format!(
            "keys asked for during the fault: unavailable for {} at most, 99 % of them for less than {}",
            milliseconds(of.unavailable_ms_max),
            milliseconds(of.unavailable_ms_p99),
        ),
    ];
    lines.extend(of.replayed_bytes.map(|replayed| format!("{} replayed", bytes(replayed))));
    lines.push(format!(
        "{} acknowledged: {} found, {} lost, {} stale, {} phantom",
        counted(of.acknowledged, "key", "keys"),
        count(of.found),
        count(of.lost),
        count(of.stale),
        count(of.phantom),
    ));
    lines.push(format!(
        "{} checked, {} not linearizable",
        counted(of.histories, "history", "histories"),
        count(of.not_linearizable),
    ));
    lines.extend(of.wrong.iter().map(|wrong| format!("  {}: {}", wrong.what, wrong.key)));
    format!("\n{}\n", lines.join("\n"))
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.0} ms")
}

/// The exit code of a verdict.
pub(crate) const fn exit(verdict: DrillVerdict) -> Exit {
    match verdict {
        DrillVerdict::Pass => Exit::Ok,
        DrillVerdict::Fail => Exit::VerificationFailed,
        DrillVerdict::Inconclusive => Exit::Inconclusive,
    }
}

/// Prints how a drill goes; `server` is one of its cluster.
pub(crate) fn print_notice(notice: Notice, server: Option<&str>) {
    match notice {
        Notice::OwnsNothing { node } => {
            message::warning(&format!("node {node} owns no pair: its loss will show nothing"));
        }
        Notice::EntriesLeft { run, why } => {
            // The drill is over, whatever could not be removed.
            let ended = if why.is_some() { " --ended" } else { "" };
            let clean = server
                .map_or_else(Reached::default, Reached::by_server)
                .command(&format!("cell drill clean --run {run:016x}{ended}"));
            match why {
                Some(why) => message::warning_with_next(
                    &format!("the drill's entries could not be removed: {why}"),
                    &format!("{clean} removes them"),
                ),
                None => {
                    message::note(&format!("the drill's entries stay in the store; {clean} removes them"))
                }
            }
        }
        Notice::Injecting { fault: FaultKind::Rolling, .. } => message::note("rolling restart"),
        Notice::Rolling { node, stage } => message::note(&format!("node {node} {}", stage.words())),
        Notice::Injecting { fault, node } => message::note(&format!("{} node {node}", fault.word())),
        Notice::ReadingBack => message::note("reading every acknowledged key back"),
        Notice::NotHealed(why) => message::warning(&format!("the fault could not be taken back: {why}")),
        _ => {}
    }
}

/// A drill's error in the cluster whose supervisors were reached so, with exit code and advice.
pub(crate) fn failure(error: DrillError, reached: &Reached) -> anyhow::Error {
    let what = error.to_string();
    let command = |words| reached.command(words);
    let failure = match error {
        DrillError::NoSuchNode { .. } => {
            Failure::usage(what).next(format!("{} lists them", command("cell drill ls")))
        }
        DrillError::Unhealthy { .. } => Failure::new(Exit::Unhealthy, what).next(format!(
            "wait until {} shows every node serving; {} takes faults back",
            command("cell drill ls"),
            command("cell drill heal")
        )),
        DrillError::NoSupervisor { .. } => Failure::new(Exit::Unreachable, what).next(
            "`cell dev --allow-drills` opens it in its folder; --dir names another folder than ./cell-data",
        ),
        DrillError::Refused { what, next } => Failure::usage(what).next(reached.in_text(&next)),
        DrillError::Away { what, next } => Failure::new(Exit::Unreachable, what).next(reached.in_text(&next)),
        DrillError::AgentAway { .. } => Failure::new(Exit::Unreachable, what).next(format!(
            "see that `cell agent` runs there, at its agent_address, and that --ca names who has signed its \
             certificate; what it has done to its nodes is taken back without the drill, but for a node that \
             a rolling restart wants empty: {} does that",
            command("cell drill heal")
        )),
        // As without a token elsewhere.
        DrillError::NotLetIn { next, .. } => Failure::new(Exit::Error, what).next(next),
        DrillError::TwoClusters { .. } => Failure::usage(what).next("name the agents of one cluster"),
        DrillError::SameNode { .. } => {
            Failure::usage(what).next("name each agent once, and give the nodes numbers of their own")
        }
        DrillError::NoAgent { .. } => {
            Failure::usage(what).next("name the agents of all hosts of the cluster with --agents")
        }
        DrillError::Supervisor(_) => Failure::new(Exit::Unreachable, what),
        DrillError::Client(error) => return store::failure(&error, None),
        DrillError::Interrupted => Failure::new(Exit::Interrupted, what),
        _ => Failure::new(Exit::Error, what),
    };
    failure.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Scripts tell by it whom to ask for help.
    #[test]
    fn failure_of_agents_has_the_exit_code_of_its_kind() {
        let reached = Reached::by_agents("h-1:7090");
        let agent = || "h-1:7090".to_owned();
        let agents = || Box::new([agent(), "h-2:7090".to_owned()]);
        let not_let_in = DrillError::NotLetIn { agent: agent(), what: "no".into(), next: "yes".into() };
        for (error, exit) in [
            (DrillError::AgentAway { agent: agent(), why: "is gone".into() }, Exit::Unreachable),
            (DrillError::Away { what: "no".into(), next: "wait".into() }, Exit::Unreachable),
            (not_let_in, Exit::Error),
            (DrillError::TwoClusters { agents: agents() }, Exit::Usage),
            (DrillError::SameNode { node: 1, agents: agents() }, Exit::Usage),
            (DrillError::NoAgent { node: 4 }, Exit::Usage),
        ] {
            let words = error.to_string();
            let error = failure(error, &reached);
            let failure = error.downcast_ref::<Failure>().unwrap();
            assert_eq!((failure.exit, failure.next.is_some()), (exit, true), "{words}");
        }
    }

    #[test]
    fn failure_has_the_folder_in_the_commands_that_it_names() {
        let unhealthy = || DrillError::NoSuchNode { node: 7, nodes: vec![0, 1, 2] };
        let next = |dir: &str| {
            let error = failure(unhealthy(), &Reached::by_dir(Path::new(dir)));
            error.downcast_ref::<Failure>().unwrap().next.clone().unwrap()
        };
        assert_eq!(next("/srv/cell"), "`cell drill ls --dir /srv/cell` lists them");
        assert_eq!(next("./cell-data"), "`cell drill ls` lists them");
        let refused = DrillError::Refused { what: "no".into(), next: "`cell drill ls` lists them".into() };
        let error = failure(refused, &Reached::by_dir(Path::new("/srv/cell")));
        let next = error.downcast_ref::<Failure>().unwrap().next.clone().unwrap();
        assert_eq!(next, "`cell drill ls --dir /srv/cell` lists them");
    }

    fn run(report: &serde_json::Value) -> ApiRun {
        let run = serde_json::json!({
            "id": "drill-1-0a", "kind": "kill", "node": 0, "runner": 1, "state": "failed",
            "begun_unix_ms": 86_399_000, "ended_unix_ms": null, "who": "an\u{1b}n", "halted_by": "bob",
            "timeline": [{"name": "lease_ended", "at_ms": 250, "pair": 3}], "lane": [], "report": report,
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn text_of_a_run_has_its_report_as_far_as_there_is_one() {
        let text = text_of_run(&run(&serde_json::Value::Null));
        let begin = "failed: kill node 0\n\ndrill-1-0a, started at 1970-01-01 23:59:59 UTC by an\\u{1b}n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("run by node 1; halted by bob\n") && text.contains("lease ended  pair 3"));
        let text = text_of_run(&run(&serde_json::json!({"verdict": "INCONCLUSIVE", "reasons": ["why"]})));
        assert!(text.starts_with("INCONCLUSIVE: kill node 0\n  why\n"), "{text}");
        assert!(!text.contains("acknowledged"), "{text}");
        let waits_for = Some("the agent at a:1".to_owned());
        let beginning = ApiRun { waits_for, halted_by: None, ..run(&serde_json::Value::Null) };
        let text = text_of_run(&beginning);
        assert!(text.contains("run by node 1; waits for the agent at a:1\n"), "{text}");
    }

    /// What the core of drills reports is what is read here.
    #[test]
    fn text_of_a_run_reads_all_figures_of_a_report() {
        let report = serde_json::json!({
            "verdict": "FAIL", "reasons": [], "operations": 9, "writes_acknowledged": 8, "unknown": 7,
            "unavailable_ms_max": 6.0, "unavailable_ms_p99": 5.0, "replayed_bytes": 1_024, "acknowledged": 4,
            "found": 3, "lost": 1, "stale": 0, "phantom": 0, "histories": 2, "not_linearizable": 0,
            "wrong": [{"key": "a", "what": "lost"}],
        });
        let text = text_of_run(&run(&report));
        for words in
            ["9 operations by the clients", "6 ms at most", "1.00 KiB replayed", "1 lost", "  lost: a\n"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn exit_distinguishes_the_verdicts() {
        let verdicts = [DrillVerdict::Pass, DrillVerdict::Fail, DrillVerdict::Inconclusive];
        assert_eq!(verdicts.map(|verdict| exit(verdict) as u8), [0, 7, 8]);
    }
}
