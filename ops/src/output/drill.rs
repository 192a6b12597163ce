//! What a drill found, for people; its notices and errors.

use cell_drill::{DrillError, DrillVerdict, Notice, Report};

use super::message;
use super::number::{bytes, count, counted};
use super::table;
use crate::exit::{Exit, Failure};
use crate::store;

/// A report for people.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!("{}: {} node {}", report.verdict().word(), report.fault.word(), report.node);
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

/// Tells how a drill goes.
pub(crate) fn tell(notice: Notice) {
    match notice {
        Notice::OwnsNothing { node } => {
            message::warning(&format!("node {node} owns no pair: its loss will show nothing"));
        }
        Notice::Injecting { fault, node } => message::note(&format!("{} node {node}", fault.word())),
        Notice::ReadingBack => message::note("reading every acknowledged key back"),
        Notice::NotHealed(why) => message::warning(&format!("the fault could not be taken back: {why}")),
        _ => {}
    }
}

/// A drill's error, with exit code and advice.
pub(crate) fn failure(error: DrillError) -> anyhow::Error {
    let what = error.to_string();
    let failure = match error {
        DrillError::NoSuchNode { .. } => Failure::usage(what).next("`cell drill ls` lists them"),
        DrillError::Unhealthy { .. } => Failure::new(Exit::Unhealthy, what)
            .next("wait until `cell drill ls` shows every node serving; `cell drill heal` takes faults back"),
        DrillError::NoSupervisor { .. } => Failure::new(Exit::Unreachable, what).next(
            "`cell dev --allow-drills` opens it in its folder; --dir names another folder than ./cell-data",
        ),
        DrillError::Refused { what, next } => Failure::usage(what).next(next),
        DrillError::Supervisor(_) => Failure::new(Exit::Unreachable, what),
        DrillError::Client(error) => return store::failure(&error, "the cluster's nodes"),
        DrillError::Interrupted => Failure::new(Exit::Interrupted, what),
        _ => Failure::new(Exit::Error, what),
    };
    failure.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_tells_the_verdicts_apart() {
        let verdicts = [DrillVerdict::Pass, DrillVerdict::Fail, DrillVerdict::Inconclusive];
        assert_eq!(verdicts.map(|verdict| exit(verdict) as u8), [0, 7, 8]);
    }
}
