//! A disk of its own for a test, whose faults are real: a volatile cache that a power cut empties, writes
//! or flushes that fail.
//!
//! nbdkit holds the disk, with a filter that caches what was not flushed or fails what it is set to; nbdfuse
//! shows it as a file, a loop device makes it a disk again, and ext4 or XFS stands on that. It needs root,
//! and the Debian packages nbdkit, libnbd-bin, and e2fsprogs or xfsprogs.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::getuid;
use tempfile::TempDir;

use crate::reaper;
use crate::wait;

/// What the disk can do to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`FaultyDisk::cut`] loses what was written and not flushed.
    VolatileCache,
    /// Writes fail while [`FaultyDisk::fail`] says so.
    WriteErrors,
    /// As a volatile cache; and while [`FaultyDisk::fail`] says so, writes succeed and nothing is flushed:
    /// every flush fails.
    FlushErrors,
}

/// What stands on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS, which takes no disk below 300 MiB.
    Xfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    fn maker(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
        }
    }

    /// Whether this kernel has it, as a module perhaps.
    fn is_known(self) -> bool {
        let listed = || {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            known.split_whitespace().any(|name| name == self.name())
        };
        listed() || (run("modprobe", &[self.name()]) && listed())
    }
}

/// A mounted file system on such a disk; all of it is gone when dropped.
pub struct FaultyDisk {
    folder: TempDir,
    file_system: FileSystem,
    fault: Fault,
    parts: Option<Parts>,
}

/// What runs while the disk is there.
struct Parts {
    nbdkit: Child,
    nbdfuse: Child,
    device: String,
}

impl FaultyDisk {
    /// Makes a disk of so many MiB with ext4; `None`, said loudly, where the machine lacks what it takes.
    ///
    /// # Panics
    /// If everything is there and it still does not work.
    pub fn new(fault: Fault, mebibytes: u64) -> Option<Self> {
        FaultyDisk::with(FileSystem::Ext4, fault, mebibytes)
    }

    /// As [`FaultyDisk::new`], with this file system.
    ///
    /// # Panics
    /// If everything is there and it still does not work.
    pub fn with(file_system: FileSystem, fault: Fault, mebibytes: u64) -> Option<Self> {
        let missing: Vec<&str> = ["nbdkit", "nbdfuse", file_system.maker(), "losetup"]
            .into_iter()
            .filter(|name| !is_installed(name))
            .collect();
        let is_known = file_system.is_known();
        if !missing.is_empty() || !is_known || !getuid().is_root() || !Path::new("/dev/fuse").exists() {
            let (name, missing) = (file_system.name(), missing.join(" "));
            println!(
                "SKIPPED: a disk with {fault:?}: it needs root, /dev/fuse, a kernel with {name}, and: {missing}"
            );
            return None;
        }
        let folder = TempDir::with_prefix("cell-faulty-disk-").expect("a temporary folder can be made");
        reaper::remove(folder.path());
        let mut disk = Self { folder, file_system, fault, parts: None };
        for name in ["fuse", "mount"] {
            fs::create_dir(disk.path(name)).expect("a folder can be made");
        }
        let image = fs::File::create(disk.path("image")).expect("an image can be made");
        image.set_len(mebibytes << 20).expect("an image can have that size");
        disk.attach(true);
        Some(disk)
    }

    /// Where the file system is mounted.
    pub fn mount(&self) -> PathBuf {
        self.path("mount")
    }

    /// Pulls the plug, and makes the disk appear again with what it had flushed. Whoever uses the file system
    /// must be asked to stop between [`Self::unplug`] and [`Self::plug`].
    ///
    /// # Panics
    /// If the disk does not come back.
    pub fn plug(&mut self) {
        self.attach(false);
    }

    /// The plug is out: every write from now on fails, everything in the cache is lost.
    ///
    /// # Panics
    /// If it was out.
    pub fn unplug(&mut self) {
        let parts = self.parts.as_mut().expect("the disk is plugged in");
        parts.nbdkit.kill().expect("a child can be killed");
        parts.nbdkit.wait().expect("a child can be waited for");
    }

