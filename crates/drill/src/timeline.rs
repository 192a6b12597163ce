//! What happens to a cluster during a fault: made of its statuses, one after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::wire::{Incident, PairView, Status};

/// An event of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrillEvent {
    /// The fault began.
    Injected,
    /// Somebody noticed: the supervisor, a survivor, or the coordinator by the lease's end.
    Detected,
    /// The lease of the incarnation that owned the pairs has ended.
    LeaseEnded,
    /// A pair has a new owner, who restores it.
    Claimed,
    /// Where its logs end is recorded.
    Cut,
    /// Its image and its logs are replayed.
    Replayed,
    /// It is served again.
    Serving,
    /// The fault was taken back, or the node started again.
    Healed,
    /// Every pair is served, and every node that is to run does.
    AllBack,
}

impl DrillEvent {
    /// Its name in the JSON report, and in the table.
    pub fn word(self) -> &'static str {
        match self {
            DrillEvent::Injected => "injected",
            DrillEvent::Detected => "detected",
            DrillEvent::LeaseEnded => "lease_ended",
            DrillEvent::Claimed => "claimed",
            DrillEvent::Cut => "cut",
            DrillEvent::Replayed => "replayed",
            DrillEvent::Serving => "serving",
            DrillEvent::Healed => "healed",
            DrillEvent::AllBack => "all_back",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, in nanoseconds on CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// What.
    pub event: DrillEvent,
    /// To which pair; none if it is about the node.
    pub pair: Option<u32>,
}

/// What happened during one node's fault.
pub struct Timeline {
    node: u16,
    pid: Option<u32>,
    lives: u64,
    /// The pairs that the node owned when the fault began, and their epochs.
    owned: BTreeMap<u32, u32>,
    /// The incarnations that owned them.
    victims: BTreeSet<u64>,
    /// Which node owned each pair then.
    owners: BTreeMap<u32, u32>,
    injected_ns: u64,
    moments: BTreeMap<(DrillEvent, Option<u32>), u64>,
    /// Bytes replayed of each pair.
    replayed: BTreeMap<u32, u64>,
}

impl Timeline {
    /// Watches from the injection on; `before` is the cluster just before it.
    pub fn new(node: u16, before: &Status, injected_ns: u64) -> Timeline {
        let process = before.node(node);
        let owned = before.pairs.iter().filter(|pair| pair.node == u32::from(node) && pair.owner.is_some());
        let victims = owned.clone().filter_map(|pair| pair.owner).collect();
        let owners = before.pairs.iter().filter(|pair| pair.owner.is_some());
        let owners = owners.map(|pair| (pair.pair, pair.node)).collect();
        let mut timeline = Timeline {
            node,
            pid: process.and_then(|process| process.pid),
            lives: process.map_or(0, |process| process.lives),
            owned: owned.map(|pair| (pair.pair, pair.epoch)).collect(),
            victims,
            owners,
            injected_ns,
            moments: BTreeMap::new(),
            replayed: BTreeMap::new(),
        };
        timeline.note(injected_ns, DrillEvent::Injected, None);
        timeline
    }

    /// Of a rolling restart: all pairs count, whoever owned them.
    pub(crate) fn of_all(before: &Status, injected_ns: u64) -> Timeline {
        let owned = before.pairs.iter().filter(|pair| pair.owner.is_some());
        let owned = owned.map(|pair| (pair.pair, pair.epoch)).collect();
        Timeline { owned, ..Timeline::new(0, before, injected_ns) }
    }

    /// When the fault began.
    pub fn injected_ns(&self) -> u64 {
        self.injected_ns
    }

    /// The number of pairs that the node owned.
    pub fn owned(&self) -> usize {
        self.owned.len()
    }

    /// Who owned most of those pairs that count when the fault began, and how many; none if nobody owned any.
    pub(crate) fn busiest(&self, counts: impl Fn(u32) -> bool) -> Option<(u32, usize)> {
        let mut owned: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, node) in self.owners.iter().filter(|(pair, _)| counts(**pair)) {
            *owned.entry(*node).or_default() += 1;
        }
        owned.into_iter().max_by_key(|(node, pairs)| (*pairs, Reverse(*node)))
    }

    /// Whether the node owned that pair when the fault began.
    pub fn has_owned(&self, pair: u32) -> bool {
        self.owned.contains_key(&pair)
    }

    /// Notes an event once.
    pub fn note(&mut self, at_ns: u64, event: DrillEvent, pair: Option<u32>) {
        self.moments.entry((event, pair)).or_insert(at_ns);
    }

    /// It was not so after all.
    pub fn forget(&mut self, event: DrillEvent) {
        self.moments.retain(|(of, _), _| *of != event);
    }

