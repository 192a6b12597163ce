#![allow(unsafe_code)] // one call of the kernel that rustix has in a form that not every answer fits
//! The listening unix socket, and who may come in.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::address::PeerAddress;
use crate::connections::Listener;
use crate::error::FabricError;
use crate::socket_name::SocketName;
use crate::tls::Socket;

const BACKLOG: i32 = 1_024;
/// What an acceptor's socket may hold that its peer has not taken: a hello, or some answers, so that few
/// descriptors are ever under way to a peer that takes none.
const SEND_BUFFER_BYTES: usize = 8 * 1024;

/// A socket that listens, and its file.
#[derive(Debug)]
pub(crate) struct ShmListener {
    socket: OwnedFd,
    pub(super) name: SocketName,
    /// Users that may connect besides root and the own.
    users: Vec<u32>,
    /// The file's number, to remove this one only.
    inode: Option<u64>,
}

impl ShmListener {
    /// Listens. A socket file whose process is gone is replaced.
    pub(super) fn open(name: SocketName, users: &[u32]) -> Result<ShmListener, FabricError> {
        let opened = || -> Result<ShmListener, Errno> {
            let address = name.socket_address()?;
            let socket = open_socket()?;
            match rustix::net::bind(&socket, &address) {
                Err(Errno::ADDRINUSE) if name.path().is_some_and(|path| is_deserted(name, path)) => {
                    rustix::net::bind(&socket, &address)?;
                }
                bound => bound?,
            }
            let inode = name.path().and_then(|path| admit(path, users.is_empty()).ok());
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(ShmListener { socket, name, users: users.to_vec(), inode })
        };
        opened().map_err(|errno| FabricError::ListenUnix { name, source: errno.into() })
    }
}

impl Listener for ShmListener {
    fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn accept(&self) -> Result<Option<(Socket, PeerAddress)>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        // Without it a peer that takes nothing could have more descriptors under way.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
        // Whose user is not known is not let in.
        let user =
            peer_user(&socket).inspect_err(|error| tracing::warn!(%error, "a peer's user is not known"));
        Ok(user.ok().map(|user| (Socket::plain(socket), PeerAddress::Shm { user })))
    }

    fn knows(&self, peer: &PeerAddress) -> bool {
        peer.is_own_user()
    }

    fn admits(&self, peer: &PeerAddress) -> bool {
        matches!(peer, PeerAddress::Shm { user } if is_trusted(*user, &self.users))
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        // The file may be another's by now.
        if let (Some(path), Some(inode)) = (self.name.path(), self.inode)
            && std::fs::symlink_metadata(path).is_ok_and(|file| file.ino() == inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether memory may be shared with a process of that user: root, the own one, and the listed.
pub(super) fn is_trusted(user: u32, listed: &[u32]) -> bool {
    PeerAddress::Shm { user }.is_own_user() || listed.contains(&user)
}

/// A socket of the kind that the provider uses: packets in order, and an end that is seen.
pub(super) fn open_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Whether nobody listens at an existing socket file; then it is removed.
fn is_deserted(name: SocketName, path: &Path) -> bool {
    let refused = || -> Result<bool, Errno> {
        let socket = open_socket()?;
        Ok(rustix::net::connect(&socket, &name.socket_address()?) == Err(Errno::CONNREFUSED))
    };
    refused().is_ok_and(|refused| refused) && std::fs::remove_file(path).is_ok()
}

/// Says on the file itself who may connect: the owner, or everyone where a list of users decides.
fn admit(path: &Path, owner_only: bool) -> io::Result<u64> {
    let mode = if owner_only { 0o600 } else { 0o666 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(std::fs::symlink_metadata(path)?.ino())
}

/// The user that the peer of a connected unix socket ran as when it connected.
///
/// # Errors
/// The kernel's, if this is no connected unix socket.
pub fn peer_user(socket: &impl AsFd) -> io::Result<u32> {
    Ok(credentials(socket.as_fd())?.uid)
}

/// The process that connected a unix socket's peer; zero: it is not seen from here.
///
/// # Errors
/// As [`peer_user`].
pub fn peer_process(socket: &impl AsFd) -> io::Result<u32> {
    Ok(u32::try_from(credentials(socket.as_fd())?.pid).unwrap_or(0))
}

/// Who the peer of a connected unix socket is. (`rustix` has this with a process number that is never zero;
/// the kernel says zero of a process in another namespace.)
fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the option writes at most `length` bytes, the size of `credentials`, which outlives the call;
    // the descriptor is open.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, and any bytes are a `ucred`: three integers.
    Ok(unsafe { credentials.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_takes_the_place_of_a_dead_listener_and_not_of_a_living() {
        let folder = std::env::temp_dir().join(format!("cell-listener-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let name = SocketName::of_path(&folder.join("socket")).unwrap();
        let first = ShmListener::open(name, &[]).unwrap();
        assert!(matches!(ShmListener::open(name, &[]), Err(FabricError::ListenUnix { .. })));
        // It dies without removing its file.
        let ShmListener { socket, inode, .. } = &first;
        assert!(inode.is_some());
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
        let second = ShmListener::open(name, &[]).unwrap();
        drop(first);
        let path = name.path().unwrap();
        assert!(path.exists(), "the first one's end leaves the second one's file alone");
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(second);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn admits_root_the_own_user_and_the_listed() {
        let name = SocketName::new(&format!("@cell-admits-{}", std::process::id())).unwrap();
        let listener = ShmListener::open(name, &[4_000_000]).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let admits = |user| listener.admits(&PeerAddress::Shm { user });
        assert!(admits(0) && admits(own) && admits(4_000_000));
        assert!(!admits(4_000_001));
        let knows = |user| listener.knows(&PeerAddress::Shm { user });
        assert!(knows(0) && knows(own) && !knows(4_000_000));
    }
}
