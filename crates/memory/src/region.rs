//! A region: one contiguous piece of shared memory with a cluster-wide id, many readers, one writer.
//!
//! [`Region`] is a handle to read with; it is cloned freely and sent anywhere. [`RegionWriter`] is the only
//! handle to write with: [`Region::create`] makes one, it cannot be cloned, and a region that was opened from
//! a descriptor has none. So "one writer a region" is what the types say; between processes the file's seals
//! say it.
//!
//! What a reader copied is of many moments. It is good only once validated: versions and fences for tree
//! nodes, the checksum for extents, and then the watermark.

mod available;
mod header;
mod live;
mod pages;
mod populate;
mod spec;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Words, WordsMut, publish_watermarks, published_watermarks};

use crate::budget::{Budget, BudgetFull};
use crate::error::{GeometryFault, MemoryError};
use crate::mapping::{Mapping, UNIT_BYTES};
use crate::width::{index, low};
pub(crate) use available::Ledger;
pub use header::{RegionHeader, Watermarks, header_word};
use live::Live;
pub use pages::{Backing, HugePages};
use populate::{Population, Source};
pub(crate) use spec::{EXTENT_REGION_BYTES_MAX, NODE_BYTES, SLOT_BYTES_MIN};
pub use spec::{HEADER_BYTES, RegionSpec};

/// How to make a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOptions {
    /// Which pages to ask for.
    pub pages: HugePages,
    /// Whether [`Region::create`] refuses a region that is larger than the memory that is available (reserved
    /// huge pages are always counted). Off only where regions are known to stay sparse, as in tests.
    pub memory_check: bool,
}

impl Default for RegionOptions {
    fn default() -> RegionOptions {
        HugePages::Auto.into()
    }
}

impl From<HugePages> for RegionOptions {
    fn from(pages: HugePages) -> RegionOptions {
        RegionOptions { pages, memory_check: true }
    }
}

/// A handle to read a region with. Cheap to clone; the memory goes when the last handle does.
#[derive(Clone)]
pub struct Region {
    live: Live,
    about: Arc<About>,
}

struct About {
    spec: RegionSpec,
    backing: Backing,
    population: Arc<Population>,
}

impl Region {
    /// Makes a zeroed region with its header, sealed for sharing, and its one writer.
    ///
    /// Memory is not taken yet (see [`Region::populate`]), but it is checked that there is enough: reserved
    /// huge pages are set aside whole.
    ///
    /// # Errors
    /// A wrong geometry, too little memory, or a refusal of the kernel.
    pub fn create(
        spec: &RegionSpec,
        options: impl Into<RegionOptions>,
    ) -> Result<(Region, RegionWriter), MemoryError> {
        Region::create_in(spec, options.into(), &Budget::unlimited())
    }

    /// As [`Region::create`], of which each part is granted by a budget before it has memory
    /// ([`Region::grant`]). It may be larger than what the budget has left, because it stays sparse.
    ///
    /// # Errors
    /// A wrong geometry, a refusal of the kernel, or [`MemoryError::LimitReached`] by the first unit.
    pub fn create_within(
        spec: &RegionSpec,
        options: impl Into<RegionOptions>,
        budget: &Budget,
    ) -> Result<(Region, RegionWriter), MemoryError> {
        Region::create_in(spec, RegionOptions { memory_check: false, ..options.into() }, budget)
    }

    fn create_in(
        spec: &RegionSpec,
        options: RegionOptions,
        budget: &Budget,
    ) -> Result<(Region, RegionWriter), MemoryError> {
        let spec = spec.checked()?;
        let name = format!("cell-{}-{}", spec.kind, spec.id);
        let (mapping, backing) = pages::create(&name, spec.bytes, options.pages, options.memory_check)?;
        let region = Region::assemble(mapping, spec, backing, budget)?;
        let (id, bytes) = (spec.id.0, spec.bytes);
        tracing::info!(region = id, kind = %spec.kind, bytes, backing = %backing, "region created");
        Ok(region.written())
    }

