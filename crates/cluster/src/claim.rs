//! A claim of a pair: in whose name, for what reason, and what the pair's row becomes by it.

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Epoch, Incarnation, NodeId, PairId};

use crate::host::HostId;
use crate::row::{PairGeometry, PairRow, PairState};

/// One owner's time of owning a pair. Changes of the row are made in its name and refused once it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The pair.
    pub pair: PairId,
    /// The epoch of this owner.
    pub epoch: Epoch,
    /// The owner.
    pub incarnation: Incarnation,
}

/// A pair to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPair {
    /// Its first owner.
    pub incarnation: Incarnation,
    /// The owner's node.
    pub node: NodeId,
    /// What its regions look like.
    pub geometry: PairGeometry,
}

/// Why a claim may cut the logs of the owner before (`docs/design/membership.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReason {
    /// The owner's lease has ended; the transaction checks it.
    LeaseEnded,
    /// The caller holds the lock that the owner held for life, as the same node on the same host: the
    /// owner's process is gone, and appends nothing. It may replay meanwhile, and serve when the owner's
    /// lease has ended. Of an owner on another host the lock says nothing: then the claim is one by the
    /// lease's end.
    HostLock,
}

impl ClaimReason {
    /// The reason that counts for a process of host `here`, of an owner on host `there`: a lock shows
    /// processes of its own host alone. Of others, and where a host is not known, the lease's end does.
    pub(crate) fn on_host(self, here: Option<HostId>, there: Option<HostId>) -> ClaimReason {
        let is_same_host = here.is_some() && here == there;
        if is_same_host || planted(Mutant::HostUnasked) { self } else { ClaimReason::LeaseEnded }
    }
}

/// A pair that was claimed: the row as the claim's transaction wrote it. The checkpoint to begin from is the
/// one in here, not one that is read later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// In whose name the row is changed from now on.
    pub ownership: Ownership,
    /// The row.
    pub row: PairRow,
}

pub(crate) fn ownership_of(row: &PairRow, incarnation: Incarnation) -> Ownership {
    Ownership { pair: row.pair, epoch: row.epoch, incarnation }
}

pub(crate) fn first_row(pair: PairId, new: &NewPair, host: Option<HostId>) -> PairRow {
    PairRow {
        pair,
        node_region: pair.node_region(),
        extent_region: pair.extent_region(),
        owner: Some(new.incarnation),
        node: new.node,
        served_by: None,
        host,
        epoch: Epoch(1),
        state: PairState::New,
        place: None,
        geometry: new.geometry,
        history: Vec::new(),
        checkpoint: None,
        trusted: Vec::new(),
        findings: Vec::new(),
        refuted: Vec::new(),
    }
}

pub(crate) fn claimed_row(
    row: PairRow,
    incarnation: Incarnation,
    node: NodeId,
    reason: ClaimReason,
) -> PairRow {
    let mut claimed = row;
    let granted_trust = claimed.is_published();
    if let (ClaimReason::HostLock, true, Some(owner)) = (reason, granted_trust, claimed.owner) {
        claimed.trusted.push(owner);
    }
    claimed.epoch = Epoch(claimed.epoch.0 + 1);
    claimed.owner = Some(incarnation);
    claimed.node = node;
    claimed.state = PairState::Recovering;
    claimed.place = None;
    claimed
}
