//! What an operator should know of a node that serves all the same, in sentences without their ends.

use cell_cluster::{DrainRow, PairRow};
use cell_pair::CheckpointFailure;
use cell_terms::text::{count, counted};
use cell_terms::{Incarnation, NodeId, PairId};

use crate::access::AccessRules;
use crate::process_warnings::ProcessWarnings;

/// A process that has lived so long does not end as those before it did.
const RESTARTS_SHOWN_NS: u64 = 600_000_000_000;
/// Peers that are turned away are warned of for so long.
const TURNED_AWAY_SHOWN_NS: u64 = 60_000_000_000;
/// Pairs that are named; others are counted.
const PAIRS_NAMED: usize = 2;

/// Of the processes before this one, which has lived so long: what they ended of, if that was one thing.
pub(crate) fn of_restarts(because: Option<&str>, lived_ns: u64) -> Vec<String> {
    let because = because.filter(|_| lived_ns < RESTARTS_SHOWN_NS);
    because.map(|because| format!("it {because}")).into_iter().collect()
}

/// Of a recovery whose disk has no room for the new epoch's logs.
pub(crate) fn of_no_room() -> String {
    "the disk has no room for the logs that it would write: nothing is served before somebody frees some, and it \
     goes on by itself then"
        .to_owned()
}

/// Of pairs that a node takes over beside those that it serves, and whose logs find no room on its disk.
pub(crate) fn of_takeovers_without_room(pairs: impl Iterator<Item = PairId>) -> Option<String> {
    let of = first_of(pairs)?;
    Some(format!(
        "the disk has no room for the logs that it would write of {of}, to take that over: make room on the \
         disk of this node, and it goes on by itself"
    ))
}

/// Of connections: when a peer was last turned away because there were too many.
pub(crate) fn of_connections(full_at_ns: Option<u64>, now_ns: u64) -> Option<String> {
    full_at_ns.filter(|at_ns| now_ns.saturating_sub(*at_ns) < TURNED_AWAY_SHOWN_NS).map(|_| {
        "it turns new clients away, because it has as many connections as it takes (fabric_connections_max)"
            .to_owned()
    })
}

/// The first of some pairs, and how many others there are; none: there is no pair.
fn first_of(mut pairs: impl Iterator<Item = PairId>) -> Option<String> {
    let first = pairs.next()?;
    Some(match pairs.count() {
        0 => first.to_string(),
        more => format!("{first} and {}", counted(more as u64, "more pair", "more pairs")),
    })
}

/// Of logs for which the disk has not answered for long: of which pairs.
pub(crate) fn of_log_waits(pairs: impl Iterator<Item = PairId>) -> Option<String> {
    let of = first_of(pairs)?;
    Some(format!("the disk of its logs does not answer: writes to {of} wait for it, and reads go on"))
}

/// Of a disk of logs that has so little left that the next checkpoints of these pairs may not fit.
pub(crate) fn of_disk(free_bytes: Option<u64>, pairs: impl Iterator<Item = PairId>) -> Option<String> {
    let (left, of) = (count(free_bytes? >> 20), first_of(pairs)?);
    Some(format!(
        "the disk of its logs is nearly full: {left} MiB are left, and the next checkpoint of {of} may not \
         fit"
    ))
}

/// Of a control thread that has not come back for so long.
pub(crate) fn of_control(silent_ns: u64) -> String {
    let seconds = silent_ns / 1_000_000_000;
    format!(
        "its control thread has not come back for {seconds} s: it takes nothing over, and what it says of \
         the cluster is of then; see whether the disk of its logs or its coordinator answers"
    )
}

/// Of a coordinator that has not answered for a while, or has refused this node: what it does.
pub(crate) fn of_coordinator_away(what: &str) -> String {
    format!(
        "{what}: new clients cannot write, and once its lease has run out this node answers nobody; bring \
         the coordinator back, or see whether this host reaches it and may use it"
    )
}

/// Of a coordinator that refuses sessions.
pub(crate) fn of_coordinator_room() -> String {
    "new clients cannot write, because the coordinator has no room for their sessions: make room there"
        .to_owned()
}

/// Of checkpoints: how many of a pair's have failed since the last good one, and why the last of them did.
pub(crate) fn of_checkpoints(
    mut failed: impl Iterator<Item = (PairId, u64, CheckpointFailure)>,
) -> Vec<String> {
    let words = |(pair, in_a_row, why): (PairId, u64, CheckpointFailure)| {
        let what = match in_a_row {
            1 => "the last checkpoint".to_owned(),
            _ => format!("the last {in_a_row} checkpoints"),
        };
        format!("{what} of {pair} failed, and the log grows: {why}")
    };
    let mut warnings: Vec<String> = failed.by_ref().take(PAIRS_NAMED).map(words).collect();
    match failed.count() {
        0 => {}
        1 => warnings.push("the last checkpoint of one more pair failed".to_owned()),
        more => warnings.push(format!("the last checkpoints of {more} more pairs failed")),
    }
    warnings
}

