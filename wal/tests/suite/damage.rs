//! Damage: flipped bytes, cut, zeroed, swapped and stale blocks, missing files. All of it is found, except
//! what cannot be distinguished from a torn write: damage to the last, unsealed batch.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use crate::harness::{Pair, assert_holds, log_id, read, request, small};
use cell_terms::{Csn, RegionKind};
use cell_wal::corruption::{Damage, Proof};
use cell_wal::frame::FrameFault;
use cell_wal::sim::SimDisk;
use cell_wal::{ReadRequest, Storage, WalError};

const KINDS: [RegionKind; 2] = [RegionKind::Node, RegionKind::Extent];

fn path(kind: RegionKind, generation: u32) -> String {
    log_id(1).log(kind).segment(generation).path()
}

/// Open, a batch in both logs, one in the node log alone, one in both. Frames: node 4, extent 3.
fn three_batches(seed: u64, sealed: bool) -> (SimDisk, Pair) {
    let disk = SimDisk::new(seed);
    let mut pair = Pair::open(&disk, small());
    for both in [true, false, true] {
        pair.put(RegionKind::Node, 50);
        if both {
            pair.put(RegionKind::Extent, 5000);
        }
        pair.settle().unwrap();
    }
    if sealed {
        pair.seal();
    }
    (disk, pair)
}

/// Bytes of frames that hold batches or come before one.
fn batch_bytes(kind: RegionKind) -> u64 {
    match kind {
        RegionKind::Node => 4 * 4096,
        RegionKind::Extent => 4096 + 2 * 8192,
    }
}

#[test]
fn flip_of_any_byte_of_a_sealed_log_is_found_and_named() {
    let (disk, pair) = three_batches(1, true);
    for kind in KINDS {
        for offset in 0..batch_bytes(kind) {
            assert!(disk.flip(&path(kind, 0), offset, 1 << (offset % 8)));
            match read(&disk, request(1)) {
                Err(WalError::Corrupt(corruption)) => {
                    let place = corruption.place;
                    assert_eq!(place.segment.path(), path(kind, 0));
                    assert!(place.offset <= offset && offset < place.offset + 8192, "{corruption}");
                }
                other => panic!("{kind} byte {offset}: {other:?}"),
            }
            disk.flip(&path(kind, 0), offset, 1 << (offset % 8));
        }
        for offset in batch_bytes(kind)..batch_bytes(kind) + 4096 {
            disk.flip(&path(kind, 0), offset, 0x10);
            let (ended, found) = read(&disk, request(1)).unwrap();
            assert_eq!(ended.cut, pair.acked, "a damaged seal loses nothing");
            assert_holds(&found, &pair.written, ended.cut);
            disk.flip(&path(kind, 0), offset, 0x10);
        }
    }
}

#[test]
fn flip_of_any_byte_of_the_last_unsealed_batch_looks_like_a_tear() {
    let (disk, pair) = three_batches(2, false);
    let last = Csn(3);
    for kind in KINDS {
        let (_, frame) = match kind {
            RegionKind::Node => (0, 3 * 4096),
            RegionKind::Extent => (0, 4096 + 8192),
        };
        for offset in 0..batch_bytes(kind) {
            disk.flip(&path(kind, 0), offset, 0x80);
            match read(&disk, request(1)) {
                Ok((ended, found)) => {
                    assert!(offset >= frame, "{kind} byte {offset} was acknowledged and followed");
                    assert_eq!(ended.cut, last);
                    assert_holds(&found, &pair.written, last);
                }
                Err(error) => assert!(offset < frame && matches!(error, WalError::Corrupt(_)), "{error}"),
            }
            disk.flip(&path(kind, 0), offset, 0x80);
        }
    }
}

#[test]
fn file_cut_at_any_length_is_found() {
    for sealed in [false, true] {
        for kind in KINDS {
            for step in 0..64 {
                let (disk, _) = three_batches(step, sealed);
                let length = if step < 60 { step * 509 } else { small().first_segment_bytes - (step - 59) };
                assert!(disk.truncate(&path(kind, 0), length));
                let error = read(&disk, request(1)).unwrap_err();
                let WalError::Corrupt(corruption) = error else { panic!("{error}") };
                assert_eq!(corruption.damage, Damage::Frame(FrameFault::EndOfFile), "length {length}");
            }
        }
    }
}

#[test]
fn log_zeroed_from_any_block_on_is_found_unless_only_the_last_batch_is_gone() {
    for kind in KINDS {
        for block in 0..8 {
            let (disk, pair) = three_batches(block, true);
            let zeros = ("region-zeros", 0);
            assert!(!disk.copy_block(zeros, (&path(kind, 0), 0), 1), "no such file");
            let spare = path(kind, 1);
            assert!(disk.copy_block((&spare, 0), (&path(kind, 0), block * 4096), 1 << 17));
            match read(&disk, request(1)) {
                Ok((ended, _)) => {
                    assert!(block * 4096 >= batch_bytes(kind), "{kind} from block {block}");
                    assert_eq!(ended.cut, pair.acked);
                }
                Err(error) => assert!(matches!(error, WalError::Corrupt(_)), "{error}"),
            }
        }
    }
}

#[test]
fn both_logs_damaged_at_the_same_batch_are_found_by_what_follows() {
    let (disk, _) = three_batches(3, true);
    disk.flip(&path(RegionKind::Node, 0), 4096 + 64, 1);
    disk.flip(&path(RegionKind::Extent, 0), 4096 + 64, 1);
    let WalError::Corrupt(corruption) = read(&disk, request(1)).unwrap_err() else { panic!() };
    assert_eq!(corruption.csn, Csn(1));
    assert!(matches!(corruption.proof, Proof::LaterFrame(_)), "{corruption}");
}