    /// As [`Region::create`], in memory of this process alone: for simulated nodes, of which there are many,
    /// and for tests. It cannot be shared; everything else is the same code.
    ///
    /// # Errors
    /// A wrong geometry or too little memory.
    pub fn create_private(spec: &RegionSpec) -> Result<(Region, RegionWriter), MemoryError> {
        Region::create_private_within(spec, &Budget::unlimited())
    }

    /// As [`Region::create_private`], of which each part is granted by a budget.
    ///
    /// # Errors
    /// As there, or [`MemoryError::LimitReached`].
    pub fn create_private_within(
        spec: &RegionSpec,
        budget: &Budget,
    ) -> Result<(Region, RegionWriter), MemoryError> {
        let spec = spec.checked()?;
        let mapping = Arc::new(Mapping::private(spec.bytes)?);
        Ok(Region::assemble(mapping, spec, Backing::Private, budget)?.written())
    }

    /// Maps a region that another process made and shared, for reading.
    ///
    /// The whole header is checked. Whoever opens a region by a descriptor that it was handed compares
    /// [`Region::spec`] with what it expected.
    ///
    /// # Errors
    /// Not a region, another format, or not sealed.
    pub fn open(file: File) -> Result<Region, MemoryError> {
        let mapping = Arc::new(pages::open(file)?);
        let bytes = mapping.bytes() as u64;
        if bytes < HEADER_BYTES {
            return Err(MemoryError::Geometry { fault: GeometryFault::FileBytes, value: bytes });
        }
        let mut words = [0; header::WORDS];
        Live::new(Arc::clone(&mapping), header::WORDS).read_words(0, &mut words);
        let spec = RegionHeader::decode(&words)?.spec;
        if spec.bytes > bytes {
            return Err(MemoryError::Geometry { fault: GeometryFault::FileBytes, value: bytes });
        }
        Region::assemble(mapping, spec, Backing::Foreign, &Budget::unlimited())
    }

    fn assemble(
        mapping: Arc<Mapping>,
        spec: RegionSpec,
        backing: Backing,
        budget: &Budget,
    ) -> Result<Region, MemoryError> {
        let population = Population::new(backing, mapping.bytes() as u64, budget);
        let population = population.map_err(MemoryError::LimitReached)?;
        let about = Arc::new(About { spec, backing, population: Arc::new(population) });
        Ok(Region { live: Live::new(mapping, spec.words()), about })
    }

    /// The writer of a region that was just made: called once for each, before anyone else has a handle.
    fn written(self) -> (Region, RegionWriter) {
        self.live.write_words(0, &RegionHeader::encode(self.spec()));
        let writer = RegionWriter { region: self.clone(), watermarks: self.watermark() };
        (self, writer)
    }

    /// Identity and geometry.
    #[must_use]
    pub fn spec(&self) -> &RegionSpec {
        &self.about.spec
    }

    /// The header as it is now.
    #[must_use]
    pub fn header(&self) -> RegionHeader {
        RegionHeader { spec: *self.spec(), first_word: self.first_word(), watermarks: self.watermark() }
    }

    /// The word at offset 0, which is for what lives in the region: a tree keeps its root there.
    #[must_use]
    pub fn first_word(&self) -> u64 {
        self.live.load_acquire(header_word::FIRST)
    }

    /// How far the pair's writes may be seen.
    ///
    /// A watermark read *after* the data covers it (the owner raises it once the batch is durable, and the
    /// data was there before); so: copy the data, [`Words::fence_acquire`], then this. One that was read
    /// earlier does as well if it is high enough: marks only rise.
    #[inline]
    #[must_use]
    pub fn watermark(&self) -> Watermarks {
        let (durable, visible) = (header_word::DURABLE, header_word::VISIBLE);
        let (durable, visible) = published_watermarks(self.live.shared(durable), self.live.shared(visible));
        Watermarks { epoch: Epoch(low(self.live.load(header_word::EPOCH))), durable, visible }
    }

