//! The twins of the fault harnesses: each deliberate defect must be caught by a run that is clean without it.
//! Debug builds alone have them.
#![cfg(debug_assertions)]
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;

use crate::flush_rounds::late_completion;
use crate::growth::{
    long_frame_finds_a_place, short_segments_serve_by_turns_on_a_full_disk,
    spare_that_comes_back_is_passed_over,
};
use crate::harness::{PAIR, Pair, fill_segments, log_id, random_kind, read, request, small};
use crate::root::{folders_and_images_ask, segments_ask, work_stays_in_the_opened_folder};
use cell_terms::{Csn, Epoch, RegionKind};
use cell_wal::image::{BlockBuffer, ImageHeader, ImageReader, ImageWriter};
use cell_wal::mutant::{Mutant, plant};
use cell_wal::sim::{Landing, PowerCut, SimDisk};
use cell_wal::{Errno, ReadRequest, Space, Storage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Whether what was acknowledged is all there, unharmed, and nothing else.
fn holds(disk: &SimDisk, pair: &Pair) -> bool {
    match read(disk, request(1)) {
        Err(_) => false,
        Ok((ended, found)) => {
            let expected = pair.written.range(..=ended.cut.0);
            ended.cut >= pair.acked && found.iter().eq(expected)
        }
    }
}

fn power_cuts() -> bool {
    (0..60).all(|seed| {
        let disk = SimDisk::new(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair::create(&disk, small());
        let _ = pair.settle();
        for _ in 0..random.random_range(..300_u64) {
            let kind = random_kind(&mut random);
            let length = random.random_range(..60_000_usize);
            if pair.room(kind, length, Space::Ordinary).is_ok() {
                pair.put(kind, length);
            }
            let _ = pair.submit();
            pair.disk.step();
            let _ = pair.pump();
        }
        let writes = if seed % 2 == 0 { Landing::Nothing } else { Landing::Random };
        disk.power_cut(PowerCut { writes, names: Landing::Nothing, sector_bytes: 512 });
        holds(&disk, &pair)
    })
}

fn write_errors() -> bool {
    (0..20).all(|seed| {
        let disk = SimDisk::new(seed);
        let mut pair = Pair::open(&disk, small());
        pair.put(RegionKind::Node, 5000);
        disk.arm_write_error(0, Errno::EIO);
        let _ = pair.settle();
        disk.power_cut(PowerCut::CLEAN);
        holds(&disk, &pair)
    })
}

fn flipped_payloads() -> bool {
    (0..200).all(|byte| {
        let disk = SimDisk::new(1);
        let mut pair = Pair::open(&disk, small());
        pair.put(RegionKind::Node, 200);
        pair.seal();
        disk.flip(&log_id(1).log(RegionKind::Node).segment(0).path(), 4096 + 136 + byte, 1);
        read(&disk, request(1)).is_err()
    })
}

/// The last batch of full segments, once somebody who waited for its seal has gone on.
fn sealed_full_segments() -> bool {
    let disk = SimDisk::new(1);
    let mut pair = Pair::open(&disk, small());
    fill_segments(&mut pair, small().first_segment_bytes);
    let last = pair.log.csn_durable();
    pair.log.want_seal(last);
    pair.settle().unwrap();
    assert_eq!(pair.log.csn_sealed(), last);
    [RegionKind::Node, RegionKind::Extent].into_iter().all(|kind| {
        let path = log_id(1).log(kind).segment(0).path();
        let place = small().first_segment_bytes - 2 * 4096 + 136;
        assert!(disk.flip(&path, place, 1));
        let found = read(&disk, request(1)).is_err();
        disk.flip(&path, place, 1);
        found
    })
}

fn late_writes() -> bool {
    (0..100).all(|seed| {
        let disk = SimDisk::new(seed);
        let mut pair = Pair::open(&disk, small());
        pair.put(RegionKind::Node, 10);
        pair.submit().unwrap();
        pair.disk.kill();
        let cut = read(&disk, request(1)).unwrap().0.cut;
        while disk.land_late() {}
        read(&disk, ReadRequest { cut: Some(cut), ..request(1) }).unwrap().0.cut == cut
    })
}

fn images() -> bool {
    (0..20).all(|seed| {
        let disk = SimDisk::new(seed);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let header = ImageHeader { pair: PAIR, epoch: Epoch(1), base: Csn(1), geometry: Vec::new() };
        let mut writer = ImageWriter::create(storage, "image", &header, 1).unwrap();
        writer.append(0, 0, 1, &[1; 50_000]).unwrap();
        writer.finish(Csn(1)).unwrap();
        disk.power_cut(PowerCut { writes: Landing::Random, names: Landing::Everything, sector_bytes: 512 });
        let after = disk.process();
        ImageReader::open(&after, "image")
            .is_ok_and(|image| image.read(0, &mut BlockBuffer::default()).is_ok())
    })
}

/// Whether a harness finds nothing wrong.
type Run = fn() -> bool;

/// A harness's own assertion catches a mutant as well.
fn clean(run: Run) -> bool {
    std::panic::catch_unwind(run).unwrap_or(false)
}

#[test]
fn every_mutant_is_caught_and_the_unchanged_build_is_clean() {
    cell_terms::mutant::in_own_process(|| {
        // What takes longest is the last: the first that catches a mutant is enough.
        let runs: [(&str, Run); 13] = [
            ("late completion", late_completion),
            ("write errors", write_errors),
            ("flipped payloads", flipped_payloads),
            ("sealed full segments", sealed_full_segments),
            ("a long frame", long_frame_finds_a_place),
            ("short segments on a full disk", short_segments_serve_by_turns_on_a_full_disk),
            ("a spare that comes back", spare_that_comes_back_is_passed_over),
            ("late writes", late_writes),
            ("images", images),
            ("another folder in the log root's place", work_stays_in_the_opened_folder),
            ("segments without a log root", segments_ask),
            ("folders and images without a log root", folders_and_images_ask),
            ("power cuts", power_cuts),
        ];
        for (name, run) in runs {
            assert!(run(), "{name} without a mutant");
        }
        for &mutant in Mutant::ALL {
            plant(Some(mutant));
            let caught = runs.iter().find(|(_, run)| !clean(*run));
            plant(None);
            let (name, _) = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught"));
            println!("mutant {} caught by cell-wal's {name}", mutant.name());
        }
    });
}
