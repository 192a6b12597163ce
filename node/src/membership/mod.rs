//! Who takes which pairs over, and when: a core without clock, thread, socket or file. It is shown the
//! cluster as the coordinator has it and says what to do; claims of pairs decide who gets one, so that two
//! survivors that see different things do no harm to each other.
//!
//! - A node claims what was its own as soon as it starts: it holds the lock that its predecessor held. That
//!   is noted as an incident, too, whether the predecessor died or gave its pairs up in order.
//! - The pairs of an incarnation whose lease has ended are an *incident*. One survivor claims it and shares
//!   the pairs out; each survivor takes its share over. Of a survivor that dies, the shares that it had not
//!   claimed are shared out again, and the pairs that it had claimed are an incident of its own.
//! - Each time that pairs belong to nobody is an incident of its own, too.
//! - Whoever was seen alive is missed at once. Whoever was dead before this node came, and pairs that belong
//!   to nobody, get a *grace period*: when a whole cluster starts, each node is to find its own.

mod share;

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{
    ClaimReason, ClusterError, ClusterView, IncidentRow, PairRow, PairState, ShareRow, is_nobodys,
};
use cell_recovery::RecoveryError;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId, PairId};

pub use share::memory_keepers;
pub(crate) use share::{Orphan, is_left_behind, keeps_memory_for, memory_bytes, share_out};

/// A pair that everybody has declined is offered again after so long, then after twice as long each time: who
/// tries it takes memory that its other pairs may want, until it finds that it is too little.
const OFFER_AGAIN_NS: u64 = 10_000_000_000;
/// The longest of these times. Whoever joins is asked at once.
const OFFER_AGAIN_MAX_NS: u64 = 160_000_000_000;
/// A takeover that failed for a passing reason is tried again after so long.
const RETRY_NS: u64 = 1_000_000_000;
/// In place of the dead one: the pair is in no incident, or in the first one of pairs that belong to nobody.
const NOBODY: Incarnation = Incarnation(0);

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipOptions {
    /// This life of the node.
    pub incarnation: Incarnation,
    /// The node.
    pub node: NodeId,
    /// When it joined.
    pub joined_ns: u64,
    /// How long pairs of those that were dead before, and of nobody, are left to their own nodes.
    pub grace_ns: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipCommand {
    /// Take a pair over; answered by `taken` or `refused`.
    TakeOver {
        /// The pair.
        pair: PairId,
        /// By what right.
        reason: ClaimReason,
        /// In which incident its share is noted.
        dead: Incarnation,
    },
    /// Claim an incident.
    Claim {
        /// Who died, or what is in place of it for nobody's pairs.
        dead: Incarnation,
        /// The node of the pairs.
        node: NodeId,
        /// The last look at which the lease still lived; zero: none.
        lease_seen_ns: u64,
        /// When it was seen to have ended.
        detected_ns: u64,
        /// Whether the process is gone for sure, and takes its own pairs itself.
        host_lock: bool,
    },
    /// Weigh these pairs, share them out, and write their shares into the plan.
    Plan {
        /// Of which incident.
        dead: Incarnation,
        /// The pairs, each with those that had no room for it.
        pairs: Vec<(PairId, Vec<Incarnation>)>,
    },
    /// Nothing is left to do of an incident: note that.
    Close {
        /// Of which incident.
        dead: Incarnation,
    },
}

/// Why a takeover failed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// Others have the pair, or its owner lives: the table says what to do next.
    Others,
    /// This node lacks the memory, or the disk does not answer it: the table says so, and that the pair
    /// belongs to nobody.
    Declined,
    /// It read the pair's data, which is not whole, and the table says so. Another node looks; once two have
    /// found damage an operator has to inspect it.
    Damaged,
    /// Something that may pass.
    Passing,
}

impl RefusedKind {
    /// What a takeover's failure means for its pair.
    #[must_use]
    pub fn of(error: &RecoveryError, pair: PairId) -> RefusedKind {
        match error {
            RecoveryError::Cluster(error) => RefusedKind::of_cluster(error),
            error if error.is_of_this_survivor() => RefusedKind::Declined,
            error if error.missing(pair).is_some() => RefusedKind::Damaged,
            _ => RefusedKind::Passing,
        }
    }

