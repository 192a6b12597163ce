//! What a member follows of the coordinator: pairs, members, incidents, moves, drains and notices, kept up
//! with one call a look.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_terms::text::with_causes;
use cell_terms::{Incarnation, NodeId, PairId, SessionId};

use crate::balance::{
    self, FiguresRow, KEY_BALANCE, KEY_DRILL, KEY_SEAT, PauseCause, ReportedPair, SeatSeen, parse_figures,
    parse_further, parse_pause, parse_seat,
};
use crate::coordinator::{Coordinator, parse};
use crate::drain_row::{DrainRow, KEY_DRAINS};
use crate::drains::KEY_COUNT;
use crate::error::ClusterError;
use crate::incident::{self, IncidentRow, KEY_INCIDENTS};
use crate::joined::{JoinedRow, KEY_JOINED};
use crate::member::{KEY_MEMBERS, MemberRow, member_id};
use crate::move_row::{KEY_MOVES, MoveRow};
use crate::notice::NOTICE_PREFIX;
use crate::request::{ChangesPage, CoordinatorRefusal, KeyChange, KeyValue, Revision};
use crate::root_proof::{self, RootQuestion};
use crate::row::{KEY_PAIRS, PairRow};
use crate::session::{self, KEY_SESSIONS, SessionRow};
use crate::tuning::{KEY_TUNING, Tuning, TuningRow};

/// The rows as they were at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The revision.
    pub revision: Revision,
    /// The region table.
    pub pairs: BTreeMap<PairId, PairRow>,
    /// The members whose leases live.
    pub members: BTreeMap<Incarnation, MemberRow>,
    /// The incidents, by who died.
    pub incidents: BTreeMap<Incarnation, IncidentRow>,
    /// The moves that are under way, and of other pairs the last ones.
    pub moves: BTreeMap<PairId, MoveRow>,
    /// The nodes that are to be emptied, and those that were removed.
    pub drains: BTreeMap<NodeId, DrainRow>,
    /// The nodes that have joined and were not removed since, also those that live no more.
    pub joined: BTreeMap<NodeId, JoinedRow>,
    /// The texts of notices, by their keys.
    pub notices: BTreeMap<String, String>,
    /// The settings that are in force on all nodes.
    pub tuning: TuningRow,
    /// Who balances, and the members' figures; only where the watch follows balance.
    pub balance: BalanceView,
    /// Rows that do not read, by their keys, and what is wrong with each: what was read there before holds,
    /// but of the balancer's seat. Those of sessions are among them as far as one was met.
    pub unreadable: BTreeMap<String, String>,
}

/// What balance goes by. A change of it is no change of the cluster that a look reports: figures change all
/// the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalanceView {
    /// The balancer.
    pub seat: Option<SeatSeen>,
    /// The members' figures, each with the revision at which it was written.
    pub figures: BTreeMap<Incarnation, (FiguresRow, Revision)>,
    /// Further rows of members that have more pairs than one row lists.
    further: BTreeMap<(Incarnation, u32), Vec<ReportedPair>>,
    /// Whether a node runs a drill.
    pub drill: bool,
    /// What else keeps balance from moving pairs, by the leases of who wants it.
    pub pauses: BTreeMap<Incarnation, PauseCause>,
}

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether anything of the view changed.
    pub changed: bool,
    /// Sessions that ended since the last look.
    pub ended: Vec<SessionId>,
    /// There was a gap: sessions may have ended in it of which nothing is reported.
    pub missed: bool,
}

/// The watch.
pub struct Watch {
    coordinator: Arc<dyn Coordinator>,
    view: ClusterView,
    /// What joining nodes have asked since the watch began.
    questions: BTreeMap<Incarnation, RootQuestion>,
    /// What was taken in and not returned yet.
    pending: Look,
    /// Nothing is known yet, or what was kept of changes does not reach back.
    lost: bool,
    /// The rows of balance are followed, too.
    follows_balance: bool,
}

