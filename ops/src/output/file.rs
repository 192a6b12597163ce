//! Output into a file that the user names: whole or not at all where it is, or is to be, a regular file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Links that are followed, as the kernel does.
const LINKS_MAX: usize = 40;
/// Of a new file, before the umask.
const MODE: u32 = 0o666;
/// Of one that is to take another's place, until it has that one's access.
const MODE_UNTIL_GIVEN: u32 = 0o600;

/// Where the output goes.
enum Destination {
    /// Onto this path when it is complete; with the access of the file that is there now, if there is one.
    Replaced(PathBuf, Option<Access>),
    /// Into what is there as it is written: a device, a fifo, or a file that has no name.
    Opened(File),
}

/// Who may do what with a file.
#[derive(Clone, Copy)]
struct Access {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Access {
    fn of(file: &Metadata) -> Access {
        // Not as whom it runs: another content is another program.
        Access { mode: file.mode() & 0o777, uid: file.uid(), gid: file.gid() }
    }

    /// Gives it to a file, before anything is in that.
    fn give(self, file: &File) -> io::Result<()> {
        let own = Access::of(&file.metadata()?);
        // Root alone may give files away: others' are their own, and of the same group if they are in it.
        let is_of_group = (own.uid, own.gid) == (self.uid, self.gid)
            || fchown(file, Some(self.uid), Some(self.gid)).is_ok()
            || fchown(file, None, Some(self.gid)).is_ok();
        // What that group may do is nothing for another one.
        let mode = if is_of_group { self.mode } else { self.mode & !0o070 };
        file.set_permissions(Permissions::from_mode(mode))
    }
}

/// Has `write` write the content of what `path` names. A regular file keeps what it has until the new content
/// is complete and on disk, and keeps its mode; links stay. What is no regular file, such as a device or a
/// fifo, is written to.
///
/// # Errors
/// Of `write`, and of the file: one that was to be replaced is as it was then.
pub(crate) fn write<T>(
    path: &Path,
    write: impl FnOnce(File) -> anyhow::Result<(File, T)>,
) -> anyhow::Result<T> {
    match destination(path)? {
        Destination::Replaced(target, former) => replace(&target, former, write),
        Destination::Opened(file) => {
            let is_synced = file.metadata().is_ok_and(|of| of.is_file() || of.file_type().is_block_device());
            let (file, value) = write(file)?;
            if is_synced {
                file.sync_all()?;
            }
            Ok(value)
        }
    }
}

fn destination(path: &Path) -> io::Result<Destination> {
    let there = match fs::metadata(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return Ok(Destination::Opened(OpenOptions::new().write(true).open(path)?));
    }
    let target = behind_links(path)?;
    let Some(there) = there else { return Ok(Destination::Replaced(target, None)) };
    // What /dev/stdout leads to need not have a name, and its name may be another file's by now.
    let is_named = fs::symlink_metadata(&target).is_ok_and(|of| is_same(&of, &there));
    // A file that a descriptor of this process has open is written to, not replaced: others write there too.
    if !is_named || is_open_here(&there) {
        return Ok(Destination::Opened(OpenOptions::new().append(true).open(path)?));
    }
    Ok(Destination::Replaced(target, Some(Access::of(&there))))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether stdout or stderr is that file.
fn is_open_here(file: &Metadata) -> bool {
    ["/proc/self/fd/1", "/proc/self/fd/2"]
        .iter()
        .any(|open| fs::metadata(open).is_ok_and(|open| is_same(&open, file)))
}

/// The path that is no link, at which what `path` leads to is or is to be.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        if !fs::symlink_metadata(&target).is_ok_and(|of| of.is_symlink()) {
            return Ok(target);
        }
        let next = fs::read_link(&target)?;
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// New file beside `target`, sync, rename, sync of the folder: a crash leaves the old one or the new one.
fn replace<T>(
    target: &Path,
    former: Option<Access>,
    write: impl FnOnce(File) -> anyhow::Result<(File, T)>,
) -> anyhow::Result<T> {
    let name = target.file_name().ok_or_else(|| anyhow::anyhow!("the file has no name"))?;
    let mut name = name.to_owned();
    name.push(".partial");
    let partial = target.with_file_name(name);
    // One that a crash has left. Nothing is written into what somebody else has put there, a link say.
    if let Err(error) = fs::remove_file(&partial)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let mode = former.map_or(MODE, |_| MODE_UNTIL_GIVEN);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
    let own = file.metadata()?;
    let is_own = || fs::symlink_metadata(&partial).is_ok_and(|of| is_same(&of, &own));
    let kept = former.map_or(Ok(()), |former| former.give(&file));
    let result = kept.map_err(anyhow::Error::from).and_then(|()| {
        let (file, value) = write(file)?;
        file.sync_all()?;
        anyhow::ensure!(is_own(), "another command writes it, too");
        fs::rename(&partial, target)?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        // One that may be written, but not read, cannot be synced.
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            folder.sync_all()?;
        }
        Ok(value)
    });
    if result.is_err() && is_own() {
        let _ = fs::remove_file(&partial);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn written(path: &Path, content: &str) -> anyhow::Result<()> {
        write(path, |mut file| {
            file.write_all(content.as_bytes())?;
            Ok((file, ()))
        })
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn write_keeps_the_mode_of_a_file_and_its_content_until_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        written(&path, "first").unwrap();
        for kept in [0o640, 0o600, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            written(&path, "second").unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap(), mode(&path)), ("second".to_owned(), kept));
        }
        let failed = write(&path, |mut file| -> anyhow::Result<(File, ())> {
            file.write_all(b"third")?;
            anyhow::bail!("no more")
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(names(folder.path()), ["file"]);
    }

    /// It wrote into what somebody had put there, and as root gave that away.
    #[test]
    fn write_goes_into_a_file_of_its_own_until_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("other"), "other").unwrap();
        for content in ["first", "second"] {
            symlink("other", path("file.partial")).unwrap();
            written(&path("file"), content).unwrap();
            assert_eq!(fs::read_to_string(path("file")).unwrap(), content);
            assert_eq!(fs::read_to_string(path("other")).unwrap(), "other");
            assert_eq!(names(folder.path()), ["file", "other"]);
        }
        // One that cannot be written any more, as a crash leaves it.
        fs::write(path("file.partial"), "thi").unwrap();
        fs::set_permissions(path("file.partial"), Permissions::from_mode(0o400)).unwrap();
        written(&path("file"), "third").unwrap();
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "third");
    }

    /// The first one put what the second one had written so far in the file's place.
    #[test]
    fn write_of_one_file_by_two_puts_nothing_incomplete_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        written(&path, "old").unwrap();
        let second = write(&path, |mut second| {
            second.write_all(b"sec")?;
            let first = write(&path, |mut first| {
                first.write_all(b"first")?;
                Ok((first, ()))
            });
            first?;
            second.write_all(b"ond")?;
            Ok((second, ()))
        });
        assert_eq!(second.unwrap_err().to_string(), "another command writes it, too");
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn write_follows_links_also_to_files_that_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        symlink("sub/file", path("link")).unwrap();
        symlink(path("link"), path("link_to_it")).unwrap();
        for (link, content) in [("link", "new"), ("link", "again"), ("link_to_it", "third")] {
            written(&path(link), content).unwrap();
            assert_eq!(fs::read_to_string(path("sub/file")).unwrap(), content);
        }
        assert_eq!(names(folder.path()), ["link", "link_to_it", "sub"]);
        assert_eq!(names(&path("sub")), ["file"]);
        assert!(["link", "link_to_it"].iter().all(|link| path(link).is_symlink()));
        symlink("round", path("round")).unwrap();
        assert!(written(&path("round"), "x").is_err() && path("round").is_symlink());
    }

    /// Over links, so that a wrong replacement hits them and no device of the machine.
    #[test]
    fn write_into_devices_leaves_them_and_reports_their_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("/dev/null", path("null")).unwrap();
        symlink("/dev/full", path("full")).unwrap();
        written(&path("null"), "x").unwrap();
        let full = written(&path("full"), "x").unwrap_err();
        let full = full.downcast_ref::<io::Error>().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        for name in ["null", "full"] {
            assert!(path(name).is_symlink(), "{name}");
            assert!(fs::metadata(path(name)).unwrap().file_type().is_char_device(), "{name}");
        }
        assert!(written(folder.path(), "x").is_err(), "a folder");
        assert_eq!(names(folder.path()), ["full", "null"]);
    }

    #[test]
    fn write_into_a_fifo_reaches_its_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // Open for reading and writing: neither end waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        written(&path, "five!").unwrap();
        let mut read = [0; 5];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"five!");
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    }
}
