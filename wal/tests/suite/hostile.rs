//! Bytes that no writer produced, under sound checks: an error or fewer batches, never a panic, never an
//! allocation beyond the file's own size, never a record out of order (the harness asserts that).
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;

use crate::harness::{PAIR, Pair, log_id, read, request, small};
use cell_terms::{Csn, Epoch, PairId, RegionId, RegionKind};
use cell_wal::corruption::Damage;
use cell_wal::frame::{FrameHeader, FrameKind, finish, frame_bytes};
use cell_wal::image::{BlockBuffer, ImageHeader, ImageReader, ImageWriter};
use cell_wal::inspect::walk_log;
use cell_wal::sim::SimDisk;
use cell_wal::storage::Access;
use cell_wal::{Predecessor, Storage, WalError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn sound_log(seed: u64) -> (SimDisk, String) {
    let disk = SimDisk::new(seed);
    let mut pair = Pair::open(&disk, small());
    for length in [10, 5000, 300] {
        pair.put(RegionKind::Node, length);
        pair.put(RegionKind::Extent, length);
        pair.settle().unwrap();
    }
    pair.seal();
    (disk, log_id(1).log(RegionKind::Node).segment(0).path())
}

fn overwrite(disk: &SimDisk, path: &str, offset: u64, bytes: &[u8]) {
    disk.process().open(path, Access::Write).unwrap().write_at(offset, bytes).unwrap();
}

/// Mostly small numbers, now and then the extremes.
fn number(random: &mut Xoshiro256PlusPlus) -> u64 {
    match random.random_range(..6_u64) {
        0 => u64::MAX - random.random_range(..3_u64),
        1 => random.random(),
        2 => 1 << random.random_range(..64_u64),
        _ => random.random_range(..9_u64),
    }
}

/// The original with some of its fields replaced.
fn forge(header: FrameHeader, random: &mut Xoshiro256PlusPlus) -> FrameHeader {
    let mut forged = header;
    for _ in 0..random.random_range(..4_u64) {
        let value = number(random);
        match random.random_range(..15_u64) {
            0 => forged.region = RegionId(value as u32),
            1 => forged.pair = PairId(value as u32),
            2 => forged.epoch = Epoch(value as u32),
            3 => forged.predecessor = Predecessor { epoch: Epoch(value as u32), cut: Csn(number(random)) },
            4 => forged.generation = value as u32,
            5 => forged.sequence = value as u32,
            6 => forged.csn_first = Csn(value),
            7 => forged.csn_last = Csn(value),
            8 => forged.csn_durable = Csn(value),
            9 => forged.salt = value,
            10 => forged.segment_bytes = value,
            11 => forged.records = value as u32,
            12 => forged.kind = FrameKind::Batch { other: value.is_multiple_of(2) },
            13 => forged.kind = FrameKind::Rotate { successor: value as u32 },
            _ => forged.kind = FrameKind::Seal,
        }
    }
    forged
}

#[test]
fn frames_with_forged_headers_are_survived() {
    let mut refused = 0;
    let (sound, path) = sound_log(1);
    for seed in 0..1000 {
        let disk = sound.fork(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let content = disk.content(&path).unwrap();
        let offset = 4096 * random.random_range(..5_usize);
        let Ok(header) = FrameHeader::decode(&content[offset..]) else { continue };
        let mut frame = content[offset..offset + header.frame_bytes()].to_vec();
        let mut forged = forge(header, &mut random);
        finish(&mut frame, &mut forged);
        overwrite(&disk, &path, offset as u64, &frame);
        refused += usize::from(read(&disk, request(1)).is_err());
        let storage: Arc<dyn Storage> = Arc::new(disk.process());
        let _ = walk_log(&storage, log_id(1), RegionKind::Node, Csn::ZERO, |frame| {
            let _ = frame.records().count();
        });
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn frame_at_the_end_of_all_numbers_is_a_contradiction() {
    let (disk, path) = sound_log(1);
    let content = disk.content(&path).unwrap();
    let mut header = FrameHeader::decode(&content[4096..]).unwrap();
    header.csn_last = Csn(u64::MAX);
    let mut frame = content[4096..8192].to_vec();
    finish(&mut frame, &mut header);
    overwrite(&disk, &path, 4096, &frame);
    let error = read(&disk, request(1)).unwrap_err();
    let contradiction = Damage::Frame(cell_wal::frame::FrameFault::Contradiction);
    assert!(matches!(&error, WalError::Corrupt(corruption) if corruption.damage == contradiction), "{error}");
}

#[test]
fn frames_with_forged_records_are_corruption() {
    let (sound, path) = sound_log(1);
    for seed in 0..300 {
        let disk = sound.fork(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let content = disk.content(&path).unwrap();
        let mut header = FrameHeader::decode(&content[4096..]).unwrap();
        header.payload_bytes = random.random_range(..3900_u32);
        let mut frame = vec![0; frame_bytes(header.payload_bytes as usize)];
        for byte in &mut frame[128..] {
            *byte = number(&mut random) as u8;
        }
        finish(&mut frame, &mut header);
        overwrite(&disk, &path, 4096, &frame);
        let WalError::Corrupt(corruption) = read(&disk, request(1)).unwrap_err() else { panic!() };
        assert_eq!(corruption.damage, Damage::Records);
    }
}

#[test]
fn images_with_forged_fields_are_survived() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let header = ImageHeader { pair: PAIR, epoch: Epoch(1), base: Csn(1), geometry: vec![1; 9] };
    let mut writer = ImageWriter::create(storage, "image", &header, 1).unwrap();
    for block in 0..3 {
        writer.append(block, 0, 1, &vec![block as u8; 2000]).unwrap();
    }
    writer.finish(Csn(9)).unwrap();
    let sound = disk.content("image").unwrap();
    let end = sound.len();
    let reseal = |bytes: &mut [u8], range: std::ops::Range<usize>, at: usize| {
        let check = cell_wal::check::crc64(&bytes[range]);
        bytes[at..at + 8].copy_from_slice(&check.to_le_bytes());
    };
    let index = u64::from_le_bytes(sound[end - 112..end - 104].try_into().unwrap()) as usize;
    for seed in 0..4000 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = sound.clone();
        let at = match random.random_range(..3_u64) {
            0 => random.random_range(..4088_usize),
            1 => index + random.random_range(..120_usize),
            _ => end - 128 + random.random_range(..120_usize),
        };
        let width = [1, 2, 4, 8][random.random_range(..4_usize)].min(end - at);
        bytes[at..at + width].copy_from_slice(&number(&mut random).to_le_bytes()[..width]);
        reseal(&mut bytes, 0..4088, 4088);
        reseal(&mut bytes, index..index + 120, end - 56);
        let header_check: [u8; 8] = bytes[4088..4096].try_into().unwrap();
        bytes[end - 64..end - 56].copy_from_slice(&header_check);
        reseal(&mut bytes, end - 128..end - 8, end - 8);
        overwrite(&disk, "image", 0, &bytes);
        if let Ok(image) = ImageReader::open(&disk, "image") {
            let mut buffer = BlockBuffer::default();
            for block in 0..image.blocks().len() {
                let _ = image.read(block, &mut buffer);
            }
        }
    }
}
