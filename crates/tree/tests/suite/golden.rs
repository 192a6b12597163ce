//! The bytes of tree nodes and changes, pinned. A difference here is a new format version: memory, logs and
//! images of the old one cannot be read any more.
//!
//! To write the file anew after such a step: `CELL_GOLDEN=write cargo test -p cell-tree --test golden`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use crate::harness::{SLOT, Tree, entry, geometry};
use cell_terms::{Csn, Words};
use cell_tree::{Change, FORMAT_VERSION, Image, NODE_BYTES, NodeIndex, TreeNodeState, apply};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/format-2.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.chunks(32).fold(String::new(), |mut text, line| {
        line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
        text
    })
}

/// A small tree of each node size, built by every kind of change: short and long keys, zeros, replacements,
/// garbage, compaction, leaf and inner splits, push-downs, removals.
fn tree(node_bytes: usize) -> Tree {
    let mut tree = Tree::new(geometry(node_bytes, 64).with_node_crc(node_bytes == 1024));
    let keys = node_bytes / 16;
    for i in 0..keys {
        let key = format!("{:03}{}", i * 37 % keys, "-long".repeat(i % 7));
        tree.put(key.as_bytes(), entry(i as u64)).unwrap();
    }
    for key in [&b"\0"[..], b"\0\0", b"001", b"001\0", b"001\0\0", b"001\0\0\0\0\0"] {
        tree.put(key, entry(1 << 33)).unwrap();
    }
    for i in (0..keys).step_by(5) {
        let key = format!("{:03}{}", i * 37 % keys, "-long".repeat(i % 7));
        tree.remove(key.as_bytes()).unwrap();
    }
    for i in 0..keys {
        tree.put(format!("ascending {i:06}").as_bytes(), entry(i as u64)).unwrap();
    }
    tree
}

fn golden() -> String {
    let mut text = format!("format version {FORMAT_VERSION}\n");
    for node_bytes in NODE_BYTES {
        let mut tree = tree(node_bytes);
        let kinds = |bytes: &[u8]| bytes[0];
        for kind in 1..=5 {
            // Of fills only the shortest: the nodes below show the others.
            let of_kind = tree.log.iter().filter(|(_, bytes)| kinds(bytes) == kind);
            let (csn, bytes) = of_kind.min_by_key(|(_, bytes)| bytes.len()).unwrap();
            write!(text, "\n{node_bytes}: change of kind {kind}, {csn}\n{}", hex(bytes)).unwrap();
        }
        let mark = Change::Mark { node: NodeIndex(1), state: TreeNodeState::Free };
        apply(&mut &*tree.memory, tree.geometry, SLOT, &mark, tree.csn.next());
        tree.csn = tree.csn.next();
        for node in 0..tree.allocator.high_water().0.min(4) {
            let base = tree.geometry.node_offset(SLOT.index, NodeIndex(node)) / 8;
            let words = (0..tree.geometry.node_words()).map(|i| (&*tree.memory).load(base + i));
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            write!(text, "\n{node_bytes}: node {node}\n{}", hex(&bytes)).unwrap();
        }
    }
    let mark = Change::Mark { node: NodeIndex(0x0102_0304), state: TreeNodeState::Valid };
    let mut bytes = Vec::new();
    mark.encode(&mut bytes);
    write!(text, "\nmark\n{}", hex(&bytes)).unwrap();
    let router = cell_tree::empty_router(geometry(512, 8));
    let bytes: Vec<u8> = router.iter().flat_map(|word| word.to_le_bytes()).collect();
    write!(text, "\n512: root of an empty router\n{}", hex(&bytes)).unwrap();
    text
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let text = golden();
    if std::env::var_os("CELL_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(FILE).parent().unwrap()).unwrap();
        std::fs::write(FILE, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(FILE).unwrap();
    for (line, (ours, theirs)) in text.lines().zip(pinned.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of {FILE}", line + 1);
    }
    assert_eq!(text.len(), pinned.len());
}

#[test]
fn image_leaves_out_the_free_middle() {
    let geometry = geometry(1024, 8);
    let words = cell_tree::empty_root(geometry);
    let fill = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&words) };
    assert!(fill.encoded_len() < 100, "{}", fill.encoded_len());
    let mut bytes = Vec::new();
    fill.encode(&mut bytes);
    assert_eq!(Change::decode(&bytes), Ok(fill));
    assert_eq!(Csn(1).next(), Csn(2));
}
