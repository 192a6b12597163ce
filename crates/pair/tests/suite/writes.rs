//! What a write leaves in log and memory, when it is shown, and what it gives back.

use cell_pair::PairOptions;
use cell_terms::{Csn, Durability};
use cell_tree::SearchResult;
use cell_wal::LogDevice;

use crate::owner::{GRACE_NS, OPTIONS, Owner, SLOT, key, value};

/// Without its result a write that its client repeats would be carried out twice. Many of these puts split
/// tree nodes: their results go with the last of several records.
#[test]
fn results_and_memory_are_after_a_crash_what_they_were() {
    const ENTRIES: usize = 150;
    let mut owner = Owner::new();
    for number in 0..ENTRIES {
        let csn = owner.put(&key(number), &value(number)).unwrap();
        assert_eq!(csn, owner.pair.appended(), "the last record's");
        if number % 16 == 0 {
            owner.settle();
        }
    }
    assert!(owner.pair.meganode_figures(SLOT).height > 1, "tree nodes were split");
    let deleted = owner.delete(&key(3)).unwrap();
    assert_eq!(deleted, owner.pair.appended());
    let nothing = owner.delete_nothing().unwrap();
    assert_eq!((nothing, owner.pair.appended()), (deleted.next(), deleted.next()));
    owner.settle();
    let found = |owner: &Owner| -> Vec<SearchResult> {
        (0..ENTRIES).map(|number| owner.search(SLOT, &key(number))).collect()
    };
    let before = found(&owner);
    let mut owner = owner.crash();
    assert_eq!(found(&owner), before, "replay makes what the owner's memory was");
    assert_eq!(owner.repeat_all(), ENTRIES + 2);
}

#[test]
fn write_is_shown_when_both_logs_have_it_and_not_before() {
    let mut owner = Owner::new();
    owner.put(b"before", b"value").unwrap();
    owner.settle();
    let (before, frames) = (owner.pair.visible(), owner.pair.log_counts().frame_bytes);
    assert!(frames > 0 && owner.pair.log_bytes_pending() == 0);
    let written = owner.put(b"key", b"value").unwrap();
    let shown = |owner: &Owner| {
        let marks = owner.pair.source().node.watermark();
        [owner.pair.durable(), owner.pair.visible(), marks.durable, marks.visible]
    };
    assert_eq!(shown(&owner), [before; 4]);
    assert!(!owner.pair.is_idle() && !owner.pair.is_log_busy(), "it waits");
    assert!(owner.pair.log_bytes_pending() > 5);
    assert_eq!(owner.pair.submit(&mut owner.device).unwrap(), Some(written));
    owner.device.submit().unwrap();
    assert!(!owner.pair.is_idle() && owner.pair.is_log_busy(), "it is on its way");
    let mut batches = Vec::new();
    while batches.is_empty() {
        assert_eq!(shown(&owner), [before; 4]);
        assert!(owner.disk.step(), "the disk has done all and nobody was answered");
        batches = owner.report();
    }
    assert_eq!(shown(&owner), [written; 4]);
    assert_eq!(batches[0].bytes, owner.pair.log_counts().frame_bytes - frames);
    assert!(owner.pair.is_idle() && !owner.pair.is_log_busy());
}

/// A split's step waits for the seal, and nobody else writes meanwhile.
#[test]
fn seal_that_is_wanted_is_written_without_another_write() {
    let mut owner = Owner::new();
    let written = owner.put(b"key", b"value").unwrap();
    owner.settle();
    assert!(owner.pair.sealed() < written);
    owner.pair.want_seal(written);
    owner.settle();
    assert_eq!(owner.pair.sealed(), written);
}

#[test]
fn pair_without_logs_counts_each_record_and_shows_it_at_once() {
    let mut owner = Owner::with(PairOptions { durability: Durability::None, ..OPTIONS });
    assert!(!owner.pair.has_log() && owner.pair.log_segments().is_none());
    for number in 0..40 {
        let before = owner.pair.appended();
        let written = owner.put(&key(number), &value(number)).unwrap();
        assert!(written >= Csn(before.0 + 2), "an extent's record and a tree node's");
        let marks = owner.pair.source().node.watermark();
        let shown = [owner.pair.appended(), owner.pair.durable(), owner.pair.sealed(), marks.visible];
        assert_eq!(shown, [written; 4]);
        let changed = owner.search(SLOT, &key(number)).csn_changed;
        assert!(before < changed && changed <= written);
    }
    assert!(owner.pair.is_idle() && owner.pair.submit(&mut owner.device).unwrap().is_none());
}

/// Until the record is durable a crash brings the old entry back, and until the grace period is over somebody
/// may read it.
#[test]
fn place_of_what_was_replaced_or_removed_is_used_again_when_that_is_durable_and_has_rested() {
    let mut owner = Owner::new();
    owner.put(b"key", &[7; 200]).unwrap();
    owner.settle();
    let (entries, bytes) = owner.pair.weight(SLOT);
    let live = |owner: &Owner| owner.pair.figures().extents_live_bytes;
    let before = live(&owner);
    assert!(entries == 1 && bytes >= 200 && owner.pair.figures().entries == 1);
    let mut now_ns = 5 * GRACE_NS;
    for (removed, expected) in [(false, before), (true, 0)] {
        let done = if removed { owner.delete(b"key") } else { owner.put(b"key", &[8; 200]) };
        let csn = done.unwrap();
        let figures = owner.pair.figures();
        let weight = if removed { (0, 0) } else { (1, bytes) };
        assert_eq!(owner.pair.weight(SLOT), weight);
        assert_eq!((figures.entries, figures.grace_bytes), (weight.0, bytes));
        assert!(owner.pair.has_resting_extents(csn) && !owner.pair.has_resting_extents(Csn(csn.0 - 1)));
        assert!(!owner.pair.reuse(now_ns) && !owner.pair.reuse(now_ns + GRACE_NS), "it is not durable");
        owner.settle();
        now_ns += 2 * GRACE_NS;
        assert!(!owner.pair.reuse(now_ns), "its grace period begins");
        assert!(!owner.pair.reuse(now_ns + GRACE_NS - 1));
        assert_eq!(owner.pair.figures().grace_bytes, bytes);
        assert!(owner.pair.reuse(now_ns + GRACE_NS));
        assert_eq!((owner.pair.figures().grace_bytes, live(&owner)), (0, expected));
        now_ns += 2 * GRACE_NS;
    }
}