    /// The pages that it got.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.about.backing
    }

    /// Copies words out, each atomic, not together so.
    ///
    /// # Panics
    /// If they are not all inside the region.
    #[inline]
    pub fn read_words(&self, start: usize, out: &mut [u64]) {
        self.live.read_words(start, out);
    }

    /// Copies bytes out by words, from the byte offset of a word on.
    ///
    /// # Panics
    /// If the offset is not a multiple of 8, or they are not all inside the region.
    #[inline]
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) {
        self.live.read_bytes(word_at(offset), out);
    }

    /// Appends `len` bytes, at least sixteen, to `out`, by words, all but the first `skip`: nothing or
    /// sixteen. Returns those sixteen and the CRC-64 of all, in one pass; `None`, and nothing done, where the
    /// processor is no faster so.
    #[inline]
    pub(crate) fn append_summed(
        &self,
        offset: u64,
        len: usize,
        skip: usize,
        out: &mut Vec<u8>,
    ) -> Option<([u64; 2], u64)> {
        self.live.append_summed(word_at(offset), len, skip, out)
    }

    /// The word at `index`, ordered before every load after it.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        self.live.load_acquire(index)
    }

    /// Reserves memory for the part of the region that `range` (bytes) touches, in units of 2 MiB: all of it
    /// or nothing. What is granted stays so as long as the region lives. Ask before an allocator goes there;
    /// memory itself comes with [`Region::populate_granted`], or with a first touch.
    ///
    /// # Errors
    /// [`BudgetFull`]: do without, or ask again later.
    pub fn grant(&self, range: Range<u64>) -> Result<(), BudgetFull> {
        self.about.population.grant(range)
    }

    /// As [`Region::grant`], for a region that is in use and could do without: refused while the budget keeps
    /// what is left for others ([`crate::Budget::hold_growth`]).
    ///
    /// # Errors
    /// As [`Region::grant`].
    pub fn grow(&self, range: Range<u64>) -> Result<(), BudgetFull> {
        self.about.population.grow(range)
    }

    /// The end of what is granted without a gap from a byte of the region on; the byte, if it is not granted.
    #[must_use]
    pub fn granted_end(&self, from: u64) -> u64 {
        self.about.population.granted_end(from).min(self.spec().bytes)
    }

    /// Whether all that the range (bytes) touches is granted.
    #[must_use]
    pub fn is_granted(&self, range: Range<u64>) -> bool {
        self.about.population.is_range_granted(&range)
    }

    /// Bytes that the budget would let the region grow by now.
    #[must_use]
    pub fn grantable_bytes(&self) -> u64 {
        self.about.population.grantable_bytes()
    }

    /// As [`Region::grantable_bytes`], with the ready memory that is given up for regions.
    #[must_use]
    pub fn obtainable_bytes(&self) -> u64 {
        self.about.population.obtainable_bytes()
    }

    /// Whether regions must not grow now, because what is left is kept for those that are still to be made.
    #[must_use]
    pub fn is_growth_held(&self) -> bool {
        self.about.population.is_growth_held()
    }

    /// Bytes that were granted, whole units.
    #[must_use]
    pub fn granted_bytes(&self) -> u64 {
        self.about.population.granted_bytes()
    }

    /// Gives memory to all that is granted and has none yet: for a background thread, ahead of the
    /// allocators.
    ///
    /// # Errors
    /// As [`Region::populate`].
    pub fn populate_granted(&self) -> Result<(), MemoryError> {
        self.about.population.populate_granted(self.live.mapping())
    }

    /// Grants and gives memory to the part of the region that `range` (bytes) touches, in units of 2 MiB,
    /// with huge pages where they are. Cheap where that was done, and safe beside readers and the writer.
    /// Private regions are only granted; does nothing for foreign ones.
    ///
    /// # Errors
    /// [`MemoryError::LimitReached`], or [`MemoryError::Populate`] if there is no memory: what the region
    /// holds is not touched.
    pub fn populate(&self, range: Range<u64>) -> Result<(), MemoryError> {
        self.about.population.populate(self.live.mapping(), range, Source::System)
    }

    /// As [`Region::populate`], of memory that was made ready ([`crate::make_ready`]), as long as there is
    /// some.
    ///
    /// # Errors
    /// As there.
    pub fn populate_ready(&self, range: Range<u64>) -> Result<(), MemoryError> {
        self.about.population.populate(self.live.mapping(), range, Source::Ready)
    }

    /// [`Region::populate`] from the region's start.
    ///
    /// # Errors
    /// As there.
    pub fn populate_to(&self, upto_bytes: u64) -> Result<(), MemoryError> {
        self.populate(0..upto_bytes)
    }

    /// Bytes that were populated.
    #[must_use]
    pub fn populated_bytes(&self) -> u64 {
        self.about.population.populated_bytes()
    }

    /// Populated bytes that are on huge pages, reserved or transparent.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        self.about.population.huge_bytes()
    }

    /// Bytes that have memory behind them, populated or touched; zero for a private region. A system call.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.live.mapping().resident_bytes()
    }

    /// A descriptor of the region that can be read and mapped for reading only, to hand to another process.
    /// It keeps the memory alive. Nobody but root and the own user can open the file anew for more. (A reader
    /// that touches a part that was never populated makes the kernel give it memory, which counts as its
    /// toucher's.)
    ///
    /// # Errors
    /// [`MemoryError::Share`]: no descriptor is free, /proc is missing, or the region is private.
    pub fn share(&self) -> Result<File, MemoryError> {
        let failed = |source| MemoryError::Share { source };
        let file = self.live.mapping().file().ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
        if planted(Mutant::HandedWritable) {
            return file.try_clone().map_err(failed);
        }
        // A new opening, because a duplicate would keep this descriptor's right to write: the seals stop
        // every new writer, but not who lets the file take memory.
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)
    }

    /// Where the region is mapped, for registering it with a network card. Everyone else reads words.
    #[must_use]
    pub fn address(&self) -> *const u8 {
        self.live.mapping().base().as_ptr().cast_const().cast()
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("spec", self.spec())
            .field("backing", &self.backing())
            .finish_non_exhaustive()
    }
}