    /// What the coordinator's refusal means for a pair.
    #[must_use]
    pub fn of_cluster(error: &ClusterError) -> RefusedKind {
        match error {
            ClusterError::Superseded { .. }
            | ClusterError::OwnerLives { .. }
            | ClusterError::LeaseEnded { .. } => RefusedKind::Others,
            // What it has before it are logs of another store, or the table has lost rows: others may tell.
            ClusterError::TableOlder { .. } => RefusedKind::Declined,
            _ => RefusedKind::Passing,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Membership {
    options: MembershipOptions,
    /// The own pairs that are not taken yet; none before the first look.
    own: Option<BTreeSet<PairId>>,
    /// When each incarnation was last seen alive.
    seen_ns: BTreeMap<Incarnation, u64>,
    /// When each dead one was first missed.
    missed_ns: BTreeMap<Incarnation, u64>,
    /// Since when pairs belong to nobody.
    unowned_ns: BTreeMap<PairId, u64>,
    /// Takeovers under way here.
    busy: BTreeSet<PairId>,
    /// Pairs that are being created here: which ones is known when they are served.
    creations: u32,
    /// Takeovers that failed here: not again before that time, unless another had the pair
    /// meanwhile.
    refused_ns: BTreeMap<PairId, u64>,
    /// Pairs that were handed over to this node by planned moves: those see to them.
    handed: BTreeSet<PairId>,
    /// When pairs that everybody has declined are offered again, to those who have not found them damaged.
    offer_ns: BTreeMap<PairId, (u64, u64)>,
}

impl Membership {
    /// A node that has just joined.
    #[must_use]
    pub(crate) fn new(options: MembershipOptions) -> Membership {
        Membership {
            options,
            own: None,
            seen_ns: BTreeMap::new(),
            missed_ns: BTreeMap::new(),
            unowned_ns: BTreeMap::new(),
            busy: BTreeSet::new(),
            creations: 0,
            refused_ns: BTreeMap::new(),
            handed: BTreeSet::new(),
            offer_ns: BTreeMap::new(),
        }
    }

    /// Which pairs were handed over to this node by planned moves that are under way.
    pub(crate) fn set_handed(&mut self, handed: BTreeSet<PairId>) {
        self.handed = handed;
    }

    /// How long pairs that belong to nobody are left to their own nodes.
    pub(crate) fn set_grace_ns(&mut self, grace_ns: u64) {
        self.options.grace_ns = grace_ns;
    }

    /// A pair is being created here.
    pub(crate) fn creation_begins(&mut self) {
        self.creations += 1;
    }

    /// It is there, or its creation was given up.
    pub(crate) fn creation_ended(&mut self) {
        self.creations = self.creations.saturating_sub(1);
    }

    /// Whether it knows what is its own, and no takeover is under way here.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.own.is_some() && self.busy.is_empty()
    }

    /// A pair was taken over here.
    pub(crate) fn taken(&mut self, pair: PairId) {
        self.busy.remove(&pair);
        self.refused_ns.remove(&pair);
        self.is_own_no_more(pair);
    }

    fn is_own_no_more(&mut self, pair: PairId) {
        if let Some(own) = &mut self.own {
            own.remove(&pair);
        }
    }

    /// A takeover failed.
    pub(crate) fn refused(&mut self, pair: PairId, kind: RefusedKind, now_ns: u64) {
        self.busy.remove(&pair);
        let until_ns = match kind {
            RefusedKind::Others => return,
            RefusedKind::Declined => {
                self.is_own_no_more(pair);
                now_ns + OFFER_AGAIN_NS
            }
            // Another one's look is what helps, or another life of this node's.
            RefusedKind::Damaged => {
                self.is_own_no_more(pair);
                u64::MAX
            }
            RefusedKind::Passing => now_ns + RETRY_NS,
        };
        self.refused_ns.insert(pair, until_ns);
    }

    /// Looks at the cluster; what is to be done now. Called again and again, with the same view too.
    pub(crate) fn look(&mut self, view: &ClusterView, now_ns: u64) -> Vec<MembershipCommand> {
        let mut commands = Vec::new();
        self.note_life(view, now_ns);
        if self.own.is_none() {
            self.begin(view, now_ns, &mut commands);
        }
        self.take_own(view, now_ns, &mut commands);
        let orphans = self.orphans(view, now_ns);
        for (dead, pairs) in &orphans {
            self.incident(view, *dead, pairs, now_ns, &mut commands);
        }
        self.close(view, |dead| orphans.contains_key(&dead), &mut commands);
        commands
    }

    fn note_life(&mut self, view: &ClusterView, now_ns: u64) {
        for incarnation in view.members.keys() {
            self.seen_ns.insert(*incarnation, now_ns);
            self.missed_ns.remove(incarnation);
        }
        let incarnation = self.options.incarnation;
        let of_others = |pair: &PairId| {
            let owner = view.pairs.get(pair).and_then(|row| row.owner);
            owner.is_some_and(|owner| owner != incarnation && view.lives(owner))
        };
        self.refused_ns.retain(|pair, _| !of_others(pair));
        let unowned: BTreeSet<_> =
            view.pairs.values().filter(|row| row.owner.is_none()).map(|row| row.pair).collect();
        self.unowned_ns.retain(|pair, _| unowned.contains(pair));
        for pair in unowned {
            self.unowned_ns.entry(pair).or_insert(now_ns);
        }
    }

    /// What was the node's own: its predecessors are gone, because it holds their lock. What becomes of their
    /// pairs is an incident of each, for people.
    fn begin(&mut self, view: &ClusterView, now_ns: u64, commands: &mut Vec<MembershipCommand>) {
        let MembershipOptions { incarnation, node, .. } = self.options;
        let own = view.pairs.values().filter(|row| row.node == node && row.owner != Some(incarnation));
        let own: Vec<_> = own.collect();
        let dead: BTreeSet<_> = own.iter().filter_map(|row| row.last_owner()).collect();
        commands.extend(dead.into_iter().map(|dead| MembershipCommand::Claim {
            dead,
            node,
            lease_seen_ns: 0,
            detected_ns: now_ns,
            host_lock: true,
        }));
        self.own = Some(own.iter().map(|row| row.pair).collect());
    }

    /// Own pairs, as long as nobody else has them, and those whose takeover or creation here was broken off.
    fn take_own(&mut self, view: &ClusterView, now_ns: u64, commands: &mut Vec<MembershipCommand>) {
        let MembershipOptions { incarnation, node, .. } = self.options;
        let mut own = self.own.take().unwrap_or_default();
        own.retain(|pair| view.pairs.get(pair).is_some_and(|row| row.node == node));
        for row in view.pairs.values().filter(|row| self.may_try(row, now_ns)) {
            let left = own.contains(&row.pair) && row.owner != Some(incarnation);
            if left || self.is_broken_off(row) {
                let dead = row.last_owner().filter(|owner| *owner != incarnation).unwrap_or(NOBODY);
                let reason = ClaimReason::HostLock;
                commands.push(MembershipCommand::TakeOver { pair: row.pair, reason, dead });
            }
        }
        for command in &*commands {
            if let MembershipCommand::TakeOver { pair, .. } = command {
                self.busy.insert(*pair);
            }
        }
        self.own = Some(own);
    }

    /// Whether a pair is this node's, and nobody is about to serve it, unless a takeover of it is under way.
    /// The row of a creation that was given up may be there, or come later: others leave it to its owner, for
    /// as long as that lives.
    fn is_broken_off(&self, row: &PairRow) -> bool {
        let is_left = match &row.state {
            PairState::Recovering => true,
            PairState::New => self.creations == 0 && !planted(Mutant::CreationLeft),
            PairState::Serving | PairState::Released | PairState::Unavailable { .. } => false,
        };
        is_left && row.owner == Some(self.options.incarnation) && !row.is_published()
    }

    /// The pairs whose owners have died, and those of nobody, that somebody is to take over now.
    fn orphans<'v>(&mut self, view: &'v ClusterView, now_ns: u64) -> BTreeMap<Incarnation, Vec<&'v PairRow>> {
        let settled = now_ns >= self.options.joined_ns.saturating_add(self.options.grace_ns);
        let mut orphans: BTreeMap<Incarnation, Vec<&PairRow>> = BTreeMap::new();
        for row in view.pairs.values() {
            let dead = match row.owner {
                Some(owner) if view.lives(owner) || owner == self.options.incarnation => continue,
                Some(owner) if self.seen_ns.contains_key(&owner) || settled => owner,
                None if settled && self.is_abandoned(row, now_ns) => self.nobodys(view, row.pair, now_ns),
                _ => continue,
            };
            self.missed_ns.entry(dead).or_insert(now_ns);
            orphans.entry(dead).or_default().push(row);
        }
        // Another time that pairs are nobody's is another incident, with a time of its own.
        self.missed_ns.retain(|dead, _| !is_nobodys(*dead) || orphans.contains_key(dead));
        orphans
    }

