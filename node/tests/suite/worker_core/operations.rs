//! What tests ask a world for, each until it is answered.

use cell_memory::extent::checksum;
use cell_node::ControlEvent;
use cell_pair::Pair;
use cell_protocol::stream::CHUNK_BYTES_MAX;
use cell_protocol::{Chunk, Condition, Delete, Put, PutBegin, Reply, Request, WriteName};

use crate::worker_core::world::{Replied, TURNS, World};

/// Longer values go as streams.
const MESSAGE_VALUE_BYTES: usize = 60_000;

impl World {
    pub(crate) fn answer(&mut self, id: u32) -> Replied {
        self.answer_of(0, id)
    }

    pub(crate) fn answer_of(&mut self, at: usize, id: u32) -> Replied {
        for _ in 0..TURNS {
            if let Some(replied) = self.answered(id) {
                return replied;
            }
            self.turn_of(at);
        }
        panic!("request {id} is not answered");
    }

    /// Turns until a reply comes that `read` makes something of. Nobody else sees what has come until then.
    pub(crate) fn until_reply<T>(&mut self, read: impl Fn(&Reply<'_>) -> Option<T>) -> T {
        for _ in 0..TURNS {
            self.step_of(0);
            let (now_ns, worker) = (self.now_ns(), self.worker_mut());
            let replies = worker.release(now_ns, u64::MAX);
            let found = replies.iter().find_map(|(_, reply)| read(&Reply::decode(reply).unwrap().1));
            worker.replies_sent();
            if let Some(found) = found {
                return found;
            }
        }
        panic!("there is no such reply");
    }

    /// The messages that leave in one turn. Nobody else sees them.
    pub(crate) fn replies(&mut self) -> Vec<Vec<u8>> {
        self.step_of(0);
        let (now_ns, worker) = (self.now_ns(), self.worker_mut());
        let replies = worker.release(now_ns, u64::MAX).iter().map(|(_, reply)| reply.to_vec()).collect();
        worker.replies_sent();
        replies
    }

    /// Turns until something holds.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..TURNS {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("it never came to {what}");
    }

    pub(crate) fn put(&mut self, name: WriteName, key: &[u8], value: &[u8]) -> Replied {
        let id = self.send(&Request::Put(Put { name, condition: Condition::Always, key, value }));
        self.answer(id)
    }

    /// Hands the worker a put of a value of any length; its number.
    pub(crate) fn send_put(&mut self, name: WriteName, key: &[u8], value: &[u8]) -> u32 {
        let condition = Condition::Always;
        if value.len() < MESSAGE_VALUE_BYTES {
            return self.send(&Request::Put(Put { name, condition, key, value }));
        }
        let (value_len, value_crc) = (u32::try_from(value.len()).unwrap(), checksum(value));
        let id = self.send(&Request::PutBegin(PutBegin { name, condition, key, value_len, value_crc }));
        for (number, bytes) in value.chunks(CHUNK_BYTES_MAX).enumerate() {
            let offset = u32::try_from(number * CHUNK_BYTES_MAX).unwrap();
            self.send_of(id, &Request::Chunk(Chunk { offset, bytes }));
        }
        id
    }

    pub(crate) fn delete(&mut self, name: WriteName, key: &[u8]) -> Replied {
        let id = self.send(&Request::Delete(Delete { name, condition: Condition::Always, key }));
        self.answer(id)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Replied {
        let id = self.send(&Request::Get { key });
        self.answer(id)
    }

    pub(crate) fn get_of(&mut self, at: usize, key: &[u8]) -> Replied {
        let id = self.send_to(at, &Request::Get { key });
        self.answer_of(at, id)
    }

    /// Writes an entry whose value is its key, at one of the workers.
    pub(crate) fn put_of(&mut self, at: usize, number: u64, key: &[u8]) -> Replied {
        let name = self.name(number, number);
        let put = Put { name, condition: Condition::Always, key, value: key };
        let id = self.send_to(at, &Request::Put(put));
        self.answer_of(at, id)
    }

    /// Writes many entries with small values, numbered from `first` on.
    pub(crate) fn load(&mut self, first: u64, keys: impl Iterator<Item = Vec<u8>>) -> u64 {
        let mut number = first;
        for key in keys {
            let name = self.name(number, number);
            let replied = self.put(name, &key, &key);
            assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
            number += 1;
        }
        number
    }

    /// Entries of each pair.
    pub(crate) fn entries(&self) -> Vec<u64> {
        self.worker().snapshot().pairs.iter().map(|pair| pair.entries).collect()
    }

    /// A pair is added if the worker has asked for one and there are so many bytes for it.
    pub(crate) fn grow(&mut self, bytes: u64) {
        if self.wants_pair() {
            let fits = self.available() >= bytes;
            let added = fits.then(|| self.add_pair());
            let added = added.map(|pair| ControlEvent::PairAdded { pair, meant_for: None });
            self.notify(0, added.unwrap_or(ControlEvent::PairRefused));
        }
    }

    /// Bytes of the extents of all entries, as meganodes count them and as allocators do.
    pub(crate) fn extent_bytes(&self) -> (u64, u64) {
        let counted = |pair: &Pair| pair.leaf_slots().iter().map(|slot| pair.weight(*slot).1).sum::<u64>();
        let live = |pair: &Pair| pair.figures().extents_live_bytes - pair.figures().grace_bytes;
        (self.worker().pairs().map(counted).sum(), self.worker().pairs().map(live).sum())
    }
}
