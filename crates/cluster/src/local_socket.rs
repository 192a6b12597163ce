//! Unix sockets in a cluster's folder, for its own user and root alone.
//!
//! The kernel takes paths of 107 bytes. Where a folder's path is longer, the socket is named by an open
//! descriptor of the folder (`/proc/self/fd/N/NAME`), on both sides.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What the kernel takes, its closing zero not counted.
const PATH_BYTES_MAX: usize = 107;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 512;
/// A socket's file is its owner's.
const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// How to find out as which user the peer of a connection runs: by what the kernel says of the socket.
pub type PeerUser = fn(&UnixStream) -> io::Result<u32>;

/// How to find out which process the peer of a connection is, likewise.
pub type PeerProcess = fn(&UnixStream) -> io::Result<u32>;

/// Whether a peer of this user is served by a process of user `own`.
#[must_use]
pub fn is_admitted(user: u32, own: u32) -> bool {
    user == own || user == 0
}

/// The user of this process.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Listens at `path`. A file that is there is replaced: the caller holds the folder's lock.
///
/// # Errors
/// The system's.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    remove(path)?;
    let (address, _folder) = address(path)?;
    let socket = open()?;
    // Before it has a name: the file is never anybody else's.
    rustix::fs::fchmod(&socket, OWNER_ONLY)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects to the socket at `path`, within that time.
///
/// # Errors
/// The system's.
pub fn connect(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let (address, _folder) = address(path)?;
    let socket = open()?;
    // Who listens and accepts nobody would have this wait for ever.
    set_socket_timeout(&socket, Timeout::Send, Some(within.max(Duration::from_micros(1))))?;
    match rustix::net::connect(&socket, &address) {
        Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
        Ok(()) => {
            set_socket_timeout(&socket, Timeout::Send, None)?;
            Ok(socket.into())
        }
    }
}

/// Removes a socket's file; none is no error.
///
/// # Errors
/// The system's.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The address of a path, and what has to be open while it is used.
fn address(path: &Path) -> io::Result<(SocketAddrUnix, Option<OwnedFd>)> {
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return Ok((SocketAddrUnix::new(path)?, None));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((SocketAddrUnix::new(&short)?, Some(folder)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn listen_replaces_what_is_there_and_the_file_is_the_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(listen(&path).unwrap());
        let listener = listen(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = connect(&path, PATIENCE).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        client.write_all(b"a").unwrap();
        served.read_exact(&mut [0]).unwrap();
        remove(&path).unwrap();
        assert_eq!(connect(&path, PATIENCE).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn listen_in_a_folder_whose_path_no_socket_can_have_is_reached_by_that_path() {
        let folder = tempfile::tempdir().unwrap();
        let long = (0..4).fold(folder.path().to_owned(), |path, _| path.join("x".repeat(100)));
        std::fs::create_dir_all(&long).unwrap();
        let path = long.join("socket");
        assert!(UnixListener::bind(&path).is_err(), "the kernel takes no such path");
        let listener = listen(&path).unwrap();
        assert!(path.exists());
        let mut client = connect(&path, PATIENCE).unwrap();
        client.write_all(b"a").unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
        drop(listener);
        assert_eq!(connect(&path, PATIENCE).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn connect_to_a_listener_that_accepts_nobody_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = listen(&path).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&path, Duration::from_millis(20)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn is_admitted_is_the_own_user_and_root() {
        assert!(is_admitted(0, 1000) && is_admitted(1000, 1000));
        assert!(!is_admitted(1001, 1000) && !is_admitted(65_534, 0));
    }
}
