//! What a permitted client can do with the files that a server hands it, beyond reading them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]
#![allow(unsafe_code)] // mappings that are tried: they are never written or read through a reference

use std::ffi::c_void;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cell_fabric::{OneSided, ShmEndpoint, ShmOptions, SocketName};
use cell_memory::{HugePages, Region, RegionOptions, RegionSpec};
use cell_terms::{Epoch, PairId};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::harness::{Peer, socket_name};

const NOBODY: u32 = 65_534;
const REGION_BYTES: u64 = 8 << 20;
/// Where nothing was populated.
const HOLE: u64 = 4 << 20;
const PAGE: usize = 4_096;
const ROLE: &str = "CELL_FABRIC_HANDED_OUT";

/// A mapping of a file's part; none if the kernel refuses it.
fn map(
    file: &OwnedFd,
    protection: ProtFlags,
    flags: MapFlags,
    from: u64,
    bytes: usize,
) -> Option<*mut c_void> {
    let null = std::ptr::null_mut();
    // SAFETY: the kernel chooses a place where nothing is mapped.
    unsafe { rustix::mm::mmap(null, bytes, protection, MapFlags::SHARED | flags, file, from) }.ok()
}

fn unmap(at: *mut c_void, bytes: usize) {
    // SAFETY: it is a mapping of this file's, which nobody has a reference to.
    unsafe { rustix::mm::munmap(at, bytes) }.unwrap();
}

/// What of all that changes a file, or takes memory for it, was not refused.
fn attempt(file: &OwnedFd, hole: u64) -> Vec<&'static str> {
    let mut done = Vec::new();
    let mut note = |what, worked: bool| done.extend(worked.then_some(what));
    note("write", rustix::io::pwrite(file, &[1; 8], hole).is_ok());
    note("ftruncate", rustix::fs::ftruncate(file, 0).is_ok());
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    note("PUNCH_HOLE", rustix::fs::fallocate(file, punch, 0, PAGE as u64).is_ok());
    note("fallocate", rustix::fs::fallocate(file, FallocateFlags::empty(), hole, PAGE as u64).is_ok());
    let beyond = rustix::fs::fstat(file).unwrap().st_size.cast_unsigned();
    let grow = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, beyond, PAGE as u64);
    note("fallocate beyond the end", grow.is_ok());
    let writable = map(file, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty(), hole, PAGE);
    note("mmap for writing", writable.is_some());
    writable.inspect(|at| unmap(*at, PAGE));
    if let Some(at) = map(file, ProtFlags::READ, MapFlags::empty(), hole, PAGE) {
        // SAFETY: the mapping is this function's own; nobody reads or writes through it.
        let protected = unsafe { rustix::mm::mprotect(at, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
        note("mprotect", protected.is_ok());
        // SAFETY: as above.
        let removed = unsafe { rustix::mm::madvise(at, PAGE, Advice::LinuxRemove) };
        note("MADV_REMOVE", removed.is_ok());
        unmap(at, PAGE);
    }
    done
}

fn reopen(file: &OwnedFd) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A connection as a client makes it that is no endpoint; what it is handed: ledger and region.
fn take_files(name: SocketName, key: u64, mut turn: impl FnMut()) -> [OwnedFd; 2] {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = name.as_str().strip_prefix('@').unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    let mut hello = b"CELLFABR".to_vec();
    hello.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0]);
    hello.extend_from_slice(&[0; 16 + 4]);
    let mut last_of = |packet: &[u8]| {
        rustix::net::send(&socket, packet, SendFlags::NOSIGNAL).unwrap();
        loop {
            turn();
            let mut bytes = [0; 4_096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            if rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::empty()).is_ok() {
                let files = ancillary.drain().flat_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(files) => files.collect(),
                    _ => Vec::new(),
                });
                return files.last().expect("a file comes with it");
            }
        }
    };
    [last_of(&hello), last_of(&key.to_le_bytes())]
}

/// A server that hands out a region of which the beginning is populated.
fn server() -> (Peer<ShmEndpoint>, SocketName, Region, u64) {
    let name = socket_name();
    let options = ShmOptions { one_sided: true, users: vec![NOBODY], ..ShmOptions::default() };
    let mut server = ShmEndpoint::listen(name, &options).unwrap();
    let spec = RegionSpec::extent(PairId(1), Epoch(1), REGION_BYTES).unwrap();
    let (region, _writer) = Region::create(&spec, RegionOptions::from(HugePages::Small)).unwrap();
    region.populate_to(HOLE / 2).unwrap();
    let key = server.register(&region).unwrap().0;
    (Peer::new(server), name, region, key)
}

