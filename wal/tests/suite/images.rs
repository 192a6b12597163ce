//! Checkpoint images: what is written is read back, by several threads; anything less than whole is refused;
//! a crash at any moment leaves the old image, the new one, or none.
#![allow(missing_docs, clippy::cast_possible_truncation, clippy::unwrap_used)] // tests

use std::sync::Arc;

use crate::harness::PAIR;
use cell_terms::{Csn, Epoch};
use cell_wal::folder::list_images;
use cell_wal::image::{
    BLOCK_BYTES_MAX, BlockBuffer, BlockEncoder, Codec, ImageHeader, ImageReader, ImageSummary, ImageWriter,
};
use cell_wal::segment::{ImageName, image_folder};
use cell_wal::sim::{PowerCut, SimDisk};
use cell_wal::storage::remove_files;
use cell_wal::{Errno, RealStorage, Storage, WalError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn header() -> ImageHeader {
    ImageHeader { pair: PAIR, epoch: Epoch(4), base: Csn(123), geometry: vec![3; 100] }
}

/// Blocks of all sorts: compressible, random, tiny.
fn block(number: u64) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
    let length = 1 + random.random_range(..200_000_usize);
    match number % 3 {
        0 => (0..length).map(|i| (i / 50) as u8).collect(),
        1 => (0..length).map(|_| random.random()).collect(),
        _ => vec![number as u8; 1 + length % 100],
    }
}

const IMAGE: ImageName = ImageName { epoch: Epoch(4), base: Csn(123), attempt: 2 };

fn image_path() -> String {
    IMAGE.path(PAIR)
}

fn write(storage: &Arc<dyn Storage>, path: &str, blocks: u64) -> Result<ImageSummary, WalError> {
    let mut writer = ImageWriter::create(Arc::clone(storage), path, &header(), 1)?;
    for number in 0..blocks {
        writer.append((number % 4) as u16, number * 10, number as u32, &block(number))?;
    }
    writer.finish(Csn(200))
}

fn read_all(storage: &dyn Storage, path: &str) -> Result<Vec<Vec<u8>>, WalError> {
    let reader = ImageReader::open(storage, path)?;
    assert_eq!(*reader.header(), header());
    let mut buffer = BlockBuffer::default();
    (0..reader.blocks().len()).map(|block| reader.read(block, &mut buffer).map(<[u8]>::to_vec)).collect()
}

#[test]
fn image_on_a_real_disk_reads_back_by_several_threads() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(folder.path()).unwrap());
    let path = image_path();
    let summary = write(&storage, &path, 90).unwrap();
    assert_eq!((summary.blocks, summary.csn_max), (90, Csn(200)));
    assert!(summary.stored_bytes < summary.raw_bytes);
    assert_eq!(list_images(&*storage, PAIR).unwrap(), vec![IMAGE]);
    let reader = ImageReader::open(&*storage, &path).unwrap();
    let codecs: Vec<_> = reader.blocks().iter().map(|block| block.codec).collect();
    assert!(codecs.contains(&Codec::Raw) && codecs.contains(&Codec::Zstd));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let reader = &reader;
            scope.spawn(move || {
                let mut buffer = BlockBuffer::default();
                for number in (0..90).filter(|number| number % 3 == thread).rev() {
                    assert!(reader.read(number, &mut buffer).unwrap() == block(number as u64));
                }
            });
        }
    });
    assert_eq!(storage.list(&image_folder(PAIR)).unwrap().len(), 1, "nothing unfinished is left");
}