    /// Takes a status in.
    pub fn look(&mut self, at_ns: u64, status: &Status) {
        let lease_ended =
            !self.victims.is_empty() && !self.victims.iter().any(|victim| status.leases.contains(victim));
        if lease_ended {
            self.note(at_ns, DrillEvent::LeaseEnded, None);
        }
        let process = status.node(self.node);
        let replaced = process.is_some_and(|process| process.pid != self.pid || process.lives != self.lives);
        for pair in &status.pairs {
            self.look_at_pair(at_ns, pair);
        }
        if lease_ended || replaced || self.of(DrillEvent::Claimed).next().is_some() {
            self.note(at_ns, DrillEvent::Detected, None);
        }
        for incident in &status.incidents {
            if self.victims.contains(&incident.dead) {
                self.look_at_incident(incident);
            }
        }
    }

    /// Survivors know better when what happened than who looks from outside, now and then.
    fn look_at_incident(&mut self, incident: &Incident) {
        let mut noted = |event: DrillEvent, pair: Option<u32>, at_ms: u64| {
            let at_ns = at_ms.saturating_mul(1_000_000).max(self.injected_ns);
            if at_ms > 0 {
                let known = self.moments.entry((event, pair)).or_insert(at_ns);
                *known = at_ns.min(*known);
            }
        };
        noted(DrillEvent::Detected, None, incident.detected_ms);
        noted(DrillEvent::LeaseEnded, None, incident.lease_seen_ms);
        for planned in incident.plan.iter().filter(|planned| self.owned.contains_key(&planned.pair)) {
            let (pair, times) = (Some(planned.pair), planned.times);
            noted(DrillEvent::Claimed, pair, times.claimed_ms);
            noted(DrillEvent::Cut, pair, times.cut_ms);
            noted(DrillEvent::Replayed, pair, times.replayed_ms);
            noted(DrillEvent::Serving, pair, times.serving_ms);
            if times.replayed_ms > 0 {
                self.replayed.insert(planned.pair, times.replayed_bytes);
            }
        }
    }

    /// Bytes of images and logs that were replayed, where survivors have recorded it.
    pub fn replayed_bytes(&self) -> Option<u64> {
        (!self.replayed.is_empty()).then(|| self.replayed.values().sum())
    }

    fn look_at_pair(&mut self, at_ns: u64, pair: &PairView) {
        let Some(epoch) = self.owned.get(&pair.pair).copied() else { return };
        let of = Some(pair.pair);
        if pair.epoch <= epoch {
            return;
        }
        self.note(at_ns, DrillEvent::Claimed, of);
        if pair.is_served() {
            self.note(at_ns, DrillEvent::Cut, of); // served without a cut it cannot be
            self.note(at_ns, DrillEvent::Serving, of);
        } else if pair.cut_epoch.is_some_and(|cut| cut >= epoch) {
            self.note(at_ns, DrillEvent::Cut, of);
        }
    }

    /// Whether everything is as it should be again.
    pub fn is_all_back(&self, status: &Status) -> bool {
        let served = |pair: &PairView| {
            pair.is_served() && pair.owner.is_some_and(|owner| status.leases.contains(&owner))
        };
        let runs = |state: &str| matches!(state, "serving" | "read_only" | "given up");
        status.pairs.iter().all(served) && status.nodes.iter().all(|node| runs(&node.state))
    }

    /// Milliseconds from the injection to the first event of a kind.
    pub fn first_ms(&self, event: DrillEvent) -> Option<f64> {
        self.of(event).min().map(|at_ns| self.since_ms(at_ns))
    }

    /// Milliseconds from the injection to the last one.
    pub fn last_ms(&self, event: DrillEvent) -> Option<f64> {
        self.of(event).max().map(|at_ns| self.since_ms(at_ns))
    }

    /// Milliseconds until the last pair was served; none while one is not.
    pub fn served_ms(&self) -> Option<f64> {
        (self.of(DrillEvent::Serving).count() == self.owned.len())
            .then(|| self.last_ms(DrillEvent::Serving))
            .flatten()
    }

    /// A time as milliseconds from the injection.
    pub fn since_ms(&self, at_ns: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a drill lasts seconds")]
        let ns = at_ns.saturating_sub(self.injected_ns) as f64;
        (ns / 1e4).round() / 100.0
    }

    /// Everything that happened, in order.
    pub fn moments(&self) -> Vec<Moment> {
        let moment =
            |(&(event, pair), &at_ns): (&(DrillEvent, Option<u32>), &u64)| Moment { at_ns, event, pair };
        let mut moments: Vec<_> = self.moments.iter().map(moment).collect();
        moments.sort_by_key(|moment| (moment.at_ns, moment.event, moment.pair));
        moments
    }

