//! The connections of an endpoint, by id.
//!
//! An id is `mark (2 bits) | serial (42 bits) | slot (20 bits)`. The serial counts connections and is what
//! makes an id unique; the slot makes finding one an index. The mark (`mark`) says which provider has the
//! connection.

use crate::endpoint::ConnectionId;

use super::connection::Connection;

const SLOT_BITS: u32 = 20;

const _: () = assert!(1 << SLOT_BITS > 1 << 18, "more slots than the settings of connections permit");

/// A table of connections.
#[derive(Debug)]
pub(crate) struct Slots<L> {
    slots: Vec<Option<Box<Connection<L>>>>,
    free: Vec<usize>,
    serial: u64,
    used: usize,
}

fn slot_of(id: ConnectionId) -> usize {
    usize::try_from(id.0 & ((1 << SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}

impl<L> Default for Slots<L> {
    fn default() -> Slots<L> {
        Slots { slots: Vec::new(), free: Vec::new(), serial: 0, used: 0 }
    }
}

impl<L> Slots<L> {
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Gives the next connection its id and its place.
    pub(crate) fn insert(
        &mut self,
        mark: u64,
        make: impl FnOnce(ConnectionId) -> Connection<L>,
    ) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.serial += 1;
        let id = ConnectionId(mark | (self.serial << SLOT_BITS) | slot as u64);
        self.slots[slot] = Some(Box::new(make(id)));
        self.used += 1;
        id
    }

    /// The connection, unless it is gone.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection<L>> {
        self.slots.get(slot_of(id))?.as_deref().filter(|connection| connection.id == id)
    }

    /// The connection, unless it is gone.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection<L>> {
        self.slots.get_mut(slot_of(id))?.as_deref_mut().filter(|connection| connection.id == id)
    }

    /// Takes the connection out.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection<L>>> {
        self.get(id)?;
        self.used -= 1;
        self.free.push(slot_of(id));
        self.slots[slot_of(id)].take()
    }

    /// All of them, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection<L>> {
        self.slots.iter().filter_map(|slot| slot.as_deref())
    }

    /// All of them, in the order of their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection<L>> {
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }
}
