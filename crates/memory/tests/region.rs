//! Regions as their users see them: made, shared, opened, populated, read while they are written.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_memory::extent::{self, ExtentEncoder, ExtentHeader, ExtentReader, ExtentShape};
use cell_memory::{
    Backing, Budget, ExtentError, HugePages, MemoryError, PairWriter, Region, RegionOptions, RegionPopulator,
    RegionSpec, RegionWriter, header_word,
};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Words, WordsMut};

fn node_spec() -> RegionSpec {
    RegionSpec::node(PairId(1), Epoch(3), 8 << 20, 64 << 10, 1024).unwrap()
}

fn extent_spec() -> RegionSpec {
    RegionSpec::extent(PairId(1), Epoch(3), 16 << 20).unwrap()
}

/// Shared, small pages; under Miri, which knows no memory files, private.
fn small(spec: &RegionSpec) -> (Region, RegionWriter) {
    if cfg!(miri) {
        Region::create_private(spec).unwrap()
    } else {
        Region::create(spec, HugePages::Small).unwrap()
    }
}

/// Rounds of a test that waits for threads to meet; Miri meets them in few.
const fn rounds(many: u64) -> u64 {
    if cfg!(miri) { many / 2_000 } else { many }
}

#[test]
fn region_is_zero_but_for_its_header_on_every_backing() {
    let made = [
        Region::create(&node_spec(), HugePages::Auto).unwrap(),
        Region::create(&node_spec(), HugePages::Transparent).unwrap(),
        small(&node_spec()),
        Region::create_private(&node_spec()).unwrap(),
    ];
    for (region, writer) in made {
        assert_eq!(region.header().spec, node_spec());
        assert_eq!(region.len(), (10 << 20) / 8);
        assert!((header_word::END..region.len()).all(|word| region.load(word) == 0));
        assert_eq!((region.first_word(), writer.watermark().epoch), (0, Epoch(3)));
        println!(
            "{} {:?} populated {} huge {}",
            region.backing(),
            region,
            region.populated_bytes(),
            region.huge_bytes()
        );
    }
}

#[test]
fn shared_region_shows_what_the_writer_stores_and_cannot_be_written() {
    let (region, mut writer) = small(&node_spec());
    let file = region.share().unwrap();
    assert!((&file).write(b"x").is_err(), "opened for reading");
    assert!(file.set_len(0).is_err() && file.set_len(1 << 30).is_err());
    // Whoever manages to get a descriptor that may write still meets the seals.
    let again = std::fs::OpenOptions::new().read(true).write(true).open(descriptor_path(&file));
    if let Ok(again) = again {
        assert!((&again).write(b"x").is_err(), "sealed against writing");
        assert!(again.set_len(4096).is_err(), "sealed against shrinking");
    }
    let other = Region::open(file).unwrap();
    assert_eq!((other.spec(), other.backing()), (region.spec(), Backing::Foreign));
    writer.store(5_000, 0xfeed);
    writer.set_first_word(0xbeef);
    writer.set_watermark(Csn(4), Csn(6));
    assert_eq!(other.load(5_000), 0xfeed);
    assert_eq!(other.header(), region.header());
    assert_eq!((other.watermark().durable, other.watermark().visible), (Csn(4), Csn(6)));
    drop((region, writer));
    assert_eq!(other.load(5_000), 0xfeed, "the descriptor keeps the memory");
    other.populate_to(1 << 20).unwrap();
}

fn descriptor_path(file: &std::fs::File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[test]
fn open_refuses_what_is_not_sealed_or_no_region() {
    let path = std::env::temp_dir().join(format!("cell-memory-not-a-region-{}", std::process::id()));
    std::fs::write(&path, vec![0; 8192]).unwrap();
    let error = Region::open(std::fs::File::open(&path).unwrap()).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(error, MemoryError::NotSealed), "{error}");
    let (region, mut writer) = small(&node_spec());
    writer.store(header_word::MAGIC, 7);
    let error = Region::open(region.share().unwrap()).unwrap_err();
    assert!(matches!(error, MemoryError::Magic { found: 7 }), "{error}");
    let error = Region::create_private(&node_spec()).unwrap().0.share().unwrap_err();
    assert!(matches!(error, MemoryError::Share { .. }), "{error}");
}

