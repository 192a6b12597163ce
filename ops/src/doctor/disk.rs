//! The log root: what a node relies on there, tried with files of its own; and how fast its disk is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::finding::{Finding, milliseconds, percentiles};
use super::left_over;
use crate::folders::Folders;
use crate::output::number::bytes;

const BLOCK: usize = 4096;
/// Writes that are measured, unless they take longer than this together.
const WRITES: usize = 200;
const WRITES_FOR: Duration = Duration::from_secs(5);
/// A commit takes one such write, in each of two logs.
const SLOW: Duration = Duration::from_millis(20);
/// How long a name may take to be seen elsewhere.
const NAMES_WITHIN: Duration = Duration::from_secs(10);
const NAMES_SOON: Duration = Duration::from_secs(1);
/// Times that a block is written here and read there.
const ROUNDS: u8 = 20;
const LOCAL: &str =
    "use a local disk with ext4 or XFS, or a shared file system that is mounted for direct IO";

const MOUNT_AGAIN: &str =
    "mount its file system a second time, at another path, and give the log root there; see docs/LOG-ROOT.md";

/// File systems of a network, which are no place for locks and sockets.
const NETWORKS: [(i64, &str); 5] = [
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "CephFS"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
];

/// Looks; a log root that is not made yet is none to look at.
pub(super) fn look(folders: &Folders, beside: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![data_dir(folders.data())];
    let root = folders.log_root();
    if !root.is_dir() {
        let seen = format!("{} is not there yet", root.display());
        findings.push(Finding::doubtful(
            "log root",
            seen,
            "make the folder, or start the node once; then ask again",
        ));
        return findings;
    }
    findings.push(room(root));
    let own = Probe::in_folder(root);
    match own.try_all() {
        Ok(found) => findings.extend(found),
        Err(error) => {
            let seen = format!("{} cannot be written: {error}", root.display());
            findings.push(Finding::bad("log root", seen, write_next(&error)));
            return findings;
        }
    }
    match beside {
        Some(beside) if is_same_mount(root, beside) => {
            let seen = format!("{} is the log root by the same mount: that proves nothing", beside.display());
            findings.push(Finding::doubtful("seen beside", seen, MOUNT_AGAIN));
        }
        Some(beside) => findings.push(own.seen_beside(beside)),
        None => {}
    }
    findings
}

/// Locks and sockets are one host's.
fn data_dir(folder: &Path) -> Finding {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let found = rustix::fs::statfs(there).map(|found| found.f_type);
    let network = found.ok().and_then(|kind| NETWORKS.iter().find(|(of, _)| *of == kind));
    match network {
        Some((_, name)) => {
            let seen = format!("{} is on {name}", folder.display());
            Finding::doubtful(
                "data_dir",
                seen,
                "give a folder on a local disk; only log_root is to be shared",
            )
        }
        None => Finding::well("data_dir", format!("{} is on a local disk", folder.display())),
    }
}

fn room(root: &Path) -> Finding {
    const NEXT: &str = "free some, or give a larger disk: at the last of it writes are refused";
    let Ok(found) = rustix::fs::statvfs(root) else {
        return Finding::doubtful("free space", "the file system does not say", NEXT);
    };
    let [all, free] = [found.f_blocks, found.f_bavail].map(|blocks| blocks.saturating_mul(found.f_frsize));
    let seen = format!("{} of {} free", bytes(free), bytes(all));
    match free {
        free if free < 64 << 20 => Finding::bad("free space", seen, NEXT),
        free if free < all / 10 => Finding::doubtful("free space", seen, NEXT),
        _ => Finding::well("free space", seen),
    }
}

/// What helps where the log root cannot be written.
fn write_next(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ROFS) => "its file system is mounted for reading alone: mount it for writing",
        Some(Errno::NOSPC | Errno::DQUOT) => "free some, or give a larger disk, or a larger quota",
        Some(Errno::ACCESS | Errno::PERM) => "give the folder to the user that runs the node",
        _ => "look at the file system that it is on, and at the kernel's log",
    }
}

