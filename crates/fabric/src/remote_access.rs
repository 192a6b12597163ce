//! What one-sided access to a peer's memory is named by, and how the words of a read are loaded.

use std::fmt;

use cell_terms::{WORDS_PER_LINE, Words};

/// Names one registration of a region. Whoever has it and can reach the fabric can do with the region what
/// the registration permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(pub u64);

impl fmt::Display for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key-{:016x}", self.0)
    }
}

/// The caller's own name for a one-sided operation; nothing but it comes back with the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTag(pub u64);

/// What to read. Offset and length are in bytes and multiples of 8: live memory is words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRead {
    /// The registration.
    pub key: RegionKey,
    /// Byte offset in the region, a multiple of 8.
    pub offset: u64,
    /// Bytes, a multiple of 8, from 8 to [`READ_BYTES_MAX`].
    pub length: u32,
}

/// What to write: whole words, to be stored in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWrite<'a> {
    /// The registration.
    pub key: RegionKey,
    /// Byte offset in the region, a multiple of 8.
    pub offset: u64,
    /// The words, from one to [`READ_BYTES_MAX`] / 8 of them.
    pub words: &'a [u64],
}

/// A word that takes another value if it has the one that is expected, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSwap {
    /// The registration.
    pub key: RegionKey,
    /// Byte offset of the word in the region, a multiple of 8.
    pub offset: u64,
    /// The value that it must have to be changed.
    pub expected: u64,
    /// The value that it takes.
    pub new: u64,
}

/// One operation on a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess<'a> {
    /// Completes with the words that were read.
    Read(RemoteRead),
    /// Completes with no words.
    Write(RemoteWrite<'a>),
    /// Completes with one word: what stood there before, whether or not it was the expected value.
    CompareAndSwap(RemoteSwap),
}

/// What a registration permits peers to do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionAccess {
    /// Reads alone.
    Read,
    /// Reads, writes and compare-and-swaps. No provider here permits it so far.
    ReadAndWrite,
}

/// The longest one-sided read or write.
pub const READ_BYTES_MAX: u32 = 32 * 1024;

/// One-sided operations in flight on one connection.
pub const READS_MAX: usize = 1_024;

/// Why a one-sided operation returned nothing. Each but
/// [`ReadFailure::ConnectionClosed`] is definite: no memory was read, and none was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// No such registration: the region was given up, or its owner changed. Look the region up again.
    #[error("the region key is unknown")]
    KeyUnknown,
    /// Beyond the region, not in words, empty, or longer than [`READ_BYTES_MAX`].
    #[error("the range of the read is not permitted")]
    RangeInvalid,
    /// A write or a compare-and-swap of a region that is registered for reading alone.
    #[error("the region is registered for reading alone")]
    NotPermitted,
    /// The connection ended before the operation was answered. Of a write it is not known whether it was
    /// carried out.
    #[error("the connection ended")]
    ConnectionClosed,
    /// The peer serves no one-sided reads.
    #[error("the peer serves no one-sided reads")]
    Unsupported,
}

impl RemoteAccess<'_> {
    /// The words that it touches, as a read of them.
    #[inline]
    pub(crate) fn range(&self) -> RemoteRead {
        match self {
            RemoteAccess::Read(read) => *read,
            RemoteAccess::Write(RemoteWrite { key, offset, words }) => {
                let length = u32::try_from(size_of_val(*words)).unwrap_or(u32::MAX);
                RemoteRead { key: *key, offset: *offset, length }
            }
            RemoteAccess::CompareAndSwap(RemoteSwap { key, offset, .. }) => {
                RemoteRead { key: *key, offset: *offset, length: 8 }
            }
        }
    }

    /// Why no region permits it that is registered for reading alone; none for a read.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<ReadFailure> {
        match self {
            RemoteAccess::Read(_) => None,
            _ if !self.range().fits(u64::MAX) => Some(ReadFailure::RangeInvalid),
            _ => Some(ReadFailure::NotPermitted),
        }
    }
}

impl RemoteRead {
    /// Loads the words that it names: the first before all others, the last after all others, and those
    /// between them one cache line after the other in the order of their addresses. A tree node's versions
    /// are its first and its last word, and what stands between two that are equal is of one moment only if
    /// it was loaded between them:
    ///
    /// 1. a reader loads the second word, which still is what it was;
    /// 2. the writer changes the node, and makes its versions even again;
    /// 3. the reader loads the first word and all others: two equal versions, and the CSN of before.
    ///
    /// # Errors
    /// [`ReadFailure::RangeInvalid`].
    pub(crate) fn load(
        &self,
        region: &(impl Words + ?Sized),
        words: &mut Vec<u64>,
    ) -> Result<(), ReadFailure> {
        if !self.fits(region.len() as u64 * 8) {
            return Err(ReadFailure::RangeInvalid);
        }
        let first = usize::try_from(self.offset / 8).map_err(|_| ReadFailure::RangeInvalid)?;
        let count = usize::try_from(self.length / 8).map_err(|_| ReadFailure::RangeInvalid)?;
        words.resize(count, 0);
        let last = count - 1;
        words[0] = region.load(first);
        region.fence_acquire();
        let mut done = 1;
        while done < last {
            let line = WORDS_PER_LINE - (first + done) % WORDS_PER_LINE;
            let until = last.min(done + line);
            region.copy_words(first + done, &mut words[done..until]);
            region.fence_acquire();
            done = until;
        }
        if last > 0 {
            words[last] = region.load(first + last);
        }
        Ok(())
    }