    fn of(&self, event: DrillEvent) -> impl Iterator<Item = u64> {
        self.moments.iter().filter(move |((of, _), _)| *of == event).map(|(_, at_ns)| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::tests::view;
    use crate::wire::{NodeView, Planned, Times};

    fn node(node: u16, pid: Option<u32>, lives: u64, state: &str) -> NodeView {
        NodeView { pid, lives, state: state.to_owned(), ..view(node) }
    }

    fn pair(pair: u32, node: u32, owner: Option<u64>, epoch: u32, state: &str, cut: Option<u32>) -> PairView {
        let state = state.into();
        PairView { pair, node, owner, epoch, state, cut_epoch: cut, trouble: None, next: None }
    }

    #[test]
    fn look_a_takeover_is_reported_in_its_order() {
        let nodes = || vec![node(0, Some(10), 1, "serving"), node(1, Some(11), 1, "serving")];
        let before = Status {
            nodes: nodes(),
            pairs: vec![
                pair(1, 0, Some(5), 1, "serving", None),
                pair(2, 1, Some(6), 3, "serving", Some(2)),
                pair(3, 1, Some(6), 3, "serving", Some(2)),
            ],
            leases: vec![5, 6],
            ..Status::default()
        };
        let mut timeline = Timeline::new(1, &before, 1_000_000);
        assert_eq!(timeline.owned(), 2);
        timeline.look(2_000_000, &before);
        assert_eq!(timeline.first_ms(DrillEvent::Detected), None);

        let mut now = before.clone();
        now.nodes[1] = node(1, None, 1, "down");
        timeline.look(6_000_000, &now);
        assert!(!timeline.is_all_back(&now));
        now.leases = vec![5];
        timeline.look(501_000_000, &now);
        now.pairs[1] = pair(2, 0, Some(5), 4, "recovering", Some(2));
        timeline.look(511_000_000, &now);
        now.pairs[1] = pair(2, 0, Some(5), 4, "recovering", Some(3));
        timeline.look(521_000_000, &now);
        now.pairs[1] = pair(2, 0, Some(5), 4, "serving", Some(3));
        timeline.look(531_000_000, &now);
        assert_eq!((timeline.first_ms(DrillEvent::Serving), timeline.served_ms()), (Some(530.0), None));
        now.pairs[2] = pair(3, 0, Some(5), 4, "serving", Some(3));
        timeline.look(601_000_000, &now);
        assert_eq!(timeline.served_ms(), Some(600.0));
        assert!(!timeline.is_all_back(&now), "a node is down");
        now.nodes[1] = node(1, Some(12), 2, "serving");
        assert!(timeline.is_all_back(&now));

        let words: Vec<_> = timeline.moments().iter().map(|moment| moment.event.word()).collect();
        let expected = "injected detected lease_ended claimed cut serving claimed cut serving";
        assert_eq!(words.join(" "), expected);
        assert_eq!(timeline.first_ms(DrillEvent::Detected), Some(5.0));
        assert_eq!(timeline.first_ms(DrillEvent::LeaseEnded), Some(500.0));
    }

    #[test]
    fn look_what_survivors_recorded_counts_before_what_was_seen() {
        let before = Status {
            nodes: vec![node(0, Some(10), 1, "serving")],
            pairs: vec![pair(1, 0, Some(5), 1, "serving", None)],
            leases: vec![5],
            incidents: vec![Incident { dead: 4, detected_ms: 1, ..Incident::default() }],
            ..Status::default()
        };
        let mut timeline = Timeline::new(0, &before, 100_000_000);
        timeline.look(101_000_000, &before);
        assert_eq!(timeline.first_ms(DrillEvent::Detected), None, "another node's death, long ago");
        let times =
            Times { claimed_ms: 610, cut_ms: 620, replayed_ms: 640, replayed_bytes: 4096, serving_ms: 650 };
        let plan = vec![Planned { pair: 1, survivor: Some(6), times }];
        let mut now = before.clone();
        now.incidents.push(Incident { dead: 5, detected_ms: 605, plan, ..Incident::default() });
        now.pairs = vec![pair(1, 0, Some(6), 2, "serving", Some(1))];
        now.leases = vec![6];
        timeline.look(700_000_000, &now);
        let noted: Vec<_> =
            timeline.moments().iter().map(|it| (it.event.word(), it.at_ns / 1_000_000)).collect();
        let expected = [("injected", 100), ("detected", 605), ("claimed", 610), ("cut", 620)];
        assert_eq!(noted[..4], expected);
        assert_eq!(noted[4..], [("replayed", 640), ("serving", 650), ("lease_ended", 700)]);
        assert_eq!(timeline.replayed_bytes(), Some(4096));
    }

    #[test]
    fn look_a_pair_served_by_nobody_alive_is_not_back() {
        let status = Status {
            nodes: vec![node(0, Some(10), 1, "serving")],
            pairs: vec![pair(1, 0, Some(5), 1, "serving", None)],
            ..Status::default()
        };
        let timeline = Timeline::new(0, &status, 0);
        assert!(!timeline.is_all_back(&status));
    }
}
