//! Whether one flush surely covers all logs of a log root: what is known of its file system and its disk.
//!
//! A fdatasync of one file of ext4 or XFS over one block device sends that device one flush. It covers each
//! write to the device that had completed before, whichever file it went to, if nothing but those bytes had
//! to become stable:
//!
//! - the write went past the page cache. That a file opens with O_DIRECT does not show it: ext4 takes the
//!   flag and goes through the cache where it journals data or encrypts. The kernel says since Linux 6.1
//!   (statx);
//! - the blocks were the file's own, and had been written: segments are zero-filled and synced ahead. Where
//!   files can share blocks (XFS with reflink), a copy of a log by `cp` shares them, and the next write of
//!   the log goes to other blocks, which the file has on stable storage only once *it* is synced;
//! - the file system sends flushes at all, and to the device that has the data.
//!
//! GlusterFS, NFS, FUSE, overlays, btrfs and the rest promise none of it: there each write is synced itself.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags, ioctl_ficlone, major, makedev, minor, statx};
use rustix::io::Errno as SystemErrno;

use crate::error::StorageError;
use crate::flush_unfit::FlushUnfit;
use crate::real::RealStorage;

/// Where this process's mounts are listed.
const MOUNTS: &str = "/proc/self/mountinfo";
/// The file systems of which it is known.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// Alignment that logs' writes have.
const ALIGN: u32 = 4096;

/// A log root whose disk one flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushGround {
    /// The number of its device.
    pub(crate) device: u64,
    /// Its kind.
    pub file_system: &'static str,
    /// Whether its files can share blocks: then it covers them only while nobody makes a copy that does.
    pub shares_blocks: bool,
}

impl FlushGround {
    /// Looks at a log root. `whole` is a file in it of a block, `folder` one in which another can be made.
    pub(crate) fn examine(
        storage: &RealStorage,
        folder: &str,
        whole: &str,
    ) -> Result<FlushGround, FlushUnfit> {
        let unknown = |_: StorageError| FlushUnfit::Unknown;
        let (source, is_direct) = storage.open_descriptor(whole, OFlags::RDWR, true).map_err(unknown)?;
        let about = rustix::fs::fstat(&source).map_err(|_| FlushUnfit::Unknown)?;
        let mounts = std::fs::read_to_string(MOUNTS).map_err(|_| FlushUnfit::Unknown)?;
        let file_system = of_mounts(&mounts, major(about.st_dev), minor(about.st_dev))?;
        let device = direct_device(&source).filter(|_| is_direct).ok_or(FlushUnfit::PageCache)?;
        let copy = format!("{folder}/copy");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let (copy, _) = storage.open_descriptor(&copy, flags, false).map_err(unknown)?;
        let refused = ioctl_ficlone(&copy, &source).err();
        // Anything but "there is no such thing here" may mean that another time it works.
        let shares_blocks = !matches!(refused, Some(SystemErrno::OPNOTSUPP | SystemErrno::NOTTY));
        Ok(FlushGround { device, file_system, shares_blocks })
    }
}

/// What a device is mounted as. All mounts of one name its file system and, last, that one's options.
fn of_mounts(mounts: &str, major: u32, minor: u32) -> Result<&'static str, FlushUnfit> {
    if major == 0 {
        let name = mounted(mounts, major, minor).map_or("unknown", |(name, _)| name).to_owned();
        return Err(FlushUnfit::FileSystem { name });
    }
    let (name, options) = mounted(mounts, major, minor).ok_or(FlushUnfit::Unknown)?;
    let known = FILE_SYSTEMS.into_iter().find(|known| *known == name);
    let known = known.ok_or_else(|| FlushUnfit::FileSystem { name: name.to_owned() })?;
    match options.split(',').find(|option| is_unfit(option)) {
        Some(option) => Err(FlushUnfit::MountOption { option: option.to_owned() }),
        None => Ok(known),
    }
}

/// The file system of a device, and its options.
fn mounted(mounts: &str, major: u32, minor: u32) -> Option<(&str, &str)> {
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, about) = line.split_once(" - ")?;
        if mount.split(' ').nth(2)? != device {
            return None;
        }
        let mut about = about.split(' ');
        Some((about.next()?, about.nth(1).unwrap_or_default()))
    })
}

/// Data in the journal, no flushes, other devices beside the one with the data, no page cache to be past of.
fn is_unfit(option: &str) -> bool {
    let names = ["data=journal", "nobarrier", "barrier=0", "dax", "dax=always"];
    names.contains(&option) || option.starts_with("logdev=") || option.starts_with("rtdev=")
}

/// The device that a file's writes go to past the page cache; none where they do not, or nobody can tell.
pub(crate) fn direct_device(file: impl AsFd) -> Option<u64> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let about = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let is_reported = about.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let aligns = [about.stx_dio_mem_align, about.stx_dio_offset_align];
    let is_direct = is_reported
        && aligns.iter().all(|align| (1..=ALIGN).contains(align))
        && !about.stx_attributes.contains(StatxAttributes::DAX);
    is_direct.then(|| makedev(about.stx_dev_major, about.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
        22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n\
        27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
        31 27 254:2 / /fast rw,noatime - xfs /dev/vdb rw,attr2,inode64,logbufs=8,noquota\n\
        32 27 254:3 / /journal rw - ext4 /dev/vdc rw,data=journal\n\
        33 27 254:4 / /careless rw - ext4 /dev/vdd rw,nobarrier\n\
        34 27 254:5 / /two rw - xfs /dev/vde rw,attr2,logdev=/dev/vdf,noquota\n\
        35 27 0:44 / /over rw - overlay overlay rw,lowerdir=/a,upperdir=/b\n\
        36 27 0:45 / /remote rw - nfs4 host:/x rw,sync\n\
        37 27 254:6 / /tree rw - btrfs /dev/vdg rw,space_cache=v2\n\
        38 27 254:7 / /dax rw - xfs /dev/pmem0 rw,dax=always\n";

    #[test]
    fn of_mounts_takes_ext4_and_xfs_over_one_device_and_nothing_else() {
        let file_system = |name: &str| Err(FlushUnfit::FileSystem { name: name.to_owned() });
        let option = |option: &str| Err(FlushUnfit::MountOption { option: option.to_owned() });
        for ((major, minor), expected) in [
            ((254, 1), Ok("ext4")),
            ((254, 2), Ok("xfs")),
            ((254, 3), option("data=journal")),
            ((254, 4), option("nobarrier")),
            ((254, 5), option("logdev=/dev/vdf")),
            ((0, 44), file_system("overlay")),
            ((0, 45), file_system("nfs4")),
            ((0, 99), file_system("unknown")),
            ((254, 6), file_system("btrfs")),
            ((254, 7), option("dax=always")),
            ((254, 9), Err(FlushUnfit::Unknown)),
        ] {
            assert_eq!(of_mounts(MOUNTINFO, major, minor), expected, "{major}:{minor}");
        }
    }
}