impl Watch {
    /// A watch that has seen nothing.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Watch {
        Watch {
            coordinator,
            view: ClusterView::default(),
            questions: BTreeMap::new(),
            pending: Look::default(),
            lost: true,
            follows_balance: false,
        }
    }

    /// From its next look on it follows the rows of balance, too.
    pub fn follow_balance(&mut self) {
        (self.follows_balance, self.lost) = (true, true);
    }

    /// The rows as of the last look.
    #[must_use]
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// What joining nodes ask, by their leases, of those questions that were written since the watch began.
    #[must_use]
    pub fn questions(&self) -> &BTreeMap<Incarnation, RootQuestion> {
        &self.questions
    }

    /// Looks at all that changed: a plan that takes many changes is seen whole, and not taken for one that
    /// lacks shares.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; a pair's row that does not read and never did. No change is lost, and no
    /// session that ended: what was taken in before the error is returned by the next look.
    pub fn look(&mut self) -> Result<Look, ClusterError> {
        if self.lost {
            return self.begin();
        }
        loop {
            let (revision, changes) = match self.coordinator.changes_since(self.view.revision) {
                Err(ClusterError::Refused(CoordinatorRefusal::Compacted { .. })) => {
                    self.pending.missed = true;
                    return self.begin();
                }
                answer => answer?,
            };
            let mut page = ChangesPage::default();
            for change in &changes {
                page.add(change);
                root_proof::take(&mut self.questions, change);
                self.pending.changed |= self.view.take_readable(change);
                let ended = change.value.is_none().then(|| session::parse_key(&change.key)).flatten();
                self.pending.ended.extend(ended);
            }
            self.view.revision = revision;
            if !page.is_full() {
                self.ask_for_unreadable_members();
                return Ok(std::mem::take(&mut self.pending));
            }
        }
    }

    /// A member whose row does not read is there as long as its lease: a row that somebody put by hand hangs
    /// on none, and would keep a dead one alive.
    fn ask_for_unreadable_members(&mut self) {
        let ids = self.view.unreadable.keys().filter_map(|key| member_id(key.strip_prefix(KEY_MEMBERS)?));
        let known: Vec<_> = ids.filter(|id| self.view.members.contains_key(id)).collect();
        for incarnation in known {
            // Without an answer the next look asks again.
            if matches!(self.coordinator.remaining_ns(incarnation), Ok(None)) {
                self.view.members.remove(&incarnation);
                self.pending.changed = true;
            }
        }
    }

    /// A session's row does not read: rows of sessions are not followed, but who lists them may meet one.
    pub fn report_session(&mut self, session: SessionId) {
        let why = format!("cannot read {}", session::WHAT);
        let before = self.view.unreadable.insert(session::session_key(session), why);
        self.pending.changed |= before.is_none();
    }

    /// Everything, from the start. A change that comes between two listings is seen again by the next look.
    fn begin(&mut self) -> Result<Look, ClusterError> {
        let mut view = ClusterView::default();
        let mut first = None;
        // Moves first: of a pair that is seen to be handed over, the move is seen.
        let prefixes = [
            KEY_MOVES,
            KEY_PAIRS,
            KEY_MEMBERS,
            KEY_DRAINS,
            KEY_JOINED,
            KEY_INCIDENTS,
            NOTICE_PREFIX,
            KEY_TUNING,
        ];
        let of_balance = [KEY_BALANCE, KEY_DRILL].into_iter().filter(|_| self.follows_balance);
        for prefix in prefixes.into_iter().chain(of_balance) {
            let listing = self.coordinator.list(prefix)?;
            first.get_or_insert(listing.revision);
            for entry in listing.entries {
                let (key, revision) = (entry.key.clone(), entry.revision);
                let change = KeyChange { revision, key: key.clone(), value: Some(entry) };
                view.take_readable(&change);
                if view.unreadable.contains_key(&key) {
                    self.keep(&mut view, &change)?;
                }
            }
        }
        view.revision = first.unwrap_or(0);
        (self.view, self.lost) = (view, false);
        self.questions.clear();
        self.ask_for_unreadable_members();
        Ok(Look { changed: true, ..std::mem::take(&mut self.pending) })
    }

    /// What was known of a row that does not read stays. Of a pair something must be known: a node that
    /// counts it out would serve a part of the keys as if it were the whole.
    fn keep(&self, view: &mut ClusterView, change: &KeyChange) -> Result<(), ClusterError> {
        let (known, key) = (&self.view, change.key.as_str());
        let id = key.split_once('/').map_or("", |(_, id)| id);
        if key == KEY_TUNING {
            view.tuning = match known.tuning.revision {
                0 => Tuning::new(self.coordinator.clone()).row_of_changes()?,
                _ => known.tuning.clone(),
            };
        } else if key.starts_with(KEY_PAIRS) {
            let pair = id.parse().ok().and_then(|id| known.pairs.get(&PairId(id)));
            match pair {
                Some(row) => drop(view.pairs.insert(row.pair, row.clone())),
                None => return view.take(change).map(drop),
            }
        } else if key.starts_with(KEY_MOVES) {
            let row = id.parse().ok().and_then(|id| known.moves.get(&PairId(id)));
            view.moves.extend(row.map(|row| (row.pair, row.clone())));
        } else if key.starts_with(KEY_DRAINS) {
            let row = id.parse().ok().and_then(|id| known.drains.get(&NodeId(id)));
            view.drains.extend(row.map(|row| (row.node, row.clone())));
        } else if key.starts_with(KEY_JOINED) {
            let row = id.parse().ok().and_then(|id| known.joined.get(&NodeId(id)));
            view.joined.extend(row.map(|row| (row.node, *row)));
        } else if key.starts_with(KEY_MEMBERS) {
            let row = member_id(id).and_then(|id| known.members.get(&id));
            view.members.extend(row.map(|row| (row.incarnation, row.clone())));
        } else if let Some((dead, pair)) = incident::parse_key(key) {
            let incident = known.incidents.get(&dead);
            match (pair, view.incidents.get_mut(&dead)) {
                (None, _) => {
                    let known = incident.map(|row| (dead, IncidentRow { plan: Vec::new(), ..row.clone() }));
                    view.incidents.extend(known);
                }
                (Some(pair), Some(row)) => {
                    let share = incident.and_then(|row| row.plan.iter().find(|share| share.pair == pair));
                    share.into_iter().for_each(|share| row.set_share(share.clone()));
                }
                (Some(_), None) => {}
            }
        }
        Ok(())
    }
}

