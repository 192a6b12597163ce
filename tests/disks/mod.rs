//! Disks that fail under real nodes: power cuts that lose what was not flushed, writes that fail, flushes
//! that fail.

mod flushes;
mod several;
#[cfg(debug_assertions)]
mod started_early;

use std::time::Duration;

use cell_tests::dice::Dice;
use cell_tests::faulty_disk::{Fault, FaultyDisk, FileSystem};
use cell_tests::ledger::Ledger;
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

const DISK_MEBIBYTES: u64 = 512;
/// Writes that must be acknowledged before a fault.
const WRITES_MIN: u64 = 10;
/// What the moments of cuts are drawn for.
const MOMENTS: u64 = 1 << 32;
/// Cuts within which the twin must be caught.
const TWIN_CUTS: u64 = 10;
/// A write survives the whole test, however often the disk goes away.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many power cuts this run demands of ext4 with a sync of each write, and of each other case.
fn cuts() -> u32 {
    Repeats { plain: 2, quick: 5, full: 25, long: 150 }.of_this_run()
}

fn cuts_of_others() -> u32 {
    Repeats { plain: 1, quick: 3, full: 7, long: 150 }.of_this_run()
}

#[allow(clippy::disallowed_methods, reason = "the moment of a cut is real time")]
fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn power_cut_with_a_volatile_cache_keeps_everything_acknowledged() {
    power_cuts(FileSystem::Ext4, "per_write", cuts());
}

#[test]
fn power_cut_with_one_flush_for_all_logs_keeps_everything_acknowledged() {
    power_cuts(FileSystem::Ext4, "per_device", cuts_of_others());
}

#[test]
fn power_cut_on_xfs_keeps_everything_acknowledged() {
    power_cuts(FileSystem::Xfs, "per_write", cuts_of_others());
}

#[test]
fn power_cut_on_xfs_with_one_flush_for_all_logs_keeps_everything_acknowledged() {
    power_cuts(FileSystem::Xfs, "per_device", cuts_of_others());
}

/// So many cuts under a node whose logs are synced so; nothing that was acknowledged may be lost.
fn power_cuts(file_system: FileSystem, log_flush: &str, cuts: u32) {
    let Some(mut disk) = FaultyDisk::with(file_system, Fault::VolatileCache, DISK_MEBIBYTES) else { return };
    // Each life prepares segments, every byte of which goes through the disk's processes.
    let sizes = ["--log-segment-bytes", "1MiB", "--checkpoint-log-bytes-min", "16MiB"];
    let flags = [&sizes[..], &["--log-flush", log_flush]].concat();
    let mut server = Server::prepared(&disk.mount().join("data"), &flags);
    // Its log is not on the disk that goes away.
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    server.log_to(log.path());
    server.resume();
    let traffic = Traffic::new(server.address());
    let ledger: Ledger = std::thread::scope(|scope| {
        let writer = scope.spawn(|| traffic.keep_ledger(0, PATIENCE));
        let ending = traffic.ending();
        let mut moments = Dice::drawn(MOMENTS);
        for _ in 0..cuts {
            traffic.wait_acknowledged(WRITES_MIN);
            wait(moments.below(400));
            disk.unplug();
            server.kill_all();
            disk.detach();
            disk.plug();
            server.resume();
        }
        drop(ending);
        writer.join().expect("a writer did not panic")
    });
    let keys = traffic.verify(&ledger);
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    server.kill_all();
    let (acknowledged, unknown) = ledger.counts();
    println!("{cuts} cuts, {keys} keys verified, {acknowledged} writes acknowledged, {unknown} unknown");
    assert!(acknowledged >= u64::from(cuts) * WRITES_MIN, "there was load: {acknowledged} writes");
}

/// The harness's twin that must fail: with `async` a node acknowledges what only the disk's cache has, or not
/// even that.
#[test]
fn power_cut_of_an_async_node_is_caught_by_the_same_check() {
    let Some(mut disk) = FaultyDisk::new(Fault::VolatileCache, DISK_MEBIBYTES) else { return };
    let flags = ["--durability", "async", "--log-segment-bytes", "1MiB"];
    let mut server = Server::prepared(&disk.mount().join("data"), &flags);
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    server.log_to(log.path());
    server.resume();
    let mut moments = Dice::drawn(MOMENTS);
    let caught = (0..TWIN_CUTS).any(|cut| {
        let traffic = Traffic::new(server.address());
        let ledger = std::thread::scope(|scope| {
            let writer = scope.spawn(|| traffic.keep_ledger(cut, Duration::from_secs(1)));
            let ending = traffic.ending();
            traffic.wait_acknowledged(WRITES_MIN);
            wait(moments.below(400));
            disk.unplug();
            server.kill_all();
            drop(ending);
            writer.join().expect("a writer did not panic")
        });
        disk.detach();
        disk.plug();
        server.resume();
        let check = std::panic::AssertUnwindSafe(|| traffic.verify(&ledger));
        std::panic::catch_unwind(check).is_err()
    });
    assert!(caught, "{TWIN_CUTS} cuts of a node that acknowledges early, and nobody noticed");
    server.kill_all();
}

/// Whether a cluster's log has why it ended when its disk failed: the node's log, or the coordinator's store
/// on the same disk, whichever wrote first.
fn says_why(log: &str) -> bool {
    let reasons = ["a write or sync of a log failed", "the coordinator's store failed"];
    reasons.iter().any(|reason| log.contains(reason)) && !log.contains("panicked")
}

#[test]
fn write_error_stops_acknowledging_and_a_restart_has_everything() {
    let Some(mut disk) = FaultyDisk::new(Fault::WriteErrors, DISK_MEBIBYTES) else { return };
    let mut server = Server::prepared(&disk.mount().join("data"), &["--restart", "off"]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    server.log_to(log.path());
    server.resume();
    let traffic = Traffic::new(server.address());
    let ledger = std::thread::scope(|scope| {
        let writer = scope.spawn(|| traffic.keep_ledger(0, Duration::from_secs(2)));
        let ending = traffic.ending();
        traffic.wait_acknowledged(WRITES_MIN);
        disk.fail(true);
        // A failed write poisons the log: the node stops by itself and says why; nothing is retried.
        let code = server.wait_end();
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        drop(ending);
        writer.join().expect("a writer did not panic")
    });
    assert!(says_why(&server.log()), "{}", server.log());
    // An error of the file system's own writes makes it read-only until it is mounted anew.
    disk.unplug();
    disk.detach();
    disk.fail(false);
    disk.plug();
    server.resume();
    assert!(traffic.verify(&ledger) > 0);
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    server.kill_all();
}