/// Of a node that is to be emptied, with so many pairs left.
pub(crate) fn of_drain(drains: &[DrainRow], node: NodeId, pairs_left: usize) -> Option<String> {
    let row = drains.iter().find(|row| row.node == node)?;
    let left = match (row.removed, pairs_left) {
        (true, _) => return Some(format!("it was removed from the cluster by {}: stop it", row.who)),
        (false, 0) => "no pair is left, and it can be stopped".to_owned(),
        (false, left) => format!("{} left", counted(left as u64, "pair is", "pairs are")),
    };
    let stall = row.stall.as_ref().filter(|_| pairs_left > 0).map(|stall| format!("; {stall}"));
    let who = &row.who;
    Some(format!("it is to be emptied (it drains), by {who}, and {left}{}", stall.unwrap_or_default()))
}

/// Of rows of the coordinator that do not read.
pub(crate) fn of_rows(unreadable: &[String]) -> Option<String> {
    let first = unreadable.first()?;
    let more = match unreadable.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more do not read either"),
    };
    Some(format!("a row of the coordinator does not read, and what was there before holds: {first}{more}"))
}

/// Of what this life of a node could not read: pairs that another node read, and those that are not served.
pub(crate) fn of_damage(pairs: &[PairRow], incarnation: Incarnation) -> Vec<String> {
    let refuted = pairs.iter().flat_map(|row| row.refuted.iter().map(move |of| (row.pair, of)));
    let refuted = refuted.filter(|(_, refuted)| refuted.finding.incarnation == incarnation);
    let refuted = refuted.map(|(pair, refuted)| format!("it {}", refuted.words(pair)));
    let found_here = |row: &&PairRow| row.findings.iter().any(|finding| finding.incarnation == incarnation);
    let found = pairs.iter().filter(found_here);
    let found = found.map(|row| format!("it found {} damaged: {}", row.pair, row.found()));
    let mut all = refuted.chain(found);
    let mut warnings: Vec<String> = all.by_ref().take(PAIRS_NAMED).collect();
    match all.count() {
        0 => {}
        1 => warnings.push("it could not read one more pair".to_owned()),
        more => warnings.push(format!("it could not read {more} more pairs")),
    }
    warnings
}

/// Of a file of tokens that was wrong when it was last read, and of the process's other files and settings.
pub(crate) fn of_files(access: &AccessRules, process: &ProcessWarnings) -> Vec<String> {
    let refused = access.refused();
    let of_tokens =
        refused.map(|why| format!("the file of tokens is wrong, and the tokens before it hold: {why}"));
    of_tokens.into_iter().chain(process.all()).collect()
}

