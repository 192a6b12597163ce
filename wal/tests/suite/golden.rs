//! The bytes of the formats, pinned: a change here is a new format version. `UPDATE_GOLDEN=1` writes the
//! files anew.
#![allow(missing_docs, clippy::unwrap_used)] // tests

use std::path::Path;
use std::sync::Arc;

use crate::harness::{PAIR, Pair, log_id, small};
use cell_terms::{Csn, Epoch, RegionKind};
use cell_wal::image::{BlockBuffer, ImageHeader, ImageReader, ImageWriter};
use cell_wal::sim::SimDisk;
use cell_wal::{LogOptions, Predecessor, Storage};

fn assert_golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == bytes, "{name} differs from the golden file: is this a new format version?");
}

#[test]
fn frames_of_version_1_have_the_golden_bytes() {
    let disk = SimDisk::new(1);
    let predecessor = Predecessor { epoch: Epoch(2), cut: Csn(1000) };
    let options = LogOptions { first_segment_bytes: small().segment_bytes, ..small() };
    let mut pair = Pair::create_after(&disk, options, 3, predecessor);
    pair.settle().unwrap();
    pair.put(RegionKind::Node, 13);
    pair.put(RegionKind::Extent, 24);
    pair.put(RegionKind::Node, 0);
    pair.settle().unwrap();
    pair.seal();
    let content = |kind| disk.content(&log_id(3).log(kind).segment(0).path()).unwrap();
    assert_golden("node-log-v1.bin", &content(RegionKind::Node)[..4 * 4096]);
    assert_golden("extent-log-v1.bin", &content(RegionKind::Extent)[..4 * 4096]);
}

#[test]
fn image_of_version_2_is_read() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let header = ImageHeader { pair: PAIR, epoch: Epoch(3), base: Csn(77), geometry: b"geometry".to_vec() };
    let mut writer = ImageWriter::create(Arc::clone(&storage), "pair-5/image", &header, 1).unwrap();
    writer.append(1, 9, 2, &[7; 3000]).unwrap();
    writer.append(2, 10, 1, b"does not shrink").unwrap();
    writer.finish(Csn(80)).unwrap();
    let written = disk.content("pair-5/image").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        assert_golden("image-v2.bin", &written);
    }
    // The file may differ with another version of zstd; what pins the format is that the golden one is read.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/image-v2.bin");
    let golden = std::fs::read(path).unwrap();
    let file = storage.open("golden", cell_wal::storage::Access::Create).unwrap();
    file.write_at(0, &golden).unwrap();
    let reader = ImageReader::open(&*storage, "golden").unwrap();
    assert_eq!(*reader.header(), header);
    assert_eq!((reader.summary().csn_max, reader.summary().items), (Csn(80), 3));
    let mut buffer = BlockBuffer::default();
    assert_eq!(reader.read(0, &mut buffer).unwrap(), &[7; 3000]);
    assert_eq!(reader.read(1, &mut buffer).unwrap(), b"does not shrink");
    assert_eq!((reader.blocks()[0].section, reader.blocks()[0].tag, reader.blocks()[0].items), (1, 9, 2));
    assert_eq!(golden[..4096], written[..4096], "the header does not depend on zstd");
}
