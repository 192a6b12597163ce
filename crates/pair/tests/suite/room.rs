//! What is done when a log has no room: nothing begins that may not find its place.

use cell_pair::{NoRoom, PairOptions, WriteError};

use crate::owner::{OPTIONS, Owner, SEGMENT_BYTES, SLOT, key, value};

const SECOND_NS: u64 = 1_000_000_000;

fn put(owner: &mut Owner) -> Result<(), NoRoom> {
    match owner.put(b"key", &[7; 4_000]) {
        Ok(_) => Ok(()),
        Err(WriteError::NoRoom(why)) => Err(why),
        Err(WriteError::Pair(error)) => panic!("{error}"),
    }
}

/// Puts so often that the segments of the extents' log fill up; why that ends, if it does.
fn put_often(owner: &mut Owner, puts: usize) -> Result<(), NoRoom> {
    for _ in 0..puts {
        let mut done = put(owner);
        // The batch was full, or a segment was asked for.
        for _ in 0..3 {
            if done == Err(NoRoom::LogBusy) {
                owner.settle();
                owner.rest();
                done = put(owner);
            }
        }
        done?;
    }
    Ok(())
}

/// A batch would come to be longer than its buffer.
#[test]
fn write_or_step_that_the_batch_has_no_room_for_waits_for_the_next_batch() {
    let mut owner = Owner::new();
    let mut puts = 0;
    let refused = loop {
        match put(&mut owner) {
            Ok(()) => puts += 1,
            Err(why) => break why,
        }
        assert!(puts < 100, "a batch has 64 KiB");
    };
    let appended = owner.pair.appended();
    assert_eq!((refused, puts > 10), (NoRoom::LogBusy, true));
    assert!(owner.pair.write_must_wait(SLOT, 4_000));
    assert_eq!(owner.pair.step_room(63 << 10), Err(NoRoom::LogBusy));
    assert_eq!(owner.pair.appended(), appended, "nothing was started");
    assert_eq!(owner.pair.no_room(), None, "that is no lack of room");
    owner.settle();
    assert_eq!((owner.pair.step_room(63 << 10), put(&mut owner)), (Ok(()), Ok(())));
}

#[test]
fn full_disk_keeps_puts_back_until_there_is_room_and_takes_deletes() {
    let mut owner = Owner::new();
    owner.put(b"other", b"value").unwrap();
    owner.settle();
    assert!(!owner.pair.is_log_short() && !owner.pair.needs_reclaim());
    owner.disk.set_capacity(Some(owner.disk.used()));
    assert_eq!(put_often(&mut owner, 2_000), Err(NoRoom::DiskFull));
    assert!(owner.pair.is_log_short() && owner.pair.can_be_reclaimed() && owner.pair.needs_reclaim());
    // A checkpoint may make room: then writes wait for it.
    assert!(!owner.pair.set_reclaim_expected(true));
    assert_eq!(put(&mut owner), Err(NoRoom::LogBusy));
    assert!(owner.pair.set_reclaim_expected(false));
    assert_eq!(put(&mut owner), Err(NoRoom::DiskFull));
    owner.delete(b"other").unwrap();
    owner.settle();
    owner.pair.log_tick(1, &mut owner.device).unwrap();
    owner.settle();
    assert_eq!(owner.pair.no_room(), Some(NoRoom::DiskFull), "what a delete finds room for is no room");

    owner.disk.set_capacity(None);
    for seconds in 2..5 {
        owner.pair.log_tick(seconds * SECOND_NS, &mut owner.device).unwrap();
        owner.settle();
    }
    assert_eq!(owner.pair.no_room(), None);
    assert!(!owner.pair.is_log_short() && !owner.pair.needs_reclaim());
    assert_eq!(put(&mut owner), Ok(()));
}

#[test]
fn checkpoint_gives_the_filled_segments_of_a_log_back() {
    let mut owner = Owner::new();
    assert_eq!(owner.pair.log_bytes_closed(), (0, SEGMENT_BYTES));
    assert_eq!(put_often(&mut owner, 600), Ok(()));
    owner.settle();
    assert!(owner.pair.log_bytes_closed().0 >= SEGMENT_BYTES, "600 puts take more than two segments");
    let base = owner.pair.durable();
    owner.pair.release_log(base, &mut owner.device);
    owner.settle();
    assert_eq!((owner.pair.log_bytes_closed().0, owner.pair.checkpointed()), (0, base));
}

/// If nobody notes it, the meganode is split when a put is refused for it.
#[test]
fn meganode_is_noted_by_the_split_of_a_tree_node_that_makes_it_nearly_full() {
    let mut owner = Owner::with(PairOptions { split_fill_percent: 10, ..OPTIONS });
    let (mut before, mut noted) = (1, 0);
    for number in 0..600 {
        owner.put(&key(number), &value(number)).unwrap();
        owner.settle();
        let figures = owner.pair.meganode_figures(SLOT);
        let is_full = figures.nodes * 10 >= figures.nodes_all;
        let expected = (is_full && figures.nodes > before).then_some(SLOT);
        assert_eq!(owner.pair.is_nearly_full(SLOT), is_full);
        assert_eq!(owner.pair.take_nearly_full(), expected, "{} tree nodes", figures.nodes);
        noted += usize::from(expected.is_some());
        before = figures.nodes;
    }
    assert!(noted > 3, "{before} tree nodes, noted {noted} times");
}