/// The newest revision of the rows that a watch follows, of those that there are now: a view that is as of
/// it shows all of them, and what has gone before. The rows of balance, incidents and notices do not count.
///
/// # Errors
/// See [`Coordinator::call`].
pub fn newest_change(coordinator: &Arc<dyn Coordinator>) -> Result<Revision, ClusterError> {
    // Of a drain that was ended nothing is left but that they are counted.
    let counted = coordinator.read(KEY_COUNT)?;
    let mut newest = counted.map_or(0, |entry| entry.revision);
    for prefix in [KEY_MOVES, KEY_PAIRS, KEY_MEMBERS, KEY_DRAINS, KEY_JOINED] {
        let listing = coordinator.list(prefix)?;
        newest = listing.entries.iter().map(|entry| entry.revision).fold(newest, u64::max);
    }
    Ok(newest)
}

impl BalanceView {
    /// What keeps balance from moving pairs.
    #[must_use]
    pub fn pause(&self) -> Option<PauseCause> {
        let drill = self.drill.then_some(PauseCause::Drill);
        self.pauses.values().copied().max().max(drill)
    }

    /// What the members have reported of their pairs, each pair with who reported it.
    pub fn reported_pairs(&self) -> impl Iterator<Item = (Incarnation, &ReportedPair)> {
        self.figures.iter().flat_map(move |(owner, (row, _))| {
            let owner = *owner;
            let further = (1..=row.more_rows).filter_map(move |number| self.further.get(&(owner, number)));
            row.pairs.iter().chain(further.flatten()).map(move |reported| (owner, reported))
        })
    }

    fn take(&mut self, change: &KeyChange) -> Result<(), ClusterError> {
        let KeyChange { key, value, .. } = change;
        if key == KEY_DRILL {
            self.drill = value.is_some();
        } else if key == KEY_SEAT {
            let seen = |entry: &KeyValue| {
                Ok::<_, ClusterError>(SeatSeen { seat: parse_seat(&entry.value)?, revision: entry.revision })
            };
            let seen = value.as_ref().map(seen).transpose();
            // Who had it before has it no more: each move that it began would be refused.
            self.seat = seen.as_ref().ok().copied().flatten();
            seen?;
        } else if let Some((incarnation, number)) = balance::figures_of(key) {
            match (value, number) {
                (Some(entry), 0) => {
                    let row = parse_figures(&entry.value)?;
                    self.figures.insert(incarnation, (row, entry.revision));
                }
                (Some(entry), _) => {
                    let pairs = parse_further(&entry.value)?;
                    self.further.insert((incarnation, number), pairs);
                }
                (None, 0) => drop(self.figures.remove(&incarnation)),
                (None, _) => drop(self.further.remove(&(incarnation, number))),
            }
        } else if let Some(lease) = balance::pause_of(key) {
            let pause = value.as_ref().map(|entry| parse_pause(&entry.value)).transpose()?;
            self.pauses.remove(&lease);
            self.pauses.extend(pause.map(|cause| (lease, cause)));
        }
        Ok(())
    }
}

impl ClusterView {
    /// Takes one change in, unless it does not read; whether it is about the view.
    fn take_readable(&mut self, change: &KeyChange) -> bool {
        let taken = self.take(change);
        let was_unreadable = self.unreadable.remove(&change.key).is_some();
        match taken {
            Ok(about) => about || was_unreadable,
            Err(error) => {
                let why = with_causes(&error);
                let stays = "a row of the coordinator does not read; the last good one stays";
                tracing::error!(key = change.key, why, "{stays}");
                self.unreadable.insert(change.key.clone(), why);
                true
            }
        }
    }

