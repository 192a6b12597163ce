//! The region table as a worker sends it to clients: made from the coordinator's rows by the control thread,
//! handed over whole ([`crate::ControlEvent::Table`]). It is advice: what a worker serves does not depend
//! on it.

use cell_cluster::{MemberRow, PairRow, PairState};
use cell_protocol::{OwnedState, TableRow};
use cell_terms::{Epoch, Incarnation, NodeId, PairId};

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    revision: u64,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    pair: PairId,
    node: NodeId,
    owner: Incarnation,
    epoch: Epoch,
    state: OwnedState,
    address: String,
    http: String,
}

impl TableView {
    /// The table of a revision: the pairs, by id, then the living nodes that own none.
    #[must_use]
    pub fn new(revision: u64, pairs: &[PairRow], members: &[MemberRow]) -> TableView {
        let mut rows: Vec<Row> = pairs.iter().map(|pair| of_pair(pair, members)).collect();
        rows.sort_by_key(|row| row.pair);
        let owns = |member: &MemberRow| pairs.iter().any(|pair| pair.owner == Some(member.incarnation));
        rows.extend(members.iter().filter(|member| !owns(member)).map(|member| Row {
            pair: PairId(0),
            node: member.node,
            owner: member.incarnation,
            epoch: Epoch(0),
            state: OwnedState::New,
            address: member.fabric.clone(),
            http: member.http.clone(),
        }));
        TableView { revision, rows }
    }

    /// Grows with each change of the table; 0 as long as nothing is known.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Rows in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows from a number on, as they are sent.
    pub(crate) fn rows(&self, from: usize) -> impl Iterator<Item = TableRow<'_>> {
        self.rows.iter().skip(from).map(|row| TableRow {
            pair: row.pair,
            node: row.node,
            owner: row.owner,
            epoch: row.epoch,
            state: row.state,
            address: sendable(&row.address),
            http: sendable(&row.http),
        })
    }
}

/// An address that the wire can carry; no other is worth sending.
fn sendable(address: &str) -> &str {
    if address.len() <= cell_protocol::table::ADDRESS_BYTES_MAX { address } else { "" }
}

fn of_pair(pair: &PairRow, members: &[MemberRow]) -> Row {
    let owner = pair.owner.unwrap_or_default();
    let member = members.iter().find(|member| member.incarnation == owner);
    let address = match (&pair.place, member) {
        (Some(place), _) => place.address.clone(),
        (None, Some(member)) => member.fabric.clone(),
        (None, None) => String::new(),
    };
    Row {
        pair: pair.pair,
        node: member.map_or(pair.node, |member| member.node),
        owner,
        epoch: pair.epoch,
        state: match pair.state {
            _ if pair.owner.is_some() && member.is_none() => OwnedState::Orphaned,
            PairState::Serving => OwnedState::Serving,
            PairState::New => OwnedState::New,
            PairState::Recovering => OwnedState::Recovering,
            PairState::Released => OwnedState::Released,
            PairState::Unavailable { .. } => OwnedState::Unavailable,
        },
        address,
        http: member.map(|member| member.http.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_cluster::{PairGeometry, ServingAddress};

    fn pair(number: u32, owner: Option<u64>, place: Option<&str>) -> PairRow {
        PairRow {
            pair: PairId(number),
            node_region: PairId(number).node_region(),
            extent_region: PairId(number).extent_region(),
            owner: owner.map(Incarnation),
            node: NodeId(1),
            served_by: None,
            host: None,
            epoch: Epoch(number),
            state: PairState::Serving,
            place: place.map(|address| ServingAddress {
                address: address.to_owned(),
                worker: 0,
                node_key: 0,
                extent_key: 0,
            }),
            geometry: PairGeometry {
                node_region_bytes: 0,
                extent_region_bytes: 0,
                slot_bytes: 0,
                node_bytes: 0,
            },
            history: Vec::new(),
            checkpoint: None,
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    fn member(incarnation: u64, node: u32) -> MemberRow {
        let (fabric, http) = (format!("f{node}"), format!("h{node}"));
        let incarnation = Incarnation(incarnation);
        MemberRow { incarnation, node: NodeId(node), fabric, http, pid: 1, memory_limit_bytes: 0 }
    }

    #[test]
    fn rows_are_pairs_by_id_then_nodes_without_one() {
        let pairs = [pair(2, Some(8), Some("a")), pair(1, Some(7), None), pair(3, None, None)];
        let view = TableView::new(5, &pairs, &[member(7, 4), member(9, 6)]);
        let rows: Vec<_> = view.rows(0).map(|row| (row.pair.0, row.node.0, row.address, row.http)).collect();
        let expected = [(1, 4, "f4", "h4"), (2, 1, "a", ""), (3, 1, "", ""), (0, 6, "f6", "h6")];
        assert_eq!((view.revision(), rows), (5, expected.to_vec()));
        assert_eq!(view.rows(3).count(), 1);
    }

    #[test]
    fn pair_whose_owner_is_no_member_is_orphaned() {
        let pairs = [pair(1, Some(7), Some("a")), pair(2, Some(8), Some("b"))];
        let view = TableView::new(5, &pairs, &[member(7, 4)]);
        let rows: Vec<_> = view.rows(0).map(|row| (row.state, row.address)).collect();
        assert_eq!(rows, [(OwnedState::Serving, "a"), (OwnedState::Orphaned, "b")]);
    }
}