impl Words for Region {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.live.load(index)
    }

    #[inline]
    fn copy(&self, start: usize, out: &mut [[u8; 8]]) {
        self.live.read_bytes(start, out.as_flattened_mut());
    }

    #[inline]
    fn copy_words(&self, start: usize, out: &mut [u64]) {
        self.live.read_words(start, out);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.live.len()
    }

    #[inline(always)]
    fn prefetch(&self, index: usize) {
        self.live.prefetch(index);
    }

    #[inline(always)]
    fn prefetch_lines(&self, index: usize, lines: usize) {
        self.live.prefetch_lines(index, lines);
    }
}

/// The one handle to write a region with. It can be moved to another thread, not cloned.
#[derive(Debug)]
pub struct RegionWriter {
    region: Region,
    /// What the header says, known here without asking it.
    watermarks: Watermarks,
}

impl RegionWriter {
    /// The region, to read or to clone a reader of.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Stores a word, ordered after every store before it.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[inline]
    pub fn store_release(&mut self, index: usize, word: u64) {
        self.region.live.store_release(index, word);
    }

    /// Copies words in, each atomic, not together so.
    ///
    /// # Panics
    /// If they are not all inside the region.
    #[inline]
    pub fn write_words(&mut self, start: usize, words: &[u64]) {
        self.region.live.write_words(start, words);
    }

    /// Copies bytes in by words, from the byte offset of a word on; what the last word has beyond them
    /// becomes zero.
    ///
    /// # Panics
    /// If the offset is not a multiple of 8, or they are not all inside the region.
    #[inline]
    pub fn write_bytes(&mut self, offset: u64, bytes: &[u8]) {
        self.region.live.write_bytes(word_at(offset), bytes);
    }