#[test]
fn frame_swapped_with_another_or_of_another_region_is_found() {
    // (from, to): misdirected and stale blocks.
    let cases = [
        ((RegionKind::Node, 4096), (RegionKind::Node, 2 * 4096)),
        ((RegionKind::Node, 2 * 4096), (RegionKind::Node, 4096)),
        ((RegionKind::Extent, 4096), (RegionKind::Node, 4096)),
        ((RegionKind::Node, 0), (RegionKind::Extent, 0)),
        ((RegionKind::Node, 3 * 4096), (RegionKind::Extent, 4096)),
    ];
    for (from, to) in cases {
        let (disk, _) = three_batches(4, true);
        assert!(disk.copy_block((&path(from.0, 0), from.1), (&path(to.0, 0), to.1), 4096));
        let error = read(&disk, request(1)).unwrap_err();
        assert!(matches!(error, WalError::Corrupt(_)), "{from:?} over {to:?}: {error}");
    }
}

#[test]
fn stored_bytes_that_look_like_a_frame_are_no_proof_in_a_torn_batch() {
    // A client stores a copy of a frame of this very log, as it will be, at a 4 KiB boundary; the crash tears
    // the batch's header off. The salt, which no client knows, shows the forgery.
    let disk = SimDisk::new(5);
    let mut pair = Pair::open(&disk, small());
    pair.put(RegionKind::Extent, 100);
    pair.settle().unwrap();
    let genuine = disk.content(&path(RegionKind::Extent, 0)).unwrap()[4096..8192].to_vec();
    let mut forged = genuine.clone();
    let mut header = cell_wal::frame::FrameHeader::decode(&forged).unwrap();
    header.salt ^= 1;
    header.sequence += 5;
    cell_wal::frame::finish(&mut forged, &mut header);
    pair.log.append_sized(RegionKind::Extent, 3 * 4096, |_, bytes| {
        // 128 bytes of frame header and 8 of the record's come before the payload.
        bytes[4096 - 136..][..4096].copy_from_slice(&forged);
    });
    pair.settle().unwrap();
    let spare = path(RegionKind::Extent, 1);
    disk.copy_block((&spare, 0), (&path(RegionKind::Extent, 0), 8192), 512);
    assert_eq!(read(&disk, request(1)).unwrap().0.cut, Csn(1), "a tear");
}

#[test]
fn missing_folder_segment_or_successor_is_named() {
    let (disk, _) = three_batches(6, true);
    let mut pair = Pair::create_after(&disk, small(), 2, cell_wal::Predecessor::default());
    pair.settle().unwrap();
    while pair.log.counts().rotations == 0 {
        pair.put(RegionKind::Extent, 60_000);
        pair.settle().unwrap();
    }
    let extent = log_id(2).log(RegionKind::Extent);
    pair.disk.unlink(&extent.segment(1).path()).unwrap();
    let error = read(&disk, request(2)).unwrap_err();
    assert_eq!(error, WalError::SegmentMissing { segment: extent.segment(1) });
    let node = log_id(1).log(RegionKind::Node);
    cell_wal::storage::remove_files(&pair.disk, &node.folder()).unwrap();
    let error = read(&disk, request(1)).unwrap_err();
    assert_eq!(error, WalError::FolderMissing { region: node.region, epoch: node.epoch });
    let nothing = ReadRequest { base: Csn(5), cut: Some(Csn(5)), ..request(1) };
    assert_eq!(read(&disk, nothing).unwrap().0.cut, Csn(5), "nothing of it is needed");
}

#[test]
fn lost_first_segment_is_found_although_later_ones_are_sound() {
    let disk = SimDisk::new(7);
    let mut pair = Pair::open(&disk, small());
    while pair.log.counts().rotations < 3 {
        pair.put(RegionKind::Extent, 60_000);
        pair.put(RegionKind::Node, 60_000);
        pair.settle().unwrap();
    }
    pair.disk.unlink(&path(RegionKind::Extent, 0)).unwrap();
    assert!(matches!(read(&disk, request(1)), Err(WalError::Corrupt(_))));
}

#[test]
fn read_error_is_an_error_and_never_a_tear() {
    let (disk, _) = three_batches(8, true);
    for reads in 0.. {
        let fork = disk.fork(reads);
        fork.arm_read_error(reads, cell_wal::Errno::EIO);
        match read(&fork, request(1)) {
            Err(WalError::Storage(error)) => assert_eq!(error.errno, cell_wal::Errno::EIO),
            Ok((ended, _)) => {
                assert!(reads > 4 && ended.tear.is_none());
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn other_format_version_is_refused_by_name() {
    let (disk, _) = three_batches(9, true);
    let mut block = disk.content(&path(RegionKind::Node, 0)).unwrap()[..4096].to_vec();
    block[8] = 9;
    let check = cell_wal::check::crc64(&block[..120]);
    block[120..128].copy_from_slice(&check.to_le_bytes());
    let file = disk.process().open(&path(RegionKind::Node, 0), cell_wal::storage::Access::Write).unwrap();
    file.write_at(0, &block).unwrap();
    let error = read(&disk, request(1)).unwrap_err();
    assert!(matches!(error, WalError::LogVersion { found: 9, known: 1, .. }), "{error}");
}