    /// In which incident a pair of nobody is: in an open one that it is a part of and was not served since,
    /// or that has just started; else in the next one, which counts from now.
    fn nobodys(&self, view: &ClusterView, pair: PairId, now_ns: u64) -> Incarnation {
        let mut open = view.incidents.values().filter(|row| row.is_of_nobody() && !row.is_over());
        let has_just_started = |row: &IncidentRow| {
            let missed_ns = self.missed_ns.get(&row.dead);
            let recently = |missed_ns: &u64| now_ns < missed_ns.saturating_add(self.options.grace_ns);
            row.plan.is_empty() || missed_ns.is_some_and(recently)
        };
        let is_its = |row: &&IncidentRow| match row.share(pair) {
            Some(share) => share.times.serving_ms == 0,
            None => has_just_started(row),
        };
        open.find(is_its).map_or_else(|| view.next_of_nobody(), |row| row.dead)
    }

    /// A pair of nobody whose own node has had its time. Where it was declined, there is nobody to wait for.
    fn is_abandoned(&self, row: &PairRow, now_ns: u64) -> bool {
        let declined = matches!(row.state, PairState::Unavailable { .. });
        let since = self.unowned_ns.get(&row.pair).copied().unwrap_or(now_ns);
        declined || now_ns >= since.saturating_add(self.options.grace_ns)
    }