/// A line each, and of those as much as so many bytes have.
pub(crate) fn lines(warnings: &[String], bytes_max: usize) -> String {
    let mut text = warnings.join("\n");
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Finding, Missing, PairGeometry, PairState, RefutedFinding};
    use cell_terms::{Epoch, NodeId};

    use super::*;

    fn found(pair: u32, incarnation: u64) -> Finding {
        let missing = Missing::Log { region: PairId(pair).node_region(), epoch: Epoch(1) };
        Finding { incarnation: Incarnation(incarnation), node: NodeId(1), missing }
    }

    fn row(pair: u32) -> PairRow {
        PairRow {
            pair: PairId(pair),
            node_region: PairId(pair).node_region(),
            extent_region: PairId(pair).extent_region(),
            owner: None,
            node: NodeId(1),
            served_by: None,
            host: None,
            epoch: Epoch(1),
            state: PairState::New,
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 4,
                extent_region_bytes: 4,
                slot_bytes: 1,
                node_bytes: 1,
            },
            history: Vec::new(),
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    #[test]
    fn warnings_of_damage_are_of_what_this_life_could_not_read() {
        let refuted = |pair, by| {
            let finding = found(pair, by);
            PairRow { refuted: vec![RefutedFinding { finding, read_by: NodeId(2) }], ..row(pair) }
        };
        let pairs = [refuted(3, 7), refuted(4, 8), PairRow { findings: vec![found(5, 7)], ..row(5) }];
        let warnings = of_damage(&pairs, Incarnation(7));
        let first = "it could not read the log of pair 3 that node 2 read: look at its mount";
        assert!(warnings[0].starts_with(first), "{warnings:?}");
        let second = "it found pair-5 damaged: the log of region-10, epoch 1, is missing (found by node 1)";
        assert_eq!(warnings[1..], [second]);
        assert!(of_damage(&pairs, Incarnation(9)).is_empty());
        let many: Vec<_> = (1..=5).map(|pair| refuted(pair, 7)).collect();
        let warnings = of_damage(&many, Incarnation(7));
        assert_eq!((warnings.len(), &*warnings[2]), (3, "it could not read 3 more pairs"));
        assert_eq!(of_damage(&many[..3], Incarnation(7))[2], "it could not read one more pair");
    }

    #[test]
    fn warning_of_a_drain_says_what_is_left_and_what_keeps_it() {
        let row = |removed, stall: Option<&str>| DrainRow {
            node: NodeId(2),
            who: "ops".to_owned(),
            why: None,
            since_unix_ms: 0,
            removed,
            stall: stall.map(str::to_owned),
        };
        let said = |row: DrainRow, left| of_drain(&[row], NodeId(2), left).unwrap();
        assert_eq!(of_drain(&[row(false, None)], NodeId(1), 3), None);
        assert_eq!(said(row(false, None), 1), "it is to be emptied (it drains), by ops, and 1 pair is left");
        let stalled = "it is to be emptied (it drains), by ops, and 2 pairs are left; pair-1 cannot move";
        assert_eq!(said(row(false, Some("pair-1 cannot move")), 2), stalled);
        assert!(said(row(false, Some("pair-1 cannot move")), 0).ends_with("it can be stopped"));
        assert_eq!(said(row(true, None), 0), "it was removed from the cluster by ops: stop it");
    }

    #[test]
    fn lines_end_with_a_whole_letter() {
        let warnings = ["one".to_owned(), "\u{e4}".to_owned()];
        assert_eq!(lines(&warnings, 100), "one\n\u{e4}");
        assert_eq!(lines(&warnings, 5), "one\n");
        assert_eq!(lines(&[], 5), "");
    }

    #[test]
    fn warning_of_rows_names_the_first_and_counts_the_rest() {
        let rows: Vec<String> = ["`a`: bad", "`b`: bad", "`c`: bad"].map(str::to_owned).into();
        assert_eq!(of_rows(&rows[..0]), None);
        assert!(of_rows(&rows[..1]).unwrap().ends_with("holds: `a`: bad"));
        assert!(of_rows(&rows).unwrap().ends_with("`a`: bad; 2 more do not read either"));
    }

    #[test]
    fn warnings_of_connections_last_a_minute() {
        assert_eq!(of_connections(None, 7), None);
        let said = of_connections(Some(7), 8).unwrap();
        assert!(said.contains("fabric_connections_max"), "{said}");
        assert_eq!(of_connections(Some(7), 7 + TURNED_AWAY_SHOWN_NS), None);
    }

    #[test]
    fn warning_of_log_waits_names_a_pair_and_counts_the_rest() {
        let said = |pairs: u32| of_log_waits((1..=pairs).map(PairId));
        assert_eq!(said(0), None);
        assert!(said(1).unwrap().contains("writes to pair-1 wait"));
        assert!(said(2).unwrap().contains("pair-1 and 1 more pair wait"));
        assert!(said(9).unwrap().contains("pair-1 and 8 more pairs wait"));
    }

    #[test]
    fn warning_of_takeovers_without_room_names_a_pair_and_counts_the_rest() {
        let said = |pairs: u32| of_takeovers_without_room((1..=pairs).map(PairId));
        assert_eq!(said(0), None);
        assert!(said(1).unwrap().contains("would write of pair-1, to take"));
        assert!(said(3).unwrap().contains("would write of pair-1 and 2 more pairs, to take"));
    }

    #[test]
    fn warning_of_a_disk_says_what_is_left_and_names_a_pair() {
        let said = |pairs: u32| of_disk(Some(3 << 30), (1..=pairs).map(PairId));
        assert_eq!(said(0), None);
        let one = "nearly full: 3,072 MiB are left, and the next checkpoint of pair-1 may not fit";
        assert!(said(1).unwrap().ends_with(one));
        assert!(said(4).unwrap().contains("of pair-1 and 3 more pairs may"));
        assert_eq!(of_disk(None, [PairId(1)].into_iter()), None, "nobody has looked");
    }

    #[test]
    fn warnings_of_restarts_last_ten_minutes() {
        assert_eq!(of_restarts(Some("ended"), RESTARTS_SHOWN_NS - 1), ["it ended"]);
        assert!(of_restarts(Some("ended"), RESTARTS_SHOWN_NS).is_empty());
        assert!(of_restarts(None, 0).is_empty());
    }

    #[test]
    fn warnings_name_two_pairs_and_count_the_rest() {
        let failed = |pairs: u32| {
            of_checkpoints((1..=pairs).map(|pair| (PairId(pair), pair.into(), CheckpointFailure::Damaged)))
        };
        assert!(failed(0).is_empty());
        assert!(
            failed(1)[0].starts_with("the last checkpoint of pair-1 failed, and the log grows: the pair's")
        );
        assert!(failed(2)[1].starts_with("the last 2 checkpoints of pair-2 failed"));
        assert_eq!(failed(3)[2], "the last checkpoint of one more pair failed");
        assert_eq!((failed(9).len(), &*failed(9)[2]), (3, "the last checkpoints of 7 more pairs failed"));
    }
}
