//! The name of a unix socket: small enough to be copied, so that addresses stay plain values.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

/// What the kernel takes, its closing zero not counted.
const BYTES_MAX: usize = 107;

/// An absolute path, or `@` and an abstract name, which is not in any folder. Without NUL and without `#`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketName {
    /// Zero beyond the length, so that names compare as texts.
    bytes: [u8; BYTES_MAX],
    length: u8,
}

impl SocketName {
    /// A name; `None` for what no unix socket can be called.
    #[must_use]
    pub fn new(text: &str) -> Option<SocketName> {
        let formed = text.starts_with('/') || text.starts_with('@');
        if !formed || text.len() < 2 || text.len() > BYTES_MAX || text.contains(['\0', '#']) {
            return None;
        }
        let mut bytes = [0; BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(SocketName { bytes, length: u8::try_from(text.len()).ok()? })
    }

    /// The name of a socket at that path; `None` if it is too long, relative, or not UTF-8.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<SocketName> {
        path.to_str().filter(|text| text.starts_with('/')).and_then(SocketName::new)
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It was made of a text.
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }

    /// Where it lies; `None` for an abstract name.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        Some(self.as_str()).filter(|text| text.starts_with('/')).map(Path::new)
    }

    /// As the kernel takes it.
    pub(crate) fn socket_address(&self) -> Result<SocketAddrUnix, Errno> {
        match self.as_str().strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(self.as_str()),
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_path_or_abstract_is_kept_as_text() {
        let path = SocketName::new("/run/cell/shm").unwrap();
        assert_eq!(
            (path.to_string().as_str(), path.path()),
            ("/run/cell/shm", Some(Path::new("/run/cell/shm")))
        );
        assert_eq!(SocketName::of_path(Path::new("/run/cell/shm")), Some(path));
        let name = SocketName::new("@cell-7").unwrap();
        assert_eq!((name.as_str(), name.path()), ("@cell-7", None));
        assert_eq!(SocketName::new(&format!("/{}", "x".repeat(106))).unwrap().as_str().len(), 107);
        assert!(name.socket_address().is_ok() && path.socket_address().is_ok());
    }

    #[test]
    fn name_the_kernel_does_not_take_is_none() {
        for text in ["", "/", "@", "relative", "/a#3", "/a\0b", &format!("/{}", "x".repeat(107))] {
            assert_eq!(SocketName::new(text), None, "{text:?}");
        }
        assert_eq!(SocketName::of_path(Path::new("@cell")), None);
    }
}
