//! The connections of an endpoint, by id.
//!
//! An id is `mark (2 bits) | serial (42 bits) | slot (20 bits)`. The serial counts connections and is what
//! makes an id unique; the slot makes finding one an index. Marks keep kinds of connections apart: TCP's
//! lanes, which carry one-sided reads, and those over shared memory.

use crate::endpoint::ConnectionId;

const SLOT_BITS: u32 = 20;
/// A TCP connection that carries one-sided reads.
pub(crate) const MARK_LANE: u64 = 1 << 63;
/// A connection over shared memory.
pub(crate) const MARK_SHM: u64 = 1 << 62;

const _: () = assert!(1 << SLOT_BITS > 1 << 16, "more slots than the setting of connections permits");

/// What a table holds.
pub(crate) trait Identified {
    /// The id that it was made with.
    fn id(&self) -> ConnectionId;
}

/// A table of connections.
#[derive(Debug)]
pub(crate) struct Slots<C> {
    slots: Vec<Option<Box<C>>>,
    free: Vec<usize>,
    serial: u64,
    used: usize,
}

/// Whether the id is a lane's.
pub(crate) fn is_lane(id: ConnectionId) -> bool {
    id.0 & MARK_LANE != 0
}

/// Whether the id is of a connection over shared memory.
pub(crate) fn is_shm(id: ConnectionId) -> bool {
    id.0 & MARK_SHM != 0
}

fn slot_of(id: ConnectionId) -> usize {
    usize::try_from(id.0 & ((1 << SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}

impl<C> Default for Slots<C> {
    fn default() -> Slots<C> {
        Slots { slots: Vec::new(), free: Vec::new(), serial: 0, used: 0 }
    }
}

impl<C: Identified> Slots<C> {
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Gives the next connection its id and its place.
    pub(crate) fn insert(&mut self, mark: u64, make: impl FnOnce(ConnectionId) -> C) -> ConnectionId {
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
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&C> {
        self.slots.get(slot_of(id))?.as_deref().filter(|connection| connection.id() == id)
    }

    /// The connection, unless it is gone.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        self.slots.get_mut(slot_of(id))?.as_deref_mut().filter(|connection| connection.id() == id)
    }

    /// Takes the connection out.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<C>> {
        self.get(id)?;
        self.used -= 1;
        self.free.push(slot_of(id));
        self.slots[slot_of(id)].take()
    }

    /// All of them, in the order of their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }
}