    /// Takes one change in; whether it is about the view.
    fn take(&mut self, change: &KeyChange) -> Result<bool, ClusterError> {
        let KeyChange { key, value, .. } = change;
        let text = value.as_ref().map(|entry| entry.value.as_str());
        if key == KEY_TUNING {
            self.tuning = text.map(|text| parse("the tuning", text)).transpose()?.unwrap_or_default();
            return Ok(true);
        }
        if key == KEY_DRILL || key.starts_with(KEY_BALANCE) {
            self.balance.take(change)?;
            return Ok(false);
        }
        let Some((prefix, id)) = key.split_once('/') else { return Ok(false) };
        match (format!("{prefix}/").as_str(), text) {
            (KEY_PAIRS, Some(text)) => {
                let row: PairRow = parse("a row of the region table", text)?;
                self.pairs.insert(row.pair, row);
            }
            (KEY_PAIRS, None) => {} // pairs are never removed
            (KEY_MEMBERS, Some(text)) => {
                let row: MemberRow = parse("a member", text)?;
                self.members.insert(row.incarnation, row);
            }
            (KEY_MOVES, Some(text)) => {
                let row: MoveRow = parse("a move", text)?;
                self.moves.insert(row.pair, row);
            }
            // Moves are replaced. An operator may delete one whose row does not read.
            (KEY_MOVES, None) => drop(id.parse().ok().and_then(|id| self.moves.remove(&PairId(id)))),
            (KEY_DRAINS, Some(text)) => {
                let row: DrainRow = parse("a drain", text)?;
                self.drains.insert(row.node, row);
            }
            (KEY_DRAINS, None) => {
                self.drains.remove(&NodeId(id.parse().unwrap_or(u32::MAX)));
            }
            (KEY_JOINED, Some(text)) => {
                let row: JoinedRow = parse("a node that has joined", text)?;
                self.joined.insert(row.node, row);
            }
            (KEY_JOINED, None) => {
                self.joined.remove(&NodeId(id.parse().unwrap_or(u32::MAX)));
            }
            (KEY_INCIDENTS, text) => self.take_incident(key, text)?,
            (KEY_SESSIONS, text) => {
                text.map(|text| parse::<SessionRow>(session::WHAT, text)).transpose()?;
                return Ok(false);
            }
            (KEY_MEMBERS, None) => {
                self.members.remove(&member_id(id).unwrap_or_default());
            }
            (NOTICE_PREFIX, Some(text)) => drop(self.notices.insert(key.clone(), text.to_owned())),
            (NOTICE_PREFIX, None) => drop(self.notices.remove(key)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A row of an incident, or of one of its shares.
    fn take_incident(&mut self, key: &str, text: Option<&str>) -> Result<(), ClusterError> {
        let Some((dead, pair)) = incident::parse_key(key) else { return Ok(()) };
        match (pair, text) {
            (None, Some(text)) => {
                let mut row: IncidentRow = parse("an incident", text)?;
                row.plan = self.incidents.remove(&dead).map(|old| old.plan).unwrap_or_default();
                self.incidents.insert(dead, row);
            }
            (None, None) => drop(self.incidents.remove(&dead)),
            // A share without its incident comes again: the listing began before the incident did.
            (Some(pair), text) => {
                let Some(incident) = self.incidents.get_mut(&dead) else { return Ok(()) };
                match text {
                    Some(text) => incident.set_share(parse("a share of an incident", text)?),
                    None => incident.remove_share(pair),
                }
            }
        }
        Ok(())
    }

    /// Whether the row of the balancer's seat reads, or there is none.
    #[must_use]
    pub fn seat_reads(&self) -> bool {
        !self.unreadable.contains_key(KEY_SEAT)
    }

    /// Whether the row of a pair's move reads, or there is none.
    #[must_use]
    pub fn move_reads(&self, pair: PairId) -> bool {
        !self.unreadable.contains_key(&MoveRow::key(pair))
    }

    /// Whether the row of an incident reads, or there is none.
    #[must_use]
    pub fn incident_reads(&self, dead: Incarnation) -> bool {
        !self.unreadable.contains_key(&IncidentRow::key(dead))
    }

    /// Whether the row of a pair's share reads, or there is none.
    #[must_use]
    pub fn share_reads(&self, dead: Incarnation, pair: PairId) -> bool {
        !self.unreadable.contains_key(&incident::share_key(dead, pair))
    }

    /// In place of a dead one, for the next incident of nobody's pairs.
    #[must_use]
    pub fn next_of_nobody(&self) -> Incarnation {
        incident::next_of_nobody(self.incidents.values())
    }

    /// Whether a node is to be emptied, or was removed: it is to get no pairs.
    #[must_use]
    pub fn is_draining(&self, node: NodeId) -> bool {
        self.drains.contains_key(&node)
    }

    /// Whether an incarnation lives, as of this view. One that never entered does not.
    #[must_use]
    pub fn lives(&self, incarnation: Incarnation) -> bool {
        self.members.contains_key(&incarnation)
    }
}