    /// Whether offset and length are whole words, within the limit and within a region of that many bytes.
    pub(crate) fn fits(&self, region_bytes: u64) -> bool {
        self.length != 0
            && self.length <= READ_BYTES_MAX
            && self.length.is_multiple_of(8)
            && self.offset.is_multiple_of(8)
            && self.offset.checked_add(u64::from(self.length)).is_some_and(|end| end <= region_bytes)
    }
}

/// Reads beside a writer under every interleaving and every order of memory that the language permits, as
/// loom enumerates them. Both are the production code, the owner's of `cell_tree`; only the words are loom's.
#[cfg(test)]
mod interleavings {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use cell_terms::{Csn, ExtentOffset, RegionId, SlotIndex, WordsMut};
    use cell_tree::{Change, Geometry, LeafEntry, NodeIndex, NodeRef, NodeStep, Slot, apply, empty_root};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;

    use super::*;

    const NODE_BYTES: u32 = 512;
    const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };
    const CSN: Csn = Csn(9);

    /// What a writer does to memory.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Store(usize, u64),
        Fence,
    }

    /// Words that nobody shares, with a note of what is done to them: a writer's frames are larger than
    /// loom's stacks.
    struct Plain {
        words: Vec<u64>,
        steps: RefCell<Vec<Step>>,
    }

    impl Words for Plain {
        fn load(&self, index: usize) -> u64 {
            self.words[index]
        }
        fn len(&self) -> usize {
            self.words.len()
        }
        fn prefetch(&self, _index: usize) {}
    }

    impl WordsMut for Plain {
        fn store(&mut self, index: usize, word: u64) {
            self.words[index] = word;
            self.steps.borrow_mut().push(Step::Store(index, word));
        }
        fn fence_release(&self) {
            self.steps.borrow_mut().push(Step::Fence);
        }
    }

    /// Words under the model checker: those that the writer stores; the others stay what they are.
    struct Modelled {
        words: Vec<u64>,
        shared: BTreeMap<usize, AtomicU64>,
    }

    impl Words for Modelled {
        fn load(&self, index: usize) -> u64 {
            self.shared.get(&index).map_or(self.words[index], |word| word.load(Ordering::Relaxed))
        }
        fn len(&self) -> usize {
            self.words.len()
        }
        fn prefetch(&self, _index: usize) {}
        fn fence_acquire(&self) {
            fence(Ordering::Acquire);
        }
    }

    fn geometry() -> Geometry {
        Geometry::new(NODE_BYTES as usize, 8 * NODE_BYTES as usize, 0).unwrap()
    }

    fn entry(n: u32) -> LeafEntry {
        LeafEntry { offset: ExtentOffset(n), value_len: n, crc: u64::from(n) << 32 | 7 }
    }

    fn put(key: &'static [u8], n: u32) -> Change<'static> {
        Change::Put { node: NodeIndex::ROOT, key, entry: entry(n) }
    }

    /// A leaf with one key, whose entry another one replaces.
    fn check() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.max_permutations = Some(20_000);
        model.max_branches = 10_000;
        let mut before = vec![0; 8 * NODE_BYTES as usize / 8];
        before[..NODE_BYTES as usize / 8].copy_from_slice(&empty_root(geometry()));
        apply(&mut before[..], geometry(), SLOT, &put(b"apple", 1), Csn(1));
        let mut plain = Plain { words: before.clone(), steps: RefCell::default() };
        apply(&mut plain, geometry(), SLOT, &put(b"apple", 3), CSN);
        let steps = plain.steps.into_inner();
        model.check(move || {
            let stored = steps.iter().filter_map(|step| match step {
                Step::Store(index, _) => Some(*index),
                Step::Fence => None,
            });
            let shared = stored.map(|index| (index, AtomicU64::new(before[index]))).collect();
            let words = Arc::new(Modelled { words: before.clone(), shared });
            let (there, steps) = (Arc::clone(&words), steps.clone());
            let writer = thread::spawn(move || {
                for step in steps {
                    match step {
                        Step::Store(index, word) => there.shared[&index].store(word, Ordering::Relaxed),
                        Step::Fence => fence(Ordering::Release),
                    }
                }
            });
            let read = RemoteRead { key: RegionKey(1), offset: 0, length: NODE_BYTES };
            let mut copy = Vec::new();
            read.load(&*words, &mut copy).unwrap();
            if let Ok(node) = NodeRef::new(geometry(), NodeIndex::ROOT, &copy) {
                let NodeStep::Leaf(found) = node.step(b"apple") else { panic!("the root is the leaf") };
                let expected = if found.csn_changed == CSN { entry(3) } else { entry(1) };
                assert_eq!(found.entry, Some(expected), "half a change: {found:?}");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn read_beside_a_change_sees_it_whole_or_not_at_all() {
        check();
    }
}
