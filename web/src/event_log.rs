//! What happened at a node and in its cluster, as the differences between one snapshot and the next. A pure
//! core: it is shown a snapshot with the time, once a second.
//!
//! Every node sees what happens in the cluster, so such an event has an id that is made of what happened:
//! where the lists of several nodes are put together, it is one event, with the time of whoever saw it first.
//!
//! What the cluster's rows date has that time, and everything else the time of the look that found it: it
//! happened since the look before. Of one look what was lost comes before what came in its place.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_cluster::{Finding, IncidentRow, MemberRow, Trouble};
use cell_node::{ClusterSnapshot, NodeSnapshot, NodeState};
use cell_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::LookTime;
use crate::drain_events::{self, DrainNews};
use crate::drill::{RunSeen, RunState};
use crate::event_kind::{EventKind as Kind, Severity};
use crate::move_events;
use crate::words::counted;

/// Events that are kept.
pub(crate) const EVENTS_MAX: usize = 1_000;
/// A look shows nothing that happened so long before the one before it: a date from that far is of another
/// machine's clock.
const REACH_MS: u64 = 10_000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) at_unix_ms: u64,
    /// Where it happened, or to whom.
    pub(crate) node: u32,
    /// The word of a [`Kind`].
    pub(crate) kind: String,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    /// The same, for programs.
    pub(crate) details: Value,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    last: Option<(u64, Arc<NodeSnapshot>)>,
    drills: Vec<RunSeen>,
    events: VecDeque<Event>,
    /// When the node was first seen to have seen its cluster.
    since_unix_ms: Option<u64>,
    /// How many there were, also those that are not kept any more.
    counted: u64,
    numbered: u64,
}

/// What is new of one look, by its time.
struct Look<'a> {
    log: &'a mut EventLog,
    at_unix_ms: u64,
    /// The same by CLOCK_BOOTTIME, and how long before it the look before it was; none where nothing is
    /// dated.
    dates: Option<Dates>,
}

/// How dates of the cluster's rows are read.
#[derive(Clone, Copy)]
struct Dates {
    boottime_ms: u64,
    since_last_ms: u64,
}

impl EventLog {
    /// A look at the node.
    pub(crate) fn observe(&mut self, at: LookTime, snapshot: &Arc<NodeSnapshot>) {
        let LookTime { boottime_ms, unix_ms: at_unix_ms } = at;
        let before = self.last.replace((boottime_ms, Arc::clone(snapshot)));
        if !snapshot.cluster.is_unseen() {
            self.since_unix_ms = self.since_unix_ms.or(Some(at_unix_ms));
        }
        let dates = before.as_ref().map(|(before_ms, _)| Dates {
            boottime_ms,
            since_last_ms: boottime_ms.saturating_sub(*before_ms),
        });
        let mut look = Look { log: self, at_unix_ms, dates };
        look.state(before.as_ref().map(|(_, before)| &**before), snapshot);
        let Some((_, before)) = before else { return };
        look.work(&before, snapshot);
        // Until the node has looked at its cluster for the first time, it is not known what is new.
        if before.cluster.revision > 0 && before.cluster.revision != snapshot.cluster.revision {
            let drains = drain_events::news(&before.cluster, &snapshot.cluster);
            let (started, drained): (Vec<_>, Vec<_>) = drains.into_iter().partition(|news| news.is_begin);
            look.members(&before.cluster, &snapshot.cluster);
            look.incidents(&before.cluster, &snapshot.cluster);
            look.balancer(&before.cluster, &snapshot.cluster);
            look.drains(started);
            look.moves(&before.cluster, &snapshot.cluster);
            look.findings(&before.cluster, &snapshot.cluster);
            look.troubles(&before.cluster, &snapshot.cluster);
            look.drains(drained);
            look.settings(&before, snapshot);
        }
    }

    /// A look at the drills that the node runs and ran.
    pub(crate) fn observe_drills(&mut self, at_unix_ms: u64, runs: Vec<RunSeen>) {
        let before = std::mem::take(&mut self.drills);
        let mut look = Look { log: self, at_unix_ms, dates: None };
        for run in &runs {
            let then = before.iter().find(|then| then.id == run.id);
            look.drill(then, run);
        }
        self.drills = runs;
    }

    /// How many events there were.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// From when on the node sees what happens; none if it has not seen its cluster yet.
    pub(crate) fn since_unix_ms(&self) -> Option<u64> {
        self.since_unix_ms
    }

    /// The events that are kept, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }
}

