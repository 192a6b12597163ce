//! The connections of an endpoint, by id.
//!
//! An id is `lane (1 bit) | serial (43 bits) | slot (20 bits)`. The serial counts connections and is what
//! makes an id
//! unique; the slot makes finding one an index. Lanes are the connections that carry one-sided reads.

use crate::endpoint::ConnectionId;

use super::connection::Connection;

const SLOT_BITS: u32 = 20;
const LANE: u64 = 1 << 63;

const _: () = assert!(1 << SLOT_BITS > 1 << 16, "more slots than the setting of connections permits");

/// A table of connections.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    serial: u64,
    used: usize,
}

/// Whether the id is a lane's.
pub(super) fn is_lane(id: ConnectionId) -> bool {
    id.0 & LANE != 0
}

fn slot_of(id: ConnectionId) -> usize {
    usize::try_from(id.0 & ((1 << SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}

impl Slots {
    /// Connections now.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Gives the next connection its id and its place.
    pub(super) fn insert(
        &mut self,
        lane: bool,
        make: impl FnOnce(ConnectionId) -> Connection,
    ) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.serial += 1;
        let id = ConnectionId(if lane { LANE } else { 0 } | (self.serial << SLOT_BITS) | slot as u64);
        self.slots[slot] = Some(Box::new(make(id)));
        self.used += 1;
        id
    }

    /// The connection, unless it is gone.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(slot_of(id))?.as_deref().filter(|connection| connection.id == id)
    }

    /// The connection, unless it is gone.
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(slot_of(id))?.as_deref_mut().filter(|connection| connection.id == id)
    }

    /// Takes the connection out.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        self.get(id)?;
        self.used -= 1;
        self.free.push(slot_of(id));
        self.slots[slot_of(id)].take()
    }

    /// All of them, in the order of their slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }
}
