//! A small file system of a test's own, to be filled.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::reaper;

/// An ext4 file system on a loop device; gone when dropped.
pub struct SmallDisk {
    mount: PathBuf,
    _folder: TempDir,
}

impl SmallDisk {
    /// `None`, said loudly, where it takes more rights than this process has.
    ///
    /// # Panics
    /// If its image cannot be written.
    pub fn new(mebibytes: u64) -> Option<Self> {
        let folder = TempDir::with_prefix("cell-small-disk-").expect("a temporary folder can be made");
        reaper::remove(folder.path());
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        fs::create_dir(&mount).expect("a folder can be made");
        File::create(&image).and_then(|file| file.set_len(mebibytes << 20)).expect("an image can be made");
        let made = run("mkfs.ext4", &["-q", "-F", "-m", "0"], &[&image]);
        if !made || !run("mount", &["-o", "loop"], &[&image, &mount]) {
            println!(
                "SKIPPED: a full disk: mounting a small file system needs root, mkfs.ext4 and a loop device"
            );
            return None;
        }
        Some(Self { mount, _folder: folder })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Writes to a file of others until there is no byte left, once more if something was freed.
    ///
    /// # Panics
    /// If the file cannot be made.
    pub fn fill(&self) {
        let options = File::options().create(true).append(true).open(self.ballast());
        let mut file = options.expect("a file can be made");
        for bytes in [1 << 20, 1 << 12, 1] {
            let part = vec![1; bytes];
            while file.write_all(&part).is_ok() {}
        }
        let _ = file.sync_all(); // what is written is there, or the disk is full
    }

    /// Removes what others have written.
    ///
    /// # Panics
    /// If it cannot be removed.
    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("a file can be removed");
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], &[&self.mount]);
    }
}

fn run(command: &str, arguments: &[&str], paths: &[&Path]) -> bool {
    let output = Command::new(command).args(arguments).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}