    fn incident(
        &mut self,
        view: &ClusterView,
        dead: Incarnation,
        pairs: &[&PairRow],
        now_ns: u64,
        commands: &mut Vec<MembershipCommand>,
    ) {
        // A row that does not read is claimed anew: nobody can take it further as it is.
        let row = view.incidents.get(&dead).filter(|row| !row.is_over() && view.incident_reads(dead));
        let Some(row) = row.filter(|row| view.lives(row.claimed_by)) else {
            commands.push(MembershipCommand::Claim {
                dead,
                node: pairs.first().map_or(self.options.node, |row| row.node),
                lease_seen_ns: self.seen_ns.get(&dead).copied().unwrap_or(0),
                detected_ns: self.missed_ns.get(&dead).copied().unwrap_or(now_ns),
                host_lock: false,
            });
            return;
        };
        if row.claimed_by == self.options.incarnation {
            let unshared = self.unshared(view, row, pairs, now_ns);
            if !unshared.is_empty() {
                commands.push(MembershipCommand::Plan { dead, pairs: unshared });
            }
        }
        for pair in pairs {
            let me = self.options.incarnation;
            let mine = |share: &ShareRow| share.survivor == Some(me) && !share.declined.contains(&me);
            if row.share(pair.pair).is_some_and(mine) && self.may_try(pair, now_ns) {
                self.busy.insert(pair.pair);
                let reason = ClaimReason::LeaseEnded;
                commands.push(MembershipCommand::TakeOver { pair: pair.pair, reason, dead });
            }
        }
    }

    fn may_try(&self, row: &PairRow, now_ns: u64) -> bool {
        let rests = self.refused_ns.get(&row.pair).is_some_and(|until_ns| now_ns < *until_ns);
        !rests && !self.busy.contains(&row.pair) && !self.handed.contains(&row.pair)
    }

    /// Pairs of an incident that nobody alive is to take over.
    fn unshared(
        &mut self,
        view: &ClusterView,
        incident: &IncidentRow,
        pairs: &[&PairRow],
        now_ns: u64,
    ) -> Vec<(PairId, Vec<Incarnation>)> {
        let mut unshared = Vec::new();
        for row in pairs {
            let share = incident.share(row.pair).filter(|_| view.share_reads(incident.dead, row.pair));
            let Some(share) = share else {
                unshared.push((row.pair, declined(view, row)));
                continue;
            };
            let survives = share.survivor.is_some_and(|survivor| view.lives(survivor));
            let declined = |of| share.declined.contains(&of) || has_found_damage(row, of);
            if survives && !share.survivor.is_some_and(declined) {
                self.offer_ns.remove(&row.pair);
                continue;
            }
            unshared.extend(self.offer(view, row, share, now_ns).map(|declined| (row.pair, declined)));
        }
        unshared
    }

