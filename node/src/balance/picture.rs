//! The cluster's rows as the figures that placement goes by.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{
    ClusterView, IncidentRow, MemberRow, MoveMotive, MoveOutcome, MoveRow, MoveStage, PairRow, PairState,
    PauseCause, ReportedArrival, ReportedHold, ReportedPair, ReportedState, Revision, Trouble,
};
use cell_placement::{
    Arrival, BalancePause, Figures, HeldPair, MemberFigures, MemberState, MoveCause, MoveUnderWay, PairHold,
    PairLoad,
};
use cell_terms::{Durability, Epoch, Incarnation, NodeId, PairId};

use crate::membership::memory_keepers;

/// When each member's figures were first seen as they are.
#[derive(Debug, Default)]
pub(super) struct SeenFigures(BTreeMap<Incarnation, (Revision, u64)>);

impl SeenFigures {
    /// Takes in what a view shows.
    pub(super) fn observe(&mut self, view: &ClusterView, now_ns: u64) {
        let figures = &view.balance.figures;
        self.0.retain(|incarnation, _| figures.contains_key(incarnation));
        for (incarnation, (_, revision)) in figures {
            let seen = self.0.entry(*incarnation).or_insert((*revision, now_ns));
            if seen.0 != *revision {
                *seen = (*revision, now_ns);
            }
        }
    }

    fn ago_ms(&self, incarnation: Incarnation, now_ns: u64) -> u64 {
        self.0.get(&incarnation).map_or(0, |(_, at_ns)| now_ns.saturating_sub(*at_ns) / 1_000_000)
    }
}

/// In whose name, as placement has it.
pub(super) fn cause_of(motive: MoveMotive) -> MoveCause {
    match motive {
        MoveMotive::Operator => MoveCause::Operator,
        MoveMotive::Drain => MoveCause::Drain,
        MoveMotive::Balance => MoveCause::Balance,
        MoveMotive::Fresh => MoveCause::Fresh,
    }
}

/// Whether a move goes on, or may: both its ends live, and the pair is as far as it says. What the death of
/// an end leaves of a move may be under way for ever.
fn goes_on(view: &ClusterView, of: &MoveRow) -> bool {
    let Some(row) = view.pairs.get(&of.pair).filter(|_| of.is_under_way()) else { return false };
    let lives = |incarnation| view.lives(incarnation);
    // No handing comes of a row that does not read, and what was known of it may not be so any more.
    if !view.move_reads(of.pair) {
        return of.is_handed(row) && !row.is_published() && lives(of.target.incarnation);
    }
    match of.stage {
        MoveStage::Handed => of.is_handed(row) && lives(of.target.incarnation),
        _ => row.epoch == of.epoch && lives(of.source.incarnation) && lives(of.target.incarnation),
    }
}

/// The moves that go on; those of operators last. Of these there may be several: one that is to be cancelled,
/// because its target drains, comes before others.
pub(super) fn moves_under_way(view: &ClusterView) -> Vec<&MoveRow> {
    let mut moves: Vec<&MoveRow> = view.moves.values().filter(|of| goes_on(view, of)).collect();
    let is_wanted = |of: &MoveRow| of.stage == MoveStage::Handed || !view.is_draining(of.target.node);
    let is_operators = |of: &MoveRow| of.cause == MoveMotive::Operator;
    moves.sort_by_key(|&of| (is_operators(of), is_operators(of) && is_wanted(of), of.pair));
    moves
}

/// What is known of the cluster.
pub(super) fn figures(view: &ClusterView, seen: &SeenFigures, on: bool, now_ns: u64) -> Figures {
    let members = present(view);
    let moving = moves_under_way(view).first().map(|of| MoveUnderWay {
        pair: of.pair,
        from: of.source.node,
        to: of.target.node,
        cause: cause_of(of.cause),
        handed: of.stage == MoveStage::Handed || !view.move_reads(of.pair),
    });
    let pause = match (on, view.balance.pause()) {
        (false, _) => Some(BalancePause::Off),
        (true, Some(PauseCause::Drill)) => Some(BalancePause::Drill),
        (true, Some(PauseCause::RollingRestart)) => Some(BalancePause::RollingRestart),
        (true, None) => None,
    };
    let takeovers_open = takeovers_open(view, &members);
    let mut figures: Vec<MemberFigures> =
        members.values().map(|row| member(view, row, seen, now_ns)).collect();
    let keepers = memory_keepers(view.pairs.values(), members.values().copied(), |of| view.lives(of));
    figures.iter_mut().for_each(|member| member.keeps_memory = keepers.contains(&member.node));
    let places: BTreeMap<Incarnation, usize> = members.values().map(|row| row.incarnation).zip(0..).collect();
    let reported: BTreeMap<(Incarnation, PairId), &ReportedPair> =
        view.balance.reported_pairs().map(|(owner, reported)| ((owner, reported.pair), reported)).collect();
    for row in view.pairs.values() {
        let place = row.owner.and_then(|owner| places.get(&owner));
        let Some(member) = place.and_then(|place| figures.get_mut(*place)) else { continue };
        let reported = row.owner.and_then(|owner| reported.get(&(owner, row.pair)).copied());
        let ago_ms = member.reported_ms_ago.unwrap_or(0);
        member.pairs.extend(held(row, reported, ago_ms, view.moves.get(&row.pair)));
    }
    Figures { members: figures, takeovers_open, moving, pause }
}