    /// Takes the dead disk's devices away.
    pub fn detach(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        // Each step may find that the one before has done its work already.
        run("umount", &["-l", &self.text("mount")]);
        run("losetup", &["-d", &parts.device]);
        let _ = parts.nbdkit.kill();
        let _ = parts.nbdkit.wait();
        let _ = parts.nbdfuse.kill();
        let _ = parts.nbdfuse.wait();
        run("umount", &["-l", &self.text("fuse/disk")]);
        run("umount", &["-l", &self.text("fuse")]);
    }

    /// Makes writes or flushes fail, or succeed again.
    ///
    /// # Panics
    /// If the disk has another fault.
    pub fn fail(&self, fail: bool) {
        assert_ne!(self.fault, Fault::VolatileCache);
        let trigger = self.path("trigger");
        let done = if fail { fs::write(trigger, "") } else { fs::remove_file(trigger) };
        done.expect("the trigger can be made and removed");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    fn attach(&mut self, format: bool) {
        let socket = self.text("socket");
        let _ = fs::remove_file(&socket);
        let image = format!("file={}", self.text("image"));
        let trigger = self.text("trigger");
        let trigger = format!("error-pwrite-file={trigger}");
        let on_write = ["error-pwrite=EIO", "error-pwrite-rate=100%", &trigger];
        let cached = ["cache=writeback", "cache-min-block-size=4096"];
        // The filter that is named first is the one next to the file system. Below a cache, an error of a
        // write is one of the flush that writes the cache back.
        let (filters, options) = match self.fault {
            Fault::VolatileCache => (&["--filter=cache"][..], cached.to_vec()),
            Fault::WriteErrors => (&["--filter=error"][..], on_write.to_vec()),
            Fault::FlushErrors => {
                (&["--filter=cache", "--filter=error"][..], [&on_write[..], &cached].concat())
            }
        };
        // What was flushed need not reach the machine's own disk, which others keep busy: the machine's power
        // stays, and the image's pages outlive whoever wrote them.
        let unsynced = ["--filter=fua", "file", &image, "fuamode=discard"];
        let nbdkit = spawn("nbdkit", &[&["-f", "-U", &socket], filters, &unsynced, &options].concat());
        // The file is there before anybody listens, and nbdfuse would end.
        wait::until("nbdkit listens", || UnixStream::connect(&socket).is_ok());
        let file = self.text("fuse/disk");
        fs::write(&file, "").expect("a file to mount on can be made");
        let nbdfuse = spawn("nbdfuse", &[&file, &format!("nbd+unix:///?socket={socket}")]);
        wait::until("nbdfuse's file is there", || fs::metadata(&file).is_ok_and(|about| about.len() > 0));
        let device =
            Command::new("losetup").args(["--show", "-f", &file]).output().expect("losetup can be run");
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        assert!(device.starts_with("/dev/loop"), "no loop device: {device}");
        let maker = self.file_system.maker();
        assert!(!format || run(maker, &["-q", &device]), "no file system can be made");
        // Who used the file system before the cut may hold the dead one a little longer, which XFS takes for
        // the same one.
        let options = if self.file_system == FileSystem::Xfs { "rw,nouuid" } else { "rw" };
        let mounted = Command::new("mount").args(["-o", options, &device, &self.text("mount")]).output();
        let mounted = mounted.expect("mount can be run");
        assert!(
            mounted.status.success(),
            "the file system cannot be mounted: {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        self.parts = Some(Parts { nbdkit, nbdfuse, device });
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.detach();
    }
}

fn is_installed(command: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {command}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn run(command: &str, arguments: &[&str]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn spawn(command: &str, arguments: &[&str]) -> Child {
    let mut program = Command::new(command);
    program.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    reaper::mark(&mut program);
    program.spawn().unwrap_or_else(|error| panic!("{command} cannot be started: {error}"))
}