    /// Raises the watermarks, after everything that was stored before. The epoch stays: another one is
    /// [`RegionWriter::in_epoch`]'s.
    ///
    /// # Panics
    /// If one would sink, or durable would pass visible: a watermark is a promise.
    pub fn set_watermark(&mut self, durable: Csn, visible: Csn) {
        let Watermarks { durable: durable_before, visible: visible_before, .. } = self.watermarks;
        assert!(durable >= durable_before && visible >= visible_before, "a watermark must not sink");
        assert!(durable <= visible, "what is durable is visible");
        (self.watermarks.durable, self.watermarks.visible) = (durable, visible);
        let live = &self.region.live;
        publish_watermarks(
            (live.shared(header_word::DURABLE), durable),
            (live.shared(header_word::VISIBLE), visible),
        );
    }

    /// The same memory in a later epoch of its owner's, who has let nobody else have it. Handles that were
    /// cloned before go on calling it by the earlier one; readers who go by that see that it is another's.
    ///
    /// # Panics
    /// If the epoch is not later.
    #[must_use]
    pub fn in_epoch(mut self, epoch: Epoch) -> RegionWriter {
        assert!(epoch > self.watermarks.epoch, "an epoch must not sink");
        let About { spec, backing, population } = &*self.region.about;
        let (spec, backing, population) = (RegionSpec { epoch, ..*spec }, *backing, population.clone());
        self.region.about = Arc::new(About { spec, backing, population });
        self.watermarks.epoch = epoch;
        self.region.live.store_release(header_word::EPOCH, epoch.0.into());
        self
    }

    /// The watermarks as last set.
    #[must_use]
    pub fn watermark(&self) -> Watermarks {
        self.watermarks
    }

    /// Stores the word at offset 0, after everything that was stored before.
    pub fn set_first_word(&mut self, word: u64) {
        self.region.live.store_release(header_word::FIRST, word);
    }
}

impl Words for RegionWriter {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.region.live.load(index)
    }

    #[inline]
    fn copy(&self, start: usize, out: &mut [[u8; 8]]) {
        self.region.copy(start, out);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.region.live.len()
    }

    #[inline(always)]
    fn prefetch(&self, index: usize) {
        self.region.live.prefetch(index);
    }
}

impl WordsMut for RegionWriter {
    #[inline(always)]
    fn store(&mut self, index: usize, word: u64) {
        self.region.live.store(index, word);
    }

    #[inline]
    fn store_all(&mut self, start: usize, words: &[[u8; 8]]) {
        self.region.live.write_bytes(start, words.as_flattened());
    }
}

/// Keeps a region populated ahead of an allocator: called on a background thread with how far the allocator
/// has come.
#[derive(Clone, Debug)]
pub struct RegionPopulator {
    region: Region,
    chunk_bytes: u64,
}

impl RegionPopulator {
    /// Works in chunks of `chunk_bytes` (rounded up to 2 MiB).
    #[must_use]
    pub fn new(region: Region, chunk_bytes: u64) -> RegionPopulator {
        RegionPopulator { region, chunk_bytes: chunk_bytes.max(1).next_multiple_of(UNIT_BYTES) }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Sees to it that from `begin` at least one whole chunk past `high_water` has memory (bytes from the
    /// region's start; `begin` is 0, or the slot's start where several slots fill independently).
    ///
    /// # Errors
    /// [`MemoryError::Populate`] if there is no memory: stop allocating.
    pub fn populate_ahead(&self, begin: u64, high_water: u64) -> Result<(), MemoryError> {
        let end = high_water.next_multiple_of(self.chunk_bytes).saturating_add(self.chunk_bytes);
        self.region.populate(begin..end.min(self.region.spec().bytes))
    }
}

/// The word at a byte offset.
#[inline(always)]
fn word_at(offset: u64) -> usize {
    assert!(offset.is_multiple_of(8), "offset {offset} is not a word's");
    index(offset / 8)
}