#[test]
fn blocks_encoded_by_other_threads_are_the_same_image() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    write(&storage, "a", 9).unwrap();
    let mut writer = ImageWriter::create(Arc::clone(&storage), "b", &header(), 1).unwrap();
    let encoded: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..9).map(|number| scope.spawn(move || BlockEncoder::new(1).encode(&block(number)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    for (number, encoded) in (0u64..).zip(&encoded) {
        writer.append_encoded((number % 4) as u16, number * 10, number as u32, encoded).unwrap();
    }
    writer.finish(Csn(200)).unwrap();
    assert_eq!(disk.content("a"), disk.content("b"));
}

#[test]
fn image_without_blocks_is_whole() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    assert_eq!(write(&storage, "image", 0).unwrap().file_bytes, 8192);
    assert_eq!(read_all(&disk, "image").unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn largest_block_reads_back() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let raw: Vec<u8> = (0..BLOCK_BYTES_MAX).map(|i| (i >> 12) as u8).collect();
    let mut writer = ImageWriter::create(storage, "image", &header(), 1).unwrap();
    writer.append(0, 0, 1, &raw).unwrap();
    writer.finish(Csn(1)).unwrap();
    let reader = ImageReader::open(&disk, "image").unwrap();
    assert!(reader.read(0, &mut BlockBuffer::default()).unwrap() == raw);
}

#[test]
fn block_that_no_image_can_have_is_an_error() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut writer = ImageWriter::create(storage, "image", &header(), 1).unwrap();
    for bytes in [0, BLOCK_BYTES_MAX + 1] {
        let error = writer.append(0, 0, 1, &vec![7; bytes]).unwrap_err();
        assert_eq!(error, WalError::BlockLength { bytes, max: BLOCK_BYTES_MAX });
    }
    writer.abandon().unwrap();
    assert_eq!(disk.used(), 0);
}

#[test]
fn image_cut_at_any_length_is_refused() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let summary = write(&storage, "image", 5).unwrap();
    for length in (0..summary.file_bytes).step_by(1000).chain(summary.file_bytes - 130..summary.file_bytes) {
        let fork = disk.fork(length);
        fork.truncate("image", length);
        let error = ImageReader::open(&fork, "image").err().unwrap();
        assert!(matches!(error, WalError::Image { .. }), "{length}: {error}");
    }
    // Longer is not whole either.
    let file = disk.open("image", cell_wal::storage::Access::Write).unwrap();
    file.write_at(summary.file_bytes, &[0; 4096]).unwrap();
    assert!(ImageReader::open(&disk, "image").is_err());
}

#[test]
fn flip_of_any_byte_that_means_something_is_refused() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let summary = write(&storage, "image", 5).unwrap();
    let blocks = ImageReader::open(&disk, "image").unwrap().blocks().to_vec();
    let index = blocks.iter().map(|block| block.offset + u64::from(block.stored_bytes)).max().unwrap();
    let index = index.next_multiple_of(128)..index.next_multiple_of(128) + 5 * 40;
    let footer = summary.file_bytes - 128..summary.file_bytes;
    let first = blocks[0].offset..blocks[0].offset + u64::from(blocks[0].stored_bytes);
    let raw = blocks[1].offset..blocks[1].offset + u64::from(blocks[1].stored_bytes).min(500);
    for offset in (0..4096).chain(index).chain(footer).chain(first).chain(raw) {
        disk.flip("image", offset, 0x20);
        let error = read_all(&disk, "image").err();
        assert!(matches!(error, Some(WalError::Image { .. })), "byte {offset}");
        disk.flip("image", offset, 0x20);
    }
    assert!(read_all(&disk, "image").is_ok());
}

#[test]
fn power_cut_at_any_moment_leaves_a_whole_image_or_none() {
    for operations in 0..40 {
        let disk = SimDisk::new(operations);
        disk.arm_power_cut(operations);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let path = image_path();
        let written = write(&storage, &path, 12);
        let off = disk.is_off();
        disk.power_cut(PowerCut::random(operations));
        let after = disk.process();
        let images = list_images(&after, PAIR).unwrap();
        if written.is_ok() {
            assert_eq!(images.len(), 1);
        }
        if images.len() == 1 {
            assert_eq!(read_all(&after, &path).unwrap().len(), 12);
        }
        // What the crash left does not hinder the next one.
        let storage: Arc<dyn Storage> = Arc::new(after.clone());
        write(&storage, &path, 12).unwrap();
        assert_eq!(read_all(&after, &path).unwrap().len(), 12);
        if !off {
            return;
        }
    }
    panic!("the image takes more operations than were tried");
}

#[test]
fn failing_disk_yields_no_image() {
    for (write_error, count) in [(true, 0), (false, 0), (false, 2)] {
        let disk = SimDisk::new(1);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        if write_error {
            disk.arm_write_error(count, Errno::ENOSPC);
        } else {
            disk.arm_sync_error(count, Errno::EIO);
        }
        let path = image_path();
        assert!(matches!(write(&storage, &path, 3), Err(WalError::Storage(_))));
        let made = list_images(&disk, PAIR).unwrap();
        // Only the last sync, of the folder, comes after the name is there: the image is whole but not
        // promised.
        assert!(made.is_empty() || count == 2);
        assert_eq!(disk.used() == 0, made.is_empty(), "what was written goes with an image that failed");
        remove_files(&disk, &image_folder(PAIR)).unwrap();
        assert_eq!(disk.used(), 0);
    }
}

#[test]
fn abandoned_image_leaves_nothing() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut writer = ImageWriter::create(storage, "pair-5/image", &header(), 1).unwrap();
    writer.append(0, 0, 1, b"something").unwrap();
    writer.abandon().unwrap();
    assert_eq!(disk.list("pair-5").unwrap(), Vec::<String>::new());
}