/// The members, by node: of a node that was started again the one that came last.
fn present(view: &ClusterView) -> BTreeMap<NodeId, &MemberRow> {
    view.members.values().map(|row| (row.node, row)).collect()
}

fn member(view: &ClusterView, row: &MemberRow, seen: &SeenFigures, now_ns: u64) -> MemberFigures {
    let reported = view.balance.figures.get(&row.incarnation).map(|(reported, _)| reported);
    let ago_ms = seen.ago_ms(row.incarnation, now_ns);
    MemberFigures {
        node: row.node,
        state: reported.map_or(MemberState::Recovering, |reported| match reported.state {
            ReportedState::Serving => MemberState::Serving,
            ReportedState::ReadOnly => MemberState::ReadOnly,
            ReportedState::Stopping => MemberState::Stopping,
        }),
        draining: view.is_draining(row.node),
        reported_ms_ago: reported.map(|_| ago_ms),
        serving_ms: reported.map_or(0, |reported| reported.serving_ms.saturating_add(ago_ms)),
        memory_left_bytes: reported.map_or(0, |reported| reported.memory_left_bytes),
        writes_wait: reported.is_some_and(|reported| reported.writes_wait),
        disk_full: reported.is_some_and(|reported| reported.disk_full),
        keeps_memory: false, // all rows say
        pairs_max: reported.map_or(0, |reported| reported.pairs_max),
        pairs: Vec::new(),
    }
}

/// A pair in its owner's hands; none if that does not serve it and nobody is to.
fn held(
    row: &PairRow,
    reported: Option<&ReportedPair>,
    ago_ms: u64,
    of: Option<&MoveRow>,
) -> Option<HeldPair> {
    let reported = reported.filter(|reported| reported.epoch == row.epoch);
    match row.state {
        PairState::Serving if row.is_published() => {}
        // A takeover of it goes on, or a handing: see `takeovers_open`.
        PairState::Serving | PairState::Recovering => {
            let hold = Some(PairHold::Takeover);
            let (held_ms, arrival) = (0, Arrival::TakenOver);
            return Some(HeldPair { pair: row.pair, load: None, held_ms, arrival, hold });
        }
        // It is being made; or nobody serves it, and whoever has it cannot.
        PairState::New | PairState::Released | PairState::Unavailable { .. } => return None,
    }
    let has_log = row.history.last().is_some_and(|served| served.durability != Durability::None);
    let hold = match reported.and_then(|reported| reported.hold) {
        _ if !has_log => Some(PairHold::NoLog),
        Some(ReportedHold::Split) => Some(PairHold::Split),
        Some(ReportedHold::Check) => Some(PairHold::Check),
        None => None,
    };
    let (load, held_ms, arrival) = match reported {
        Some(reported) => {
            (Some(load_of(reported)), reported.held_ms.saturating_add(ago_ms), arrival_of(reported.arrival))
        }
        // One that its owner has just made, and has not reported yet.
        None if row.epoch == Epoch(1) => (Some(PairLoad::default()), 0, Arrival::Created { meant_for: None }),
        None => {
            let came =
                |of: &&MoveRow| of.outcome == Some(MoveOutcome::Moved) && of.epoch_of_target() == row.epoch;
            let moved = of.filter(came).map(|of| Arrival::Moved(cause_of(of.cause)));
            (None, 0, moved.unwrap_or(Arrival::TakenOver))
        }
    };
    Some(HeldPair { pair: row.pair, load, held_ms, arrival, hold })
}

fn load_of(reported: &ReportedPair) -> PairLoad {
    PairLoad { bytes: reported.bytes, memory_bytes: reported.memory_bytes, load_ns: reported.load_ns }
}

fn arrival_of(reported: ReportedArrival) -> Arrival {
    match reported {
        ReportedArrival::TakenOver => Arrival::TakenOver,
        ReportedArrival::Created(meant_for) => Arrival::Created { meant_for },
        ReportedArrival::Moved(motive) => Arrival::Moved(cause_of(motive)),
    }
}

/// Pairs that somebody is to take over. What all declined, or an operator must inspect, holds up nothing.
fn takeovers_open(view: &ClusterView, members: &BTreeMap<NodeId, &MemberRow>) -> u32 {
    let live: BTreeSet<Incarnation> = members.values().map(|row| row.incarnation).collect();
    let lives = |incarnation: Incarnation| live.contains(&incarnation);
    let is_plain = |row: &PairRow| {
        let owned = row.owner.is_some_and(lives);
        let is_handed = || view.moves.get(&row.pair).is_some_and(|of| goes_on(view, of) && of.is_handed(row));
        match row.state {
            PairState::Serving | PairState::New => owned,
            PairState::Recovering => owned && is_handed(),
            PairState::Released | PairState::Unavailable { .. } => false,
        }
    };
    let mut rows = view.pairs.values().filter(|row| !is_plain(row)).peekable();
    if rows.peek().is_none() {
        return 0;
    }
    let incidents: Vec<IncidentRow> = view.incidents.values().cloned().collect();
    let passes =
        |row: &&PairRow| Trouble::of(row, lives, &incidents).is_some_and(|trouble| trouble.next.is_none());
    u32::try_from(rows.filter(passes).count()).unwrap_or(u32::MAX)
}