#[test]
fn share_descriptors_change_nothing_and_take_no_memory() {
    let (mut server, name, region, key) = server();
    let resident = region.resident_bytes();
    let [ledger, file] = take_files(name, key, || _ = server.turn());
    assert_eq!((attempt(&ledger, 0), attempt(&file, HOLE)), (vec![], vec![]));
    assert_eq!(region.resident_bytes(), resident);
    // A file can be opened anew by whoever may, by its mode: root, always. The seals hold then too, but not
    // against memory that is taken.
    if !rustix::process::geteuid().is_root() {
        assert!(reopen(&ledger).is_none() && reopen(&file).is_none());
        return;
    }
    for (file, hole) in [(&ledger, 0), (&file, HOLE)] {
        assert_eq!(attempt(&reopen(file).unwrap(), hole), ["fallocate"]);
    }
    let file = OwnedFd::from(region.share().unwrap());
    assert_eq!(attempt(&file, HOLE), Vec::<&str>::new());
}

/// What is wrong with the ledger and with the region as they are handed out: what their modes permit besides
/// that their owner reads them, and what was not refused.
fn faults_of_what_is_handed_out() -> [(u32, Vec<&'static str>); 2] {
    let (mut server, name, _region, key) = server();
    let [ledger, file] = take_files(name, key, || _ = server.turn());
    [(ledger, 0), (file, HOLE)].map(|(file, hole)| {
        let mode = rustix::fs::fstat(&file).unwrap().st_mode;
        (mode & 0o777 & !0o400, attempt(&file, hole))
    })
}

#[test]
fn share_files_are_of_a_mode_by_which_nobody_opens_them_anew() {
    assert_eq!(faults_of_what_is_handed_out(), [(0, vec![]), (0, vec![])]);
}

#[test]
#[cfg(debug_assertions)]
fn mutants_of_what_is_handed_out_are_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        for mutant in [Mutant::HandedReopenable, Mutant::HandedWritable] {
            plant(Some(mutant));
            let faults = faults_of_what_is_handed_out();
            plant(None);
            for (others, done) in faults {
                let caught = if mutant == Mutant::HandedReopenable { others != 0 } else { !done.is_empty() };
                assert!(caught, "{} was not caught: {others:o} {done:?}", mutant.name());
            }
            println!("mutant {} caught by cell-fabric's permitted client", mutant.name());
        }
    });
}

/// Root may open every file anew, and a file's owner may let itself: this is about the others on the list.
#[test]
fn share_descriptors_are_not_opened_anew_by_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (mut server, name, region, key) = server();
    let resident = region.resident_bytes();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "shm_handed_out::child_role", "--nocapture"])
        .env(ROLE, format!("{key} {name}"))
        .uid(NOBODY);
    let Ok(child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        println!("the test's own binary cannot be run by another user");
        return;
    };
    let waiting = std::thread::spawn(move || child.wait_with_output().unwrap());
    while !waiting.is_finished() {
        server.turn();
        std::thread::yield_now();
    }
    let said = String::from_utf8(waiting.join().unwrap().stdout).unwrap();
    assert!(said.contains("not refused: [] [] opened anew: false false"), "{said}");
    assert_eq!(region.resident_bytes(), resident);
}

/// Not a test: what this binary does as somebody's child.
#[test]
fn child_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let (key, name) = role.split_once(' ').unwrap();
    let files = take_files(SocketName::new(name).unwrap(), key.parse().unwrap(), std::thread::yield_now);
    let [ledger, region] = &files;
    let opened = files.each_ref().map(|file| {
        // Not its owner, so it cannot let itself either.
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(0o666));
        reopen(file).inspect(|file| println!("anew: {:?}", attempt(file, 0))).is_some()
    });
    let refused = (attempt(ledger, 0), attempt(region, HOLE));
    println!("not refused: {:?} {:?} opened anew: {} {}", refused.0, refused.1, opened[0], opened[1]);
}

/// A limit, and ARCHITECTURE.md says so: whoever may read a region may touch all of it, and a page that is
/// touched is there.
#[test]
fn share_reading_what_was_never_populated_takes_its_memory() {
    let (mut server, name, region, key) = server();
    let resident = region.resident_bytes();
    let [_, file] = take_files(name, key, || _ = server.turn());
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&file, &mut bytes, HOLE), Ok(8));
    assert_eq!(region.resident_bytes(), resident, "a read by copy takes none");
    let at = map(&file, ProtFlags::READ, MapFlags::POPULATE, HOLE, 16 * PAGE).unwrap();
    assert_eq!(region.resident_bytes(), resident + 16 * PAGE as u64);
    unmap(at, 16 * PAGE);
}