#[test]
fn create_larger_than_the_machine_is_refused_clearly() {
    let spec = RegionSpec::node(PairId(1), Epoch(1), 512 << 30, 64 << 10, 1024).unwrap();
    for pages in [HugePages::Auto, HugePages::Transparent, HugePages::Small] {
        match Region::create(&spec, pages) {
            Err(MemoryError::MemoryShort { needed, available }) => assert!(needed > available),
            other => panic!("{other:?}"),
        }
    }
    for (pages, bytes) in [(HugePages::Huge1G, 1 << 30), (HugePages::Huge2M, 2 << 20)] {
        match Region::create(&spec, pages) {
            Err(MemoryError::HugePagesShort { page_bytes, needed, free }) => {
                assert!(page_bytes == bytes && needed > free);
            }
            other => panic!("{other:?}"),
        }
    }
    // Without the check it is made: sparse memory costs nothing until it is touched.
    let options = RegionOptions { pages: HugePages::Small, memory_check: false };
    let (region, mut writer) = Region::create(&spec, options).unwrap();
    writer.store(region.len() - 1, 1);
    assert!(region.resident_bytes() < 1 << 20);
}

#[test]
fn create_two_regions_the_second_counts_what_the_first_was_promised() {
    let available = match Region::create(
        &RegionSpec::node(PairId(1), Epoch(1), 512 << 30, 64 << 10, 1024).unwrap(),
        HugePages::Small,
    ) {
        Err(MemoryError::MemoryShort { available, .. }) => available,
        other => panic!("{other:?}"),
    };
    let most = |pair| {
        RegionSpec::node(PairId(pair), Epoch(1), available / 4 * 3 / 65_536 * 65_536, 64 << 10, 1024).unwrap()
    };
    let first = Region::create(&most(1), HugePages::Small).unwrap();
    let second = Region::create(&most(2), HugePages::Small);
    assert!(matches!(second, Err(MemoryError::MemoryShort { .. })), "{second:?}");
    drop(first);
    assert!(Region::create(&most(2), HugePages::Small).is_ok());
}

#[test]
fn reserved_huge_pages_are_used_where_there_are_enough() {
    match Region::create(&node_spec(), HugePages::Huge2M) {
        Ok((region, mut writer)) => {
            assert_eq!(region.backing(), Backing::Huge2M);
            region.populate_to(region.spec().bytes).unwrap();
            assert_eq!(region.huge_bytes(), region.spec().bytes);
            writer.store(region.len() - 1, 9);
            assert_eq!(Region::open(region.share().unwrap()).unwrap().load(region.len() - 1), 9);
        }
        Err(error) => assert!(matches!(error, MemoryError::HugePagesShort { .. }), "{error}"),
    }
}

#[test]
fn populate_gives_memory_once_and_keeps_what_was_stored() {
    for pages in [HugePages::Transparent, HugePages::Small] {
        let (region, mut writer) = Region::create(&extent_spec(), pages).unwrap();
        let words: Vec<usize> = (600..region.len()).step_by(4_999).collect();
        words.iter().for_each(|&word| writer.store(word, word as u64));
        let populator = RegionPopulator::new(region.clone(), 1);
        populator.populate_ahead(0, 3 << 20).unwrap();
        assert_eq!(region.populated_bytes(), 6 << 20);
        populator.populate_ahead(9 << 20, 9 << 20).unwrap();
        assert_eq!(region.populated_bytes(), 10 << 20);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| region.populate_to(u64::MAX).unwrap());
            }
        });
        assert_eq!(region.populated_bytes(), 16 << 20);
        assert_eq!(region.resident_bytes(), 16 << 20);
        assert!(words.iter().all(|&word| region.load(word) == word as u64));
        match region.backing() {
            Backing::Small => assert_eq!(region.huge_bytes(), 0),
            _ => println!("{} of {} bytes on huge pages", region.huge_bytes(), region.populated_bytes()),
        }
    }
}

#[test]
fn bytes_round_trip_at_every_length_and_padding_becomes_zero() {
    let (region, mut writer) = Region::create_private(&extent_spec()).unwrap();
    let source: Vec<u8> = (1..=200).collect();
    for length in 0..source.len() {
        writer.write_words(1_000, &[u64::MAX; 30]);
        writer.write_bytes(8_000, &source[..length]);
        let mut bytes = vec![0xaa; length.next_multiple_of(8) + 8];
        region.read_bytes(8_000, &mut bytes);
        assert_eq!(&bytes[..length], &source[..length]);
        assert!(bytes[length..length.next_multiple_of(8)].iter().all(|&byte| byte == 0));
        assert!(bytes[length.next_multiple_of(8)..].iter().all(|&byte| byte == 0xff));
        let mut words = vec![0; length / 8];
        region.read_words(1_000, &mut words);
        assert!(words.iter().zip(source.chunks(8)).all(|(word, bytes)| word.to_le_bytes() == bytes));
    }
}