    /// Whether a pair is offered now, and whom not to ask: once all have declined, it rests for a while. Who
    /// has found it damaged is not asked again in the same life.
    fn offer(
        &mut self,
        view: &ClusterView,
        row: &PairRow,
        share: &ShareRow,
        now_ns: u64,
    ) -> Option<Vec<Incarnation>> {
        let found = finders(view, row);
        let asked = |member: &Incarnation| share.declined.contains(member) || found.contains(member);
        if !view.members.keys().all(asked) {
            let mut declined = share.declined.clone();
            declined.extend(found.into_iter().filter(|finder| !share.declined.contains(finder)));
            return Some(declined);
        }
        let first = (now_ns + OFFER_AGAIN_NS, OFFER_AGAIN_NS);
        let (due_ns, rest_ns) = *self.offer_ns.entry(share.pair).or_insert(first);
        if now_ns < due_ns || view.members.keys().all(|member| found.contains(member)) {
            return None;
        }
        let rest_ns = (2 * rest_ns).min(OFFER_AGAIN_MAX_NS);
        self.offer_ns.insert(share.pair, (now_ns + rest_ns, rest_ns));
        Some(found)
    }

    /// Incidents of this node's in which every pair is served or reported; those of a claimer that has died,
    /// with nothing left to share, are taken up to be closed.
    fn close(
        &self,
        view: &ClusterView,
        has_orphans: impl Fn(Incarnation) -> bool,
        commands: &mut Vec<MembershipCommand>,
    ) {
        let open = view.incidents.values().filter(|row| !row.is_over());
        for incident in open {
            let owned = view.pairs.values().any(|row| row.owner == Some(incident.dead));
            if incident.claimed_by != self.options.incarnation {
                let gone = |of| !view.lives(of);
                // A restarted node opens one while its predecessor's lease still runs: nobody else may.
                let is_left = !owned && !has_orphans(incident.dead);
                if is_left && gone(incident.dead) && gone(incident.claimed_by) {
                    commands.push(take_up(incident));
                }
                continue;
            }
            if !view.incident_reads(incident.dead) {
                let is_left = !has_orphans(incident.dead);
                commands.extend(is_left.then(|| take_up(incident)));
                continue;
            }
            let settled =
                |share: &ShareRow| view.pairs.get(&share.pair).is_none_or(|row| is_settled(row, view));
            // One of nobody's pairs without a plan has just been claimed, or its pairs are somebody's by now.
            let shared = !incident.plan.is_empty() || !has_orphans(incident.dead);
            if !owned && shared && incident.plan.iter().all(settled) {
                commands.push(MembershipCommand::Close { dead: incident.dead });
            }
        }
    }
}

/// An incident with nothing left to share is claimed anew, to be closed.
fn take_up(incident: &IncidentRow) -> MembershipCommand {
    MembershipCommand::Claim {
        dead: incident.dead,
        node: incident.node,
        lease_seen_ns: 0,
        detected_ns: 0,
        host_lock: false,
    }
}

/// Who has declined a pair, in whichever incident: not to be asked first when it becomes one of nobody's.
fn declined(view: &ClusterView, row: &PairRow) -> Vec<Incarnation> {
    let open = view.incidents.values().filter(|incident| !incident.is_over());
    let shares = open.filter_map(|incident| incident.share(row.pair));
    let declined = shares.flat_map(|share| share.declined.iter().copied()).chain(finders(view, row));
    declined.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The members that have found a pair damaged.
fn finders(view: &ClusterView, row: &PairRow) -> Vec<Incarnation> {
    let found = row.findings.iter().map(|finding| finding.incarnation);
    found.filter(|member| view.lives(*member)).collect()
}

fn has_found_damage(row: &PairRow, member: Incarnation) -> bool {
    row.findings.iter().any(|finding| finding.incarnation == member)
}

/// Whether a pair is served, or an operator has to inspect it; an owner that died is another incident.
fn is_settled(row: &PairRow, view: &ClusterView) -> bool {
    match (&row.state, row.owner) {
        (PairState::Serving, _) => true,
        (PairState::Unavailable { .. }, Some(_)) => true,
        (_, Some(owner)) => !view.lives(owner),
        (_, None) => false,
    }
}

#[cfg(test)]
mod handed_tests;
#[cfg(test)]
mod tests;