/// Whether a folder is the same one by the same mount: what is written to one goes by the caches by which it
/// is read in the other. A second mount of it, a bind mount too, has another id. Where the kernel says none
/// (before Linux 5.8), it is the same.
fn is_same_mount(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let mask = StatxFlags::INO | StatxFlags::MNT_ID;
        let found = statx(CWD, path, AtFlags::empty(), mask).ok()?;
        Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino, found.stx_mnt_id))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Removes this process's files.
pub(super) fn remove_own(folder: &Path) {
    for which in ["old", "new", "direct", "shared"] {
        let _ = fs::remove_file(folder.join(left_over::name(which))); // one that was not made is not there
    }
}

/// Files of this process alone, removed in the end.
struct Probe {
    folder: PathBuf,
}

impl Probe {
    fn in_folder(folder: &Path) -> Probe {
        Probe { folder: folder.to_owned() }
    }

    fn path(&self, which: &str) -> PathBuf {
        self.folder.join(left_over::name(which))
    }

    fn try_all(&self) -> io::Result<Vec<Finding>> {
        fs::write(self.path("old"), "old")?;
        left_over::remove(&self.folder, &self.path("old"));
        fs::write(self.path("new"), "new")?;
        let renamed = fs::rename(self.path("new"), self.path("old"));
        let is_whole = renamed.is_ok()
            && fs::read(self.path("old"))? == b"new"
            && fs::metadata(self.path("new")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let rename = if is_whole {
            Finding::well("rename", "a file takes another one's name at once")
        } else {
            Finding::bad("rename", format!("a file does not take another one's name: {renamed:?}"), LOCAL)
        };
        let (direct, file) = match open(&self.path("direct"), OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT)
        {
            Ok(file) => (Finding::well("direct IO", "taken"), file),
            Err(errno) => {
                let seen = format!("refused ({errno}): logs go through the page cache");
                let file = open(&self.path("direct"), OFlags::CREATE | OFlags::RDWR)?;
                (Finding::doubtful("direct IO", seen, LOCAL), file)
            }
        };
        Ok(vec![rename, direct, latency(&file)])
    }

    /// Whether what was written here is there, as soon as the write has ended, under another path.
    fn seen_beside(&self, beside: &Path) -> Finding {
        const NAME: &str = "seen beside";
        const NEXT: &str = "mount it without caches of attributes, names and data; see docs/LOG-ROOT.md";
        let there = beside.join(left_over::name("shared"));
        let write = |fill: u8, flags: OFlags| -> rustix::io::Result<()> {
            let file = open(&self.path("shared"), flags | OFlags::RDWR)?;
            rustix::io::pwrite(&file, Block::of(fill).bytes(), 0).map(drop)
        };
        // A mount that keeps what is not there in mind shows it.
        let _ = there.try_exists();
        let started = Instant::now();
        if let Err(errno) = write(0, OFlags::CREATE) {
            return Finding::bad(NAME, format!("cannot write: {errno}"), LOCAL);
        }
        let written = Instant::now();
        while !there.exists() {
            if started.elapsed() > NAMES_WITHIN {
                let seen = format!("{} is not there after {NAMES_WITHIN:?}", there.display());
                return Finding::bad(NAME, seen, "name the same log root, under another path of this host");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let names = written.elapsed();
        for fill in 1..=ROUNDS {
            // It is made once alone: a signal may have removed it.
            let read = write(fill, OFlags::empty()).and_then(|()| read_block(&there));
            match read {
                Ok(found) if found.iter().all(|byte| *byte == fill) => {}
                Ok(_) => {
                    let seen = "a read after a completed write gave what was there before";
                    return Finding::bad(NAME, seen, NEXT);
                }
                Err(errno) => return Finding::bad(NAME, format!("cannot read: {errno}"), NEXT),
            }
        }
        let seen = format!("names after {}, {ROUNDS} of {ROUNDS} writes at once", milliseconds(names));
        if names > NAMES_SOON { Finding::doubtful(NAME, seen, NEXT) } else { Finding::well(NAME, seen) }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        remove_own(&self.folder);
    }
}

/// How long writes take that are on stable storage when they end.
fn latency(file: &OwnedFd) -> Finding {
    const NEXT: &str = "a faster disk, or one with power loss protection; commits wait for it";
    let (block, started) = (Block::of(1), Instant::now());
    let mut times = Vec::with_capacity(WRITES);
    while times.len() < WRITES && started.elapsed() < WRITES_FOR {
        let before = Instant::now();
        if let Err(errno) = rustix::io::pwrite(file, block.bytes(), 0) {
            return Finding::bad("sync", format!("a write that syncs itself failed: {errno}"), LOCAL);
        }
        times.push(before.elapsed());
    }
    let Some((middle, late)) = percentiles(&mut times) else {
        return Finding::doubtful("sync", "no write was in time", NEXT);
    };
    let (middle_ms, late_ms) = (milliseconds(middle), milliseconds(late));
    let seen = format!("{} writes of 4 KiB, each synced: p50 {middle_ms}, p99 {late_ms}", times.len());
    if late > SLOW { Finding::doubtful("sync", seen, NEXT) } else { Finding::well("sync", seen) }
}

/// A file whose writes are on stable storage when they end.
fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::DSYNC | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))
}