#[test]
fn access_outside_the_region_panics_and_never_reads() {
    let (region, _writer) = Region::create_private(&extent_spec()).unwrap();
    let end = region.len();
    let panics = |read: &dyn Fn()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).expect_err("inside?");
    };
    panics(&|| assert_eq!(region.load(end), 0));
    panics(&|| assert_eq!(region.load(usize::MAX), 0));
    panics(&|| region.read_words(end - 1, &mut [0; 2]));
    panics(&|| region.read_words(usize::MAX, &mut [0; 2]));
    panics(&|| region.read_bytes(region.spec().bytes - 8, &mut [0; 9]));
    panics(&|| region.read_bytes(4, &mut [0; 8]));
    region.prefetch(end);
    region.prefetch(usize::MAX);
    region.read_words(end, &mut []);
}

#[test]
#[should_panic(expected = "must not sink")]
fn watermark_that_sinks_panics() {
    let (_, mut writer) = Region::create_private(&extent_spec()).unwrap();
    writer.set_watermark(Csn(5), Csn(5));
    writer.set_watermark(Csn(4), Csn(5));
}

#[test]
fn extent_round_trip_through_a_region() {
    let (region, mut writer) = small(&extent_spec());
    let (mut encoder, mut reader) = (ExtentEncoder::new(), ExtentReader::new());
    let plain = ExtentHeader { epoch: Epoch(3), csn: Csn(9), moved: None, expiry_ms: None };
    let long = if cfg!(miri) { &[][..] } else { &[4_096, 1 << 20, 15 << 20] };
    let lengths = || (0..140).chain([200, 255, 300]).chain(long.iter().copied());
    let headers = [plain, ExtentHeader { expiry_ms: Some(12), ..plain }];
    for (header, length) in headers.iter().flat_map(|header| lengths().map(move |length| (*header, length))) {
        let value: Vec<u8> = (0..length).map(|i: u32| i.to_le_bytes()[0] ^ 0x5a).collect();
        let encoded = encoder.encode(&header, &value).unwrap();
        let place = ExtentOffset(4096 / 16);
        extent::store(&mut writer, place, encoded.bytes);
        extent::prefetch(&region, place, encoded.shape);
        extent::prefetch_header(&region, place, encoded.shape);
        assert_eq!(extent::read_header(&region, place, encoded.shape), Ok(header));
        let view = reader.read(&region, place, encoded.shape, encoded.checksum).unwrap();
        assert_eq!((view.header, view.value), (header, &value[..]));
        assert_eq!(view.header.version(PairId(1)).csn, Csn(9));
        let view = reader.read_value(&region, place, length, encoded.checksum).unwrap();
        assert_eq!(view.value, value);
        let wrong = reader.read(&region, place, encoded.shape, encoded.checksum ^ 1).unwrap_err();
        assert!(matches!(wrong, ExtentError::Checksum { .. }));
        let mut out = b"before".to_vec();
        let appended = reader.append(&region, place, encoded.shape, encoded.checksum, &mut out).unwrap();
        assert_eq!((appended, &out[..6], &out[6..]), (header, &b"before"[..], &value[..]));
        assert!(reader.append(&region, place, encoded.shape, encoded.checksum ^ 1, &mut out).is_err());
        assert_eq!(out.len(), 6 + value.len());
        assert!(reader.read_value(&region, place, length + 1, encoded.checksum).is_err());
    }
    let shape = ExtentShape::new(100, false, false).unwrap();
    for place in [u32::MAX, (16 << 20) / 16, ((16 << 20) - 112) / 16] {
        let outside = reader.read(&region, ExtentOffset(place), shape, 0).unwrap_err();
        assert!(matches!(outside, ExtentError::OutOfRange { .. }), "{outside}");
        assert!(extent::read_header(&region, ExtentOffset(place), shape).is_err());
        assert!(reader.read_value(&region, ExtentOffset(place), 100, 0).is_err());
    }
}