impl Look<'_> {
    fn push(&mut self, id: String, node: NodeId, kind: (Kind, Severity), text: String, details: Value) {
        self.push_at(self.at_unix_ms, id, (node, kind), text, details);
    }

    fn push_at(
        &mut self,
        at_unix_ms: u64,
        id: String,
        (node, (kind, severity)): (NodeId, (Kind, Severity)),
        text: String,
        details: Value,
    ) {
        if self.log.events.len() == EVENTS_MAX {
            self.log.events.pop_front();
        }
        self.log.counted += 1;
        let (node, kind) = (node.0, kind.word().to_owned());
        self.log.events.push_back(Event { id, at_unix_ms, node, kind, severity, text, details });
    }

    /// When something happened that a row of the cluster dates by its writer's CLOCK_BOOTTIME: that of this
    /// machine, if it can be. The time of the look, if not.
    fn happened(&self, written_ms: u64) -> u64 {
        let ago = self.dates.and_then(|dates| {
            let ago = dates.boottime_ms.checked_sub(written_ms)?;
            (ago <= dates.since_last_ms + REACH_MS).then_some(ago)
        });
        self.at_unix_ms.saturating_sub(ago.unwrap_or(0))
    }

    /// When something happened that a row of the cluster dates by its writer's wall clock, likewise.
    fn happened_at(&self, unix_ms: u64) -> u64 {
        let since_last_ms = self.dates.map_or(0, |dates| dates.since_last_ms);
        let ago = self.at_unix_ms.checked_sub(unix_ms).filter(|_| unix_ms > 0);
        if ago.is_some_and(|ago| ago <= since_last_ms + REACH_MS) { unix_ms } else { self.at_unix_ms }
    }

    /// An event that this node alone sees.
    fn own(&mut self, of: &NodeSnapshot, kind: (Kind, Severity), text: String, details: Value) {
        self.log.numbered += 1;
        let life = match of.incarnation {
            // It has no lease yet, nor have others.
            Incarnation(0) => format!("{}.{}", of.node.0, self.at_unix_ms),
            Incarnation(life) => life.to_string(),
        };
        let id = format!("{life}-{}", self.log.numbered);
        self.push(id, of.node, kind, text, details);
    }

    fn state(&mut self, before: Option<&NodeSnapshot>, now: &NodeSnapshot) {
        if let (None, Some(why)) = (before, &now.restarted_because) {
            let text = format!("{} {why}", now.node);
            self.own(now, (Kind::HeldBack, Severity::Warning), text, json!({"restarted_because": &**why}));
        }
        let word = now.state.word();
        if before.is_some_and(|before| before.state.word() == word) {
            return;
        }
        let kind = match &now.state {
            NodeState::ReadOnly(_) => (Kind::ReadOnly, Severity::Warning),
            NodeState::Starting(wait) if wait.tries == 0 => (Kind::NodeState, Severity::Info),
            NodeState::Starting(_) | NodeState::Silent => (Kind::NodeState, Severity::Warning),
            NodeState::Failed(_) => (Kind::NodeState, Severity::Critical),
            _ => (Kind::NodeState, Severity::Info),
        };
        let text = match &now.state {
            NodeState::ReadOnly(reason) => format!("{}: {}", now.node, reason.words()),
            NodeState::Starting(wait) => format!("{}: {}", now.node, wait.words()),
            NodeState::Silent => format!("{}: {}", now.node, cell_node::SILENT_WORDS),
            NodeState::Failed(kind) => format!("{}: {}", now.node, kind.words()),
            _ => format!("{} is {word}", now.node),
        };
        let from = before.map(|before| before.state.word());
        self.own(now, kind, text, json!({"from": from, "to": word}));
    }

    /// Renewals that nearly came too late, splits and checkpoints.
    fn work(&mut self, before: &NodeSnapshot, now: &NodeSnapshot) {
        // Those of a process that was not seen before are in its metrics.
        if now.renewals.slow > before.renewals.slow && now.incarnation == before.incarnation {
            let text = format!("{}: {}", now.node, now.renewals.words());
            let details = json!({"slow": now.renewals.slow - before.renewals.slow});
            self.own(now, (Kind::Lease, Severity::Warning), text, details);
        }
        let finished = now.splits.finished.saturating_sub(before.splits.finished);
        if finished > 0 {
            let text = format!("{} of meganodes finished", counted(finished, "split"));
            self.own(now, (Kind::Split, Severity::Info), text, json!({"finished": finished}));
        }
        let merged = now.splits.merged.saturating_sub(before.splits.merged);
        if merged > 0 {
            let text = format!("{} merged", counted(merged, "empty meganode"));
            self.own(now, (Kind::Split, Severity::Info), text, json!({"merged": merged}));
        }
        let aborted = now.splits.aborted.saturating_sub(before.splits.aborted);
        if aborted > 0 {
            let text = format!("{} failed, and was undone", counted(aborted, "split"));
            self.own(now, (Kind::Split, Severity::Warning), text, json!({"aborted": aborted}));
        }
        for pair in &now.pairs {
            let then = before.pairs.iter().find(|then| then.pair == pair.pair && then.epoch == pair.epoch);
            if then.is_some_and(|then| pair.checkpoints > then.checkpoints) {
                let text = format!("{}: a checkpoint up to CSN {}", pair.pair, pair.csn_checkpointed.0);
                let details = json!({"pair": pair.pair.0, "csn": pair.csn_checkpointed.0.to_string()});
                self.own(now, (Kind::Checkpoint, Severity::Info), text, details);
            }
            // Tried again and again it fails again and again: that is one event.
            if let Some(why) = pair.checkpoint_failure
                && then.is_none_or(|then| then.checkpoint_failure != Some(why))
            {
                let text = format!("{}: a checkpoint failed, and the log grows: {why}", pair.pair);
                let details = json!({"pair": pair.pair.0, "error": why.to_string()});
                self.own(now, (Kind::Checkpoint, Severity::Warning), text, details);
            }
        }
    }

    fn members(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        for member in missing(&before.members, &now.members) {
            let (node, incarnation) = (member.node, member.incarnation.0);
            let loss = self.before_loss(member.incarnation);
            let is_older = before.incidents.iter().any(|incident| incident.dead == member.incarnation);
            if is_older && loss.is_none() {
                continue; // it was lost before this node looked: others know when
            }
            let text = format!("{node} has left: its lease is gone");
            let details = json!({"incarnation": incarnation.to_string()});
            let kind = (Kind::MemberLeft, Severity::Warning);
            let at = loss.map_or(self.at_unix_ms, |loss| loss.min(self.at_unix_ms));
            self.push_at(at, format!("left-{incarnation}"), (node, kind), text, details);
        }
        for member in missing(&now.members, &before.members) {
            let (node, incarnation) = (member.node, member.incarnation.0);
            let details = json!({"incarnation": incarnation.to_string(), "http": member.http});
            let kind = (Kind::MemberJoined, Severity::Info);
            self.push(format!("joined-{incarnation}"), node, kind, format!("{node} joined"), details);
        }
    }

    fn incidents(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        for incident in &now.incidents {
            let dead = incident.dead;
            let then = before.incidents.iter().find(|then| then.dead == dead);
            // Each of nobody's has a number, which is nobody's.
            let (name, dead_number) = match incident.is_of_nobody() {
                true => ("nobody's pairs".to_owned(), "0".to_owned()),
                false => (incident.node.to_string(), dead.0.to_string()),
            };
            let of = format!("{}-{}", dead.0, incident.claimed_ms);
            if then.is_none() {
                let pairs = incident.plan.len();
                let text = format!("{name}: gone, {} to be taken over", counted(pairs as u64, "pair"));
                let details = json!({"dead": dead_number, "pairs": pairs});
                let kind = (Kind::Incident, Severity::Critical);
                let at = self.happened(incident.detected_ms);
                self.left_by(dead, at.saturating_sub(1));
                self.push_at(at, format!("incident-{of}"), (incident.node, kind), text, details);
            }
            self.takeovers(then, incident, now, &of);
            if incident.is_over() && then.is_none_or(|then| !then.is_over()) {
                // A pair's owner may write a moment after its closer that it serves.
                let served = incident.plan.iter().map(|share| share.times.serving_ms);
                let over_ms = served.fold(incident.over_ms, u64::max);
                let took = over_ms.saturating_sub(incident.detected_ms);
                let text =
                    format!("{name}: every pair is back or reported, {took} ms after the loss was seen");
                let details = json!({"dead": dead_number, "took_ms": took});
                let kind = (Kind::Incident, Severity::Info);
                let at = self.happened(over_ms);
                self.push_at(at, format!("over-{of}"), (incident.node, kind), text, details);
            }
        }
    }

    /// A time before a member's loss was seen, if that is known already.
    fn before_loss(&self, dead: Incarnation) -> Option<u64> {
        let of_it = format!("incident-{}-", dead.0);
        let seen = self.log.events.iter().rev().find(|event| event.id.starts_with(&of_it));
        seen.map(|event| event.at_unix_ms.saturating_sub(1))
    }

    /// A member had left before its loss was seen, whenever this node noticed.
    fn left_by(&mut self, dead: Incarnation, at_unix_ms: u64) {
        let id = format!("left-{}", dead.0);
        if let Some(left) = self.log.events.iter_mut().rev().find(|event| event.id == id) {
            left.at_unix_ms = left.at_unix_ms.min(at_unix_ms);
        }
    }

    fn takeovers(
        &mut self,
        then: Option<&IncidentRow>,
        now: &IncidentRow,
        cluster: &ClusterSnapshot,
        of: &str,
    ) {
        for share in now.plan.iter().filter(|share| share.times.serving_ms > 0) {
            let served =
                |then: &IncidentRow| then.share(share.pair).is_some_and(|then| then.times.serving_ms > 0);
            if then.is_some_and(served) {
                continue;
            }
            let member = cluster.members.iter().find(|member| Some(member.incarnation) == share.survivor);
            let node = member.map_or(now.node, |member| member.node);
            let took = share.times.serving_ms.saturating_sub(now.detected_ms);
            let text = format!("{} is served by {node}, {took} ms after the loss was seen", share.pair);
            let details =
                json!({"pair": share.pair.0, "took_ms": took, "replayed_bytes": share.times.replayed_bytes});
            let kind = (Kind::Takeover, Severity::Info);
            let at = self.happened(share.times.serving_ms);
            self.push_at(at, format!("takeover-{}-{of}", share.pair.0), (node, kind), text, details);
        }
    }

    /// Planned moves of pairs.
    fn moves(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        for event in move_events::between(before, now) {
            let at = self.happened_at(event.at_unix_ms);
            let kind = (Kind::Move, event.severity);
            self.push_at(at, event.id, (event.node, kind), event.text, event.details);
        }
    }

    /// What nodes found damaged, and which of it others have read since.
    fn findings(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        let kind = (Kind::Takeover, Severity::Warning);
        for row in &now.pairs {
            let (pair, then) = (row.pair, before.pairs.iter().find(|then| then.pair == row.pair));
            for finding in &row.findings {
                if then.is_some_and(|then| then.findings.contains(finding)) {
                    continue;
                }
                let Finding { incarnation, node, missing } = finding;
                let text = format!("{node} found {pair} damaged: {missing}");
                let details = json!({"pair": pair.0, "missing": missing});
                let id = format!("damage-{}-{}", pair.0, incarnation.0);
                self.push(id, *node, kind, text, details);
            }
            for refuted in &row.refuted {
                if then.is_some_and(|then| then.refuted.contains(refuted)) {
                    continue;
                }
                let Finding { incarnation, node, missing } = &refuted.finding;
                let text = format!("{node} {}", refuted.words(pair));
                let details = json!({"pair": pair.0, "missing": missing, "read_by": refuted.read_by.0});
                let id = format!("refuted-{}-{}-{}", pair.0, incarnation.0, refuted.read_by.0);
                self.push(id, *node, kind, text, details);
            }
        }
    }

    /// Pairs that cannot be served and do not come back by themselves.
    fn troubles(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        for row in &now.pairs {
            let then = before.pairs.iter().find(|then| then.pair == row.pair);
            let then = then.and_then(|then| trouble(then, before));
            let Some(trouble) = trouble(row, now).filter(|trouble| trouble.next.is_some()) else { continue };
            if then.as_ref() != Some(&trouble) {
                let text = format!("{} is {}", row.pair, trouble.what);
                let details = json!({"pair": row.pair.0, "next": trouble.next});
                let id = format!("trouble-{}-{}", row.pair.0, row.epoch.0);
                self.push(id, row.node, (Kind::Takeover, Severity::Critical), text, details);
            }
        }
    }

    fn drains(&mut self, news: Vec<DrainNews>) {
        for DrainNews { id, at_unix_ms, node, is_warning, text, details, .. } in news {
            let severity = if is_warning { Severity::Warning } else { Severity::Info };
            let at = self.happened_at(at_unix_ms);
            self.push_at(at, id, (node, (Kind::Drain, severity)), text, details);
        }
    }

    fn balancer(&mut self, before: &ClusterSnapshot, now: &ClusterSnapshot) {
        let Some(node) = now.balance.balancer.filter(|_| before.balance.balancer != now.balance.balancer)
        else {
            return;
        };
        let text = match now.balance.on {
            true => format!("{node} balances from now on"),
            false => format!("{node} moves pairs for drains from now on; balance is off"),
        };
        // Each node sees it at a revision of its own.
        let seat = now.balance.seat.map_or(0, |incarnation| incarnation.0);
        let id = format!("balancer-{}-{seat}", node.0);
        self.push(id, node, (Kind::Balance, Severity::Info), text, json!({"node": node.0}));
    }

    fn drill(&mut self, then: Option<&RunSeen>, now: &RunSeen) {
        let RunSeen { id, kind, node, state, who, halted_by } = now;
        let node = NodeId(*node);
        let details = || json!({"run": id, "fault": kind, "who": who, "halted_by": halted_by});
        if then.is_none() {
            let text = format!("a drill begins: {kind} of {node}, by {who}");
            self.push(format!("begun-{id}"), node, (Kind::Drill, Severity::Warning), text, details());
        }
        if !state.is_over() || then.is_some_and(|then| then.state.is_over()) {
            return;
        }
        let (severity, words) = match state {
            RunState::Passed => (Severity::Info, "passed: nothing acknowledged was lost"),
            RunState::Halted => (Severity::Info, "was halted"),
            RunState::Failed => (Severity::Critical, "failed: something acknowledged is missing or wrong"),
            _ => (Severity::Warning, "has shown nothing"),
        };
        let by = halted_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let by = if *state == RunState::Halted { by } else { String::new() };
        let text = format!("the drill of {node} {words}{by}");
        self.push(format!("over-{id}"), node, (Kind::Drill, severity), text, details());
    }

    fn settings(&mut self, before: &NodeSnapshot, now: &NodeSnapshot) {
        let (then, row) = (&before.cluster.tuning, &now.cluster.tuning);
        if row.revision == then.revision {
            return;
        }
        let names = then.values.keys().chain(row.values.keys());
        let mut names: Vec<&String> =
            names.filter(|name| then.values.get(*name) != row.values.get(*name)).collect();
        names.sort();
        names.dedup();
        let word = |name: &&String| match row.values.get(*name) {
            Some(value) => format!("{name} is {}", value.text),
            None => format!("{name} is as it was given"),
        };
        let words: Vec<String> = names.iter().map(word).collect();
        let text = format!("settings, revision {}: {}", row.revision, words.join(", "));
        let details = json!({"revision": row.revision.to_string(), "names": names});
        self.push(
            format!("setting-{}", row.revision),
            now.node,
            (Kind::Setting, Severity::Info),
            text,
            details,
        );
    }
}