/// Past the page cache, where that can be.
fn read_block(path: &Path) -> rustix::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty())
        .or_else(|_| rustix::fs::open(path, flags, Mode::empty()))?;
    let mut block = Block::of(0);
    let count = rustix::io::pread(&file, block.bytes_mut(), 0)?;
    if count == BLOCK { Ok(block.bytes().to_vec()) } else { Err(rustix::io::Errno::IO) }
}

/// A block in memory where direct IO takes it.
struct Block {
    memory: Vec<u8>,
    at: usize,
}

impl Block {
    fn of(fill: u8) -> Block {
        let memory = vec![fill; 2 * BLOCK];
        let at = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Block { memory, at }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.at..self.at + BLOCK]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    fn of<'f>(findings: &'f [Finding], name: &str) -> &'f Finding {
        findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}: {findings:?}"))
    }

    #[test]
    fn look_tries_the_log_root_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::within(folder.path());
        assert_eq!(of(&look(&folders, None), "log root").health, Health::Doubtful);
        assert!(!folders.log_root().exists(), "it is not made");
        fs::create_dir(folders.log_root()).unwrap();
        let findings = look(&folders, Some(folders.log_root()));
        assert_eq!(of(&findings, "rename").health, Health::Well);
        let same = of(&findings, "seen beside");
        assert!(same.health == Health::Doubtful && same.seen.contains("the same mount"), "{same:?}");
        assert!(of(&findings, "sync").seen.contains("p99"), "{findings:?}");
        assert_eq!(fs::read_dir(folders.log_root()).unwrap().count(), 0);
    }

    #[test]
    fn seen_beside_within_one_folder_sees_all_writes() {
        let folder = tempfile::tempdir().unwrap();
        let finding = Probe::in_folder(folder.path()).seen_beside(folder.path());
        assert_eq!(finding.health, Health::Well, "{finding:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn is_same_mount_of_a_link_and_not_of_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, link] = ["one", "other", "link"].map(|name| folder.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        assert!(is_same_mount(&one, &link) && !is_same_mount(&one, &other));
        assert!(!is_same_mount(&one, &folder.path().join("none")));
    }

    /// All of them were advised to give the folder to the user.
    #[test]
    fn write_next_goes_by_what_the_system_says() {
        let next = |errno: Errno| write_next(&io::Error::from(errno));
        assert!(next(Errno::ROFS).contains("mount it for writing"));
        assert!(next(Errno::NOSPC).contains("free some") && next(Errno::ACCESS).contains("to the user"));
        assert!(next(Errno::IO).contains("kernel's log"));
    }

    #[test]
    fn look_at_a_root_that_cannot_be_written_is_bad() {
        let probe = Probe::in_folder(Path::new("/proc"));
        assert!(probe.try_all().is_err());
    }

    #[test]
    fn seen_beside_of_a_file_with_other_bytes_is_bad() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::write(there.path().join(left_over::name("shared")), [9; BLOCK]).unwrap();
        let finding = Probe::in_folder(here.path()).seen_beside(there.path());
        assert_eq!(finding.health, Health::Bad, "{finding:?}");
        assert!(finding.seen.contains("what was there before"), "{finding:?}");
    }
}