#[test]
fn extent_read_beside_its_writer_is_whole_or_refused() {
    let (region, mut writer) = small(&extent_spec());
    let place = ExtentOffset(4096 / 16);
    let mut encoder = ExtentEncoder::new();
    let mut encode = |csn: u64| {
        let header = ExtentHeader { epoch: Epoch(3), csn: Csn(csn), ..ExtentHeader::default() };
        let encoded = encoder.encode(&header, &[u8::try_from(csn).unwrap(); 200]).unwrap();
        (encoded.bytes.to_vec(), encoded.shape, encoded.checksum)
    };
    let (a, b) = (encode(1), encode(2));
    extent::store(&mut writer, place, &a.0);
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (region, stop, reads, a, b) = (region.clone(), &stop, &reads, &a, &b);
                scope.spawn(move || {
                    let (mut reader, mut whole, mut refused) = (ExtentReader::new(), 0u64, 0u64);
                    while !stop.load(Ordering::Relaxed) || whole + refused == 0 {
                        reads.fetch_add(2, Ordering::Relaxed);
                        for (csn, (_, shape, checksum)) in [(1, a), (2, b)] {
                            match reader.read(&region, place, *shape, *checksum) {
                                Ok(view) => {
                                    assert_eq!(view.header.csn, Csn(csn));
                                    assert!(view.value.iter().all(|&byte| u64::from(byte) == csn));
                                    whole += 1;
                                }
                                Err(ExtentError::Checksum { .. }) => refused += 1,
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                    (whole, refused)
                })
            })
            .collect();
        // Long enough for the readers to have met it in the middle of a store, however few processors there
        // are.
        for i in 0..u64::MAX {
            extent::store(&mut writer, place, if i % 2 == 0 { &b.0 } else { &a.0 });
            if reads.load(Ordering::Relaxed) > rounds(400_000) && i > rounds(200_000) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            let (whole, refused) = reader.join().unwrap();
            println!("{whole} whole, {refused} refused");
        }
    });
}

#[test]
fn watermark_read_beside_its_writer_covers_the_data_before_it() {
    let (node_region, node) = small(&node_spec());
    let (extent_region, extent) = small(&extent_spec());
    let mut pair = PairWriter::new(node, extent);
    const ROUNDS: u64 = rounds(300_000);
    const DATA: usize = 9_000;
    std::thread::scope(|scope| {
        for region in [node_region, extent_region] {
            scope.spawn(move || {
                let mut last = region.watermark();
                while last.durable.0 < ROUNDS {
                    let now = region.watermark();
                    assert_eq!(now.epoch, Epoch(3));
                    assert!(
                        now.durable >= last.durable && now.visible >= last.visible,
                        "{now:?} after {last:?}"
                    );
                    assert!(now.durable <= now.visible, "{now:?}");
                    assert!(region.load(DATA) >= now.visible.0, "the mark ran ahead of its data");
                    last = now;
                }
            });
        }
        for csn in 1..=ROUNDS {
            pair.node.store(DATA, csn);
            pair.extent.store(DATA, csn);
            pair.set_watermark(Csn(csn), Csn(csn));
        }
    });
    assert_eq!(pair.watermark().durable, Csn(ROUNDS));
}

#[test]
#[should_panic(expected = "regions of two pairs")]
fn pair_of_two_pairs_panics() {
    let other = RegionSpec::extent(PairId(2), Epoch(3), 2 << 20).unwrap();
    let (_, node) = Region::create_private(&node_spec()).unwrap();
    drop(PairWriter::new(node, Region::create_private(&other).unwrap().1));
}

/// What is left is for regions that are still to be made: one that is in use has what it was granted.
#[test]
fn growth_is_refused_while_it_is_held_and_grants_are_not() {
    const UNIT: u64 = 2 << 20;
    let budget = Budget::new(64 << 20, 0);
    let (region, _writer) = Region::create_private_within(&extent_spec(), &budget).unwrap();
    budget.hold_growth(true);
    let full = region.grow(UNIT..2 * UNIT).unwrap_err();
    assert_eq!((full.needed, full.available, region.grantable_bytes()), (UNIT, 0, 0));
    region.grow(0..UNIT).unwrap();
    let (new, _writer) = Region::create_private_within(&node_spec(), &budget).unwrap();
    new.grant(0..2 * UNIT).unwrap();
    assert_eq!((region.granted_bytes(), new.granted_bytes()), (UNIT, 2 * UNIT));
    budget.hold_growth(false);
    region.grow(UNIT..2 * UNIT).unwrap();
    assert_eq!((region.granted_bytes(), region.grantable_bytes()), (2 * UNIT, (64 << 20) - 4 * UNIT));
}

#[test]
#[cfg(debug_assertions)]
fn mutant_growth_not_held_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        let passes =
            || std::panic::catch_unwind(growth_is_refused_while_it_is_held_and_grants_are_not).is_ok();
        assert!(passes());
        plant(Some(Mutant::GrowthNotHeld));
        let passed = passes();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-memory's regions", Mutant::GrowthNotHeld.name());
    });
}