fn trouble(row: &cell_cluster::PairRow, cluster: &ClusterSnapshot) -> Option<Trouble> {
    let lives = |owner| cluster.members.iter().any(|member| member.incarnation == owner);
    Trouble::of(row, lives, &cluster.incidents)
}

/// Those of `all` that are not among `others`.
fn missing<'a>(all: &'a [MemberRow], others: &'a [MemberRow]) -> impl Iterator<Item = &'a MemberRow> {
    all.iter().filter(|member| !others.iter().any(|other| other.incarnation == member.incarnation))
}

/// The lists of several nodes as one, newest first, as each of them is: of several with one id the earliest
/// counts. Of one moment each list's own order stands.
pub(crate) fn merge(lists: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
    let mut all: Vec<(usize, Event)> = lists.into_iter().flatten().enumerate().collect();
    all.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id).then(a.at_unix_ms.cmp(&b.at_unix_ms)));
    all.dedup_by(|(_, later), (_, earlier)| later.id == earlier.id);
    end_after_takeovers(&mut all);
    all.sort_by(|(a_place, a), (b_place, b)| b.at_unix_ms.cmp(&a.at_unix_ms).then(a_place.cmp(b_place)));
    all.into_iter().map(|(_, event)| event).collect()
}

/// Two nodes read one clock some milliseconds apart: a loss is over after its takeovers all the same.
fn end_after_takeovers(all: &mut [(usize, Event)]) {
    for at in 0..all.len() {
        let Some(of) = all[at].1.id.strip_prefix("over-") else { continue };
        let of = format!("-{of}");
        let takeovers = all.iter().map(|(_, event)| event);
        let takeovers =
            takeovers.filter(|event| event.id.starts_with("takeover-") && event.id.ends_with(&of));
        let last = takeovers.map(|event| event.at_unix_ms + 1).max().unwrap_or(0);
        all[at].1.at_unix_ms = all[at].1.at_unix_ms.max(last);
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{
        DrainRow, Missing, MoveOutcome, MoveStage, MoveTimes, PairRow, PairState, RefutedFinding, ShareRow,
        ShareTimes, TunedValue,
    };
    use cell_node::{BalanceSnapshot, CheckpointFailure, ReadOnlyReason, RenewalFigures};
    use cell_terms::{Epoch, PairId};

    use super::*;
    use crate::api::regions::tests::pair_row;
    use crate::event_kind::EVENT_KINDS;
    use crate::move_events::tests::move_row;
    use crate::test_members::{life, member};
    use crate::test_snapshot::snapshot;

    fn at_ms(ms: u64) -> LookTime {
        LookTime { boottime_ms: ms, unix_ms: ms }
    }

    fn incident(over_ms: u64, serving_ms: u64) -> IncidentRow {
        let times = ShareTimes { serving_ms, ..ShareTimes::default() };
        let survivor = Some(Incarnation(71));
        IncidentRow {
            dead: Incarnation(72),
            node: NodeId(2),
            claimed_by: Incarnation(71),
            lease_seen_ms: 0,
            detected_ms: 100,
            claimed_ms: 101,
            over_ms,
            plan: vec![ShareRow { pair: PairId(4), survivor, times, ..ShareRow::default() }],
        }
    }

    #[test]
    fn observe_drills_reports_begin_and_end_once() {
        let run = |state| RunSeen {
            id: "drill-0-7".to_owned(),
            kind: "kill",
            node: 1,
            state,
            who: "ann".to_owned(),
            halted_by: Some("bob".to_owned()),
        };
        let mut log = EventLog::default();
        for state in [RunState::Running, RunState::Verifying, RunState::Passed, RunState::Passed] {
            log.observe_drills(1, vec![run(state)]);
        }
        let logged: Vec<_> = log.iter().map(|event| (event.id.as_str(), event.severity)).collect();
        assert_eq!(logged, [("begun-drill-0-7", Severity::Warning), ("over-drill-0-7", Severity::Info)]);
        assert!(log.iter().all(|event| event.kind == "drill" && event.node == 1));
        let mut halted = EventLog::default();
        halted.observe_drills(1, vec![run(RunState::Halted)]);
        let words: Vec<_> = halted.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(
            words,
            ["a drill begins: kill of node-1, by ann", "the drill of node-1 was halted by bob"]
        );
        let mut log = EventLog::default();
        log.observe_drills(1, vec![run(RunState::Failed)]);
        let last = log.iter().next_back().map(|event| (event.severity, log.iter().count()));
        assert_eq!(last, Some((Severity::Critical, 2)), "it was over within one second");
    }

    /// What the log says of each further look at a cluster that looks so.
    fn logged(looks: Vec<ClusterSnapshot>) -> Vec<Vec<(String, String)>> {
        let mut log = EventLog::default();
        let mut known = 0;
        let looks = looks.into_iter().enumerate().map(|(at, cluster)| {
            let cluster = Arc::new(ClusterSnapshot { revision: 1 + at as u64, ..cluster });
            log.observe(at_ms(1_000 * at as u64), &Arc::new(NodeSnapshot { cluster, ..snapshot() }));
            let new = log.iter().skip(known).map(|event| (event.kind.clone(), event.text.clone())).collect();
            known = log.iter().count();
            new
        });
        looks.skip(1).collect()
    }

    fn texts(logged: &[(String, String)]) -> Vec<&str> {
        logged.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_death_is_reported_from_the_lease_to_the_last_pair() {
        let members = |nodes: &[u32]| nodes.iter().copied().map(member).collect::<Vec<_>>();
        let look = |nodes: &[u32], incidents| ClusterSnapshot {
            members: members(nodes),
            incidents,
            ..ClusterSnapshot::default()
        };
        let logged = logged(vec![
            look(&[1, 2], vec![]),
            look(&[1], vec![]),
            look(&[1], vec![incident(0, 0)]),
            look(&[1], vec![incident(0, 350)]),
            look(&[1, 2], vec![incident(400, 350)]),
            look(&[1, 2], vec![incident(400, 350)]),
        ]);
        assert_eq!(texts(&logged[0]), ["node-2 has left: its lease is gone"]);
        assert_eq!(texts(&logged[1]), ["node-2: gone, 1 pair to be taken over"]);
        assert_eq!(texts(&logged[2]), ["pair-4 is served by node-1, 250 ms after the loss was seen"]);
        assert_eq!(
            texts(&logged[3]),
            ["node-2 joined", "node-2: every pair is back or reported, 300 ms after the loss was seen"]
        );
        assert!(logged[4].is_empty());
    }

    /// "Every pair is back, 255 ms" once stood beside "pair-2 is served, 264 ms".
    #[test]
    fn an_end_of_an_incident_is_no_earlier_than_its_last_pair() {
        let look = |incidents| ClusterSnapshot { incidents, ..ClusterSnapshot::default() };
        let logged = logged(vec![look(vec![incident(0, 0)]), look(vec![incident(340, 364)])]);
        let seen = texts(&logged[0]);
        assert!(seen.iter().any(|text| text.starts_with("pair-4 is served by ")), "{seen:?}");
        assert!(seen.iter().any(|text| text.contains("back or reported, 264 ms after")), "{seen:?}");
    }

    #[test]
    fn damage_is_reported_as_each_node_finds_it_and_again_when_another_has_read_the_pair() {
        let missing = Missing::Log { region: PairId(4).node_region(), epoch: Epoch(1) };
        let found = |node: u32| Finding {
            incarnation: Incarnation(70 + u64::from(node)),
            node: NodeId(node),
            missing: missing.clone(),
        };
        let look = |row: PairRow| ClusterSnapshot {
            members: [1, 2].map(member).into(),
            pairs: vec![row],
            ..ClusterSnapshot::default()
        };
        let state = PairState::Unavailable { missing: missing.clone() };
        let one = PairRow { owner: None, findings: vec![found(1)], state: state.clone(), ..pair_row(4, 71) };
        let both = PairRow { findings: vec![found(1), found(2)], state, ..pair_row(4, 72) };
        let refuted = vec![RefutedFinding { finding: found(1), read_by: NodeId(2) }];
        let read = PairRow { refuted, ..pair_row(4, 72) };
        let served = pair_row(4, 72);
        let logs = logged([served, one.clone(), one, both].map(look).into());
        let of_one = "node-1 found pair-4 damaged: the log of region-8, epoch 1, is missing";
        assert_eq!(texts(&logs[0]), [of_one], "it passes: another one is to look");
        assert!(logs[1].is_empty());
        let said = texts(&logs[2]);
        assert_eq!(said[0], of_one.replace("node-1", "node-2"));
        assert!(said[1].ends_with("is missing (found by node 1 and node 2)"), "{said:?}");
        let logs = logged([pair_row(4, 71), read.clone(), read].map(look).into());
        let warning = "node-1 could not read the log of pair 4 that node 2 read: look at its mount";
        assert!(logs[0][0].1.starts_with(warning), "{logs:?}");
        assert!(logs[1].is_empty());
    }

    /// A node that was back within a look had joined before it left, and all of a takeover had the time at
    /// which this node noticed.
    #[test]
    fn a_death_and_a_return_within_one_look_are_in_order_and_at_their_times() {
        let mut log = EventLog::default();
        let mut look = |at: LookTime, revision, incarnations: &[u64], incidents| {
            let members = incarnations.iter().map(|incarnation| life(2, *incarnation)).collect();
            let cluster = ClusterSnapshot { revision, members, incidents, ..ClusterSnapshot::default() };
            log.observe(at, &Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }));
        };
        let at = |ms: u64| LookTime { boottime_ms: ms, unix_ms: 1_000_000 + ms };
        look(at(19_000), 1, &[72], vec![]);
        let dead = IncidentRow { detected_ms: 19_100, claimed_ms: 19_105, ..incident(19_700, 19_600) };
        look(at(20_000), 2, &[79], vec![dead]);
        let ids = |events: &[Event]| events.iter().map(|event| event.id.clone()).collect::<Vec<_>>();
        let all: Vec<Event> = log.iter().rev().cloned().collect();
        let merged = merge([all.clone(), all]);
        assert_eq!(
            ids(&merged),
            ["joined-79", "over-72-19105", "takeover-4-72-19105", "incident-72-19105", "left-72", "77-1"]
        );
        let times: Vec<_> = merged.iter().take(5).map(|event| event.at_unix_ms - 1_000_000).collect();
        assert_eq!(times, [20_000, 19_700, 19_600, 19_100, 19_099]);
    }

    /// The row of a member that is gone may outlast its loss.
    #[test]
    fn a_member_whose_row_outlasts_its_loss_left_before_that() {
        let mut log = EventLog::default();
        let (both, one) = (vec![member(1), member(2)], vec![member(1)]);
        let looks =
            [(19_000, both.clone(), vec![]), (20_000, both, vec![incident(0, 0)]), (30_000, one, vec![])];
        for (revision, (at, members, incidents)) in (1..).zip(looks) {
            let cluster = ClusterSnapshot { revision, members, incidents, ..ClusterSnapshot::default() };
            log.observe(at_ms(at), &Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }));
        }
        let at = |kind: &str| log.iter().find(|event| event.kind == kind).unwrap().at_unix_ms;
        assert_eq!(at("member_left"), at("incident") - 1);
    }

    /// Each of two nodes is the first to report a part.
    #[test]
    fn merged_losses_are_over_after_their_takeovers() {
        let event = |id: &str, at_unix_ms| Event {
            id: id.into(),
            at_unix_ms,
            node: 2,
            kind: "incident".into(),
            severity: Severity::Info,
            text: String::new(),
            details: json!({}),
        };
        let over = event("over-72-101", 500);
        let takeovers = [event("takeover-4-72-101", 501), event("takeover-4-73-101", 900)];
        let merged = merge([vec![over], takeovers.to_vec()]);
        let found: Vec<_> = merged.iter().map(|event| (&*event.id, event.at_unix_ms)).collect();
        assert_eq!(
            found,
            [("takeover-4-73-101", 900), ("over-72-101", 502), ("takeover-4-72-101", 501)],
            "another loss's takeover counts for nothing"
        );
    }

    /// The row of a member that is gone may outlast its loss, and a node may come in between.
    #[test]
    fn a_loss_from_before_the_first_look_is_left_to_others() {
        let mut log = EventLog::default();
        for (revision, at, members) in [(1, 19_000, vec![member(1), member(2)]), (2, 20_000, vec![member(1)])]
        {
            let incidents = vec![incident(400, 350)];
            let cluster = ClusterSnapshot { revision, members, incidents, ..ClusterSnapshot::default() };
            log.observe(at_ms(at), &Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }));
        }
        assert!(log.iter().all(|event| event.kind != "member_left"));
    }

    /// Another machine was started at another time: its dates mean nothing here.
    #[test]
    fn dates_of_another_machines_clock_are_not_believed() {
        let mut log = EventLog::default();
        for (revision, at, incidents) in [(1, 500_000, vec![]), (2, 501_000, vec![incident(400, 350)])] {
            let cluster = ClusterSnapshot { revision, incidents, ..ClusterSnapshot::default() };
            log.observe(at_ms(at), &Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }));
        }
        let times: Vec<_> = log.iter().skip(1).map(|event| event.at_unix_ms).collect();
        assert_eq!(times, [501_000; 3]);
    }

    #[test]
    fn states_splits_checkpoints_and_settings_are_reported() {
        let mut log = EventLog::default();
        let mut node = snapshot();
        node.cluster = Arc::new(ClusterSnapshot { revision: 1, ..ClusterSnapshot::default() });
        log.observe(at_ms(1), &Arc::new(node.clone()));
        node.state = NodeState::ReadOnly(ReadOnlyReason::DiskFull);
        node.splits.finished += 2;
        node.pairs[0].checkpoints += 1;
        let mut cluster = ClusterSnapshot { revision: 2, ..ClusterSnapshot::default() };
        cluster.tuning.revision = 1;
        let value = TunedValue { text: "0.02".into(), expires_unix_ms: None, after: None, later: Vec::new() };
        cluster.tuning.values.insert("selector.exploration".into(), value);
        node.cluster = Arc::new(cluster);
        log.observe(at_ms(2), &Arc::new(node));
        let kinds: Vec<&str> = log.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["node_state", "read_only", "split", "checkpoint", "setting"]);
        let last = log.iter().next_back().unwrap();
        assert_eq!(last.text, "settings, revision 1: selector.exploration is 0.02");
        assert!(log.iter().all(|event| EVENT_KINDS.contains(&event.kind.as_str())));
    }

    #[test]
    fn node_that_was_held_back_says_so_once() {
        let (mut log, mut node) = (EventLog::default(), snapshot());
        node.restarted_because = Some("ended 3 times in a row: signal 6".into());
        (0..3).for_each(|at| log.observe(at_ms(at), &Arc::new(node.clone())));
        let texts: Vec<_> = log.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["node-3 ended 3 times in a row: signal 6", "node-3 is serving"]);
        assert_eq!(log.iter().next().unwrap().kind, "held_back");
    }

    #[test]
    fn renewal_that_nearly_came_too_late_is_a_warning_each_time() {
        let (mut log, mut node) = (EventLog::default(), snapshot());
        for (at, slow) in [0, 0, 1, 1, 3].into_iter().enumerate() {
            node.renewals = RenewalFigures { slowest_ns: 300_000_000, most_ns: 375_000_000, slow };
            log.observe(at_ms(at as u64), &Arc::new(node.clone()));
        }
        let warned: Vec<_> = log.iter().filter(|event| event.kind == "lease").collect();
        assert_eq!(warned.iter().map(|event| event.at_unix_ms).collect::<Vec<_>>(), [2, 4]);
        assert!(warned.iter().all(|event| event.severity == Severity::Warning));
        let words =
            "node-3: a renewal of its lease took 300 ms, of 375 ms that it may before the node is silent";
        assert_eq!(warned[0].text, words);
    }

    #[test]
    fn checkpoints_that_fail_are_one_event_for_each_reason() {
        let (mut log, mut node) = (EventLog::default(), snapshot());
        let full = CheckpointFailure::NotRecorded;
        let failures =
            [None, Some(full), Some(full), None, Some(full), Some(CheckpointFailure::Busy), Some(full)];
        for (at, failure) in failures.into_iter().enumerate() {
            node.pairs[0].checkpoint_failure = failure;
            log.observe(at_ms(at as u64), &Arc::new(node.clone()));
        }
        let failed: Vec<_> = log.iter().filter(|event| event.kind == "checkpoint").collect();
        assert_eq!(failed.iter().map(|event| event.at_unix_ms).collect::<Vec<_>>(), [1, 4, 5, 6]);
        assert!(failed.iter().all(|event| event.severity == Severity::Warning));
        assert!(failed[0].text.contains("the coordinator"), "{}", failed[0].text);
    }

    #[test]
    fn merge_takes_an_event_that_several_saw_once_with_its_first_time() {
        let event = |id: &str, at_unix_ms| Event {
            id: id.into(),
            at_unix_ms,
            node: 0,
            kind: "split".into(),
            severity: Severity::Info,
            text: String::new(),
            details: Value::Null,
        };
        let merged = merge([vec![event("a", 5), event("b", 9)], vec![event("a", 4), event("c", 7)]]);
        let rows: Vec<_> = merged.iter().map(|event| (event.id.as_str(), event.at_unix_ms)).collect();
        assert_eq!(rows, [("b", 9), ("c", 7), ("a", 4)]);
    }

    /// It was logged after the moves, at the time of the look that found it.
    #[test]
    fn drain_comes_before_the_moves_that_it_causes_and_its_end_after_them() {
        let row = DrainRow {
            node: NodeId(3),
            who: "ops".to_owned(),
            why: None,
            since_unix_ms: 1_200,
            removed: false,
            stall: None,
        };
        let mut over = move_row(MoveStage::Handed);
        over.times = MoveTimes { wanted_ms: 1_300, handed_ms: 1_400, over_ms: 1_500, ..MoveTimes::default() };
        over.outcome = Some(MoveOutcome::Moved);
        let before = ClusterSnapshot { revision: 1, pairs: vec![pair_row(1, 77)], ..Default::default() };
        let drains = vec![row];
        let after = ClusterSnapshot { revision: 2, drains, moves: vec![over], ..Default::default() };
        let mut log = EventLog::default();
        for (at, cluster) in [(1_000, before), (2_000, after)] {
            log.observe(at_ms(at), &Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() }));
        }
        let seen = log.iter().filter(|event| ["move", "drain"].contains(&event.kind.as_str()));
        let seen: Vec<_> = seen.map(|event| (event.id.as_str(), event.at_unix_ms)).collect();
        let moves = [("move-3-2-begun", 1_300), ("move-3-2-handed", 1_400), ("move-3-2-moved", 1_500)];
        let [started, handed, moved] = moves;
        assert_eq!(seen, [("drain-3-1200", 1_200), started, handed, moved, ("drained-3-1200", 2_000)]);
    }

    /// Each node that saw it reported another event; and of balance, while that was off.
    #[test]
    fn balancer_is_reported_once_by_all_nodes_with_what_it_moves() {
        let seen_at = |revision: u64, on: bool| {
            let (balancer, seat) = (Some(NodeId(2)), Some(Incarnation(72)));
            let seated = BalanceSnapshot { balancer, seat, on, ..BalanceSnapshot::default() };
            let mut log = EventLog::default();
            for (revision, balance) in [(1, BalanceSnapshot::default()), (revision, seated)] {
                let cluster = Arc::new(ClusterSnapshot { revision, balance, ..ClusterSnapshot::default() });
                log.observe(at_ms(revision * 1_000), &Arc::new(NodeSnapshot { cluster, ..snapshot() }));
            }
            log.iter().filter(|event| event.kind == "balance").cloned().collect::<Vec<Event>>()
        };
        let texts = |lists: [Vec<Event>; 2]| {
            merge(lists).into_iter().map(|event| event.text).collect::<Vec<String>>()
        };
        assert_eq!(texts([seen_at(2, true), seen_at(3, true)]), ["node-2 balances from now on"]);
        let off = "node-2 moves pairs for drains from now on; balance is off";
        assert_eq!(texts([seen_at(2, false), seen_at(4, false)]), [off]);
    }

    /// The first look is of what was there before; what a row dates has that time, unless it cannot be.
    #[test]
    fn moves_have_the_times_of_their_rows_in_order_and_one_id_at_each_node() {
        let of = move_row(MoveStage::Wanted);
        let mut over = move_row(MoveStage::Handed);
        over.times = MoveTimes { handed_ms: 1_900, over_ms: 99_000, ..of.times };
        over.outcome = Some(MoveOutcome::Moved);
        let mut log = EventLog::default();
        let looks = [(1_000, vec![]), (1_100, vec![of.clone()]), (2_100, vec![over]), (3_100, vec![of])];
        for (revision, (at, moves)) in (1..).zip(looks) {
            let cluster = Arc::new(ClusterSnapshot { revision, moves, ..ClusterSnapshot::default() });
            log.observe(at_ms(at), &Arc::new(NodeSnapshot { cluster, ..snapshot() }));
        }
        let seen: Vec<_> = log.iter().filter(|event| event.kind == "move").collect();
        let seen: Vec<_> = seen.iter().map(|event| (event.id.as_str(), event.at_unix_ms)).collect();
        let moved = ("move-3-2-moved", 2_100);
        assert_eq!(seen, [("move-3-2-begun", 1_000), ("move-3-2-handed", 1_900), moved], "99,000 cannot be");
    }
}
