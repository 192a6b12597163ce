//! A stream socket, in the clear or under TLS: what stands between the kernel and a connection. What reads
//! and writes it sees the same calls and the same answers of the kernel either way; why a call failed that no
//! answer of the kernel says is returned by [`Socket::why`].
//!
//! Where TLS is spoken, an end looks at the first byte that comes before it takes any: a peer without TLS is
//! answered so in words that it understands, and named.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::close::{CloseReason, Stranger};
use crate::hello::MAGIC;
use crate::tls_failure::{ALERT_NO_ROOM, TlsFailure};

use super::session::{Obstacle, Pipe, Session};

/// How much of what comes first is looked at.
const FIRST_BYTES: usize = 16;
/// The first byte of the records that a connection may begin with: an alert, and a message of the hand-shake.
const FIRST_RECORDS: [u8; 2] = [0x15, 0x16];

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    layer: Layer,
    /// Why the last call failed, where the kernel's answer does not say it.
    reason: Option<CloseReason>,
}

#[derive(Debug)]
enum Layer {
    Plain,
    /// In the clear, where TLS is wanted: the peer is heard, to be turned away.
    Unwanted,
    /// Accepted; nothing has come that shows whether the peer speaks TLS.
    Accepted(Arc<ServerConfig>),
    /// Connected; nothing has come that shows whether the peer speaks TLS.
    Started(Box<Session>),
    Tls(Box<Session>),
}

impl Socket {
    /// In the clear.
    pub(crate) fn plain(descriptor: OwnedFd) -> Socket {
        Socket::over(descriptor, Layer::Plain)
    }

    /// One that was accepted; under TLS if there is a configuration for it.
    pub(crate) fn accepted(descriptor: OwnedFd, tls: Option<Arc<ServerConfig>>) -> Socket {
        Socket::over(descriptor, tls.map_or(Layer::Plain, Layer::Accepted))
    }

    /// One that connects, under TLS, to an end that has to be known by that name.
    ///
    /// # Errors
    /// No random bytes.
    pub(crate) fn connector(
        descriptor: OwnedFd,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Socket> {
        let session = Session::connector(config, name).map_err(io::Error::other)?;
        Ok(Socket::over(descriptor, Layer::Started(Box::new(session))))
    }

    fn over(descriptor: OwnedFd, layer: Layer) -> Socket {
        Socket { descriptor, layer, reason: None }
    }

    /// For what neither reads nor writes, or where there is no TLS.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Whether the peer speaks in the clear where TLS is wanted.
    pub(crate) fn is_unwanted(&self) -> bool {
        matches!(self.layer, Layer::Unwanted)
    }

    /// Whether TLS is spoken, and its hand-shake is not through.
    pub(crate) fn is_shaking_hands(&self) -> bool {
        match &self.layer {
            Layer::Plain | Layer::Unwanted => false,
            Layer::Accepted(_) | Layer::Started(_) => true,
            Layer::Tls(session) => session.is_shaking_hands(),
        }
    }

    /// Whether records wait for the kernel to take them: an edge shows when it does.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.layer {
            Layer::Plain | Layer::Unwanted | Layer::Accepted(_) => false,
            Layer::Started(session) | Layer::Tls(session) => session.has_unsent(),
        }
    }

    /// Whether a read has something to say although no edge will show it.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        match &self.layer {
            Layer::Tls(session) => session.is_over() || session.is_interrupted(),
            _ => false,
        }
    }

    /// Reads what has come: as many bytes as fit, or all that there are; none: the peer sends no more.
    ///
    /// # Errors
    /// The kernel's, `AGAIN` while nothing has come; see [`Socket::why`]. `INTR` under TLS: much has come and
    /// nothing of it is to be read; no edge shows that there is more.
    #[inline]
    pub(crate) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match self.layer {
            Layer::Plain | Layer::Unwanted => match slices {
                [one] => rustix::io::read(&self.descriptor, &mut **one),
                several => rustix::io::readv(&self.descriptor, several),
            },
            Layer::Tls(_) => self.read_decrypted(slices),
            Layer::Accepted(_) | Layer::Started(_) => self.read_first(slices),
        }
    }

    /// Looks at what comes first, and reads on as that says.
    fn read_first(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut first = [0; FIRST_BYTES];
        let count = loop {
            match rustix::net::recv(&self.descriptor, &mut first, RecvFlags::PEEK) {
                Ok((count, _)) => break count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.unanswered(errno)),
            }
        };
        let first = &first[..count];
        let is_tls = first.first().is_some_and(|byte| FIRST_RECORDS.contains(byte));
        match std::mem::replace(&mut self.layer, Layer::Unwanted) {
            Layer::Accepted(config) if is_tls => match Session::acceptor(config) {
                Ok(session) => self.layer = Layer::Tls(Box::new(session)),
                Err(error) => {
                    let error = &*error as &dyn std::error::Error;
                    tracing::error!(error, "TLS cannot be begun");
                    return Err(self.failed(CloseReason::Tls(TlsFailure::Broken)));
                }
            },
            Layer::Started(session) if is_tls => self.layer = Layer::Tls(session),
            Layer::Started(session) => {
                self.layer = Layer::Tls(session); // it is done with
                return Err(self.failed(reason_of_first(first)));
            }
            _ => {} // nothing came, or what is no TLS: what follows is read in the clear
        }
        self.read(slices)
    }

    /// A connector's peer that ends the connection before anything has come: most often it waits for a hello
    /// in the clear.
    fn unanswered(&mut self, errno: Errno) -> Errno {
        let has_ended = matches!(errno, Errno::CONNRESET | Errno::PIPE);
        if has_ended && matches!(self.layer, Layer::Started(_)) {
            return self.failed(CloseReason::Tls(TlsFailure::Unanswered));
        }
        errno
    }

    fn read_decrypted(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let Layer::Tls(session) = &mut self.layer else { return Err(Errno::INVAL) };
        let mut pipe = Descriptor::of(&self.descriptor);
        let mut count = 0;
        for slice in slices {
            match session.read(&mut pipe, slice) {
                Ok(read) => {
                    count += read;
                    if read < slice.len() {
                        break;
                    }
                }
                // It stays what it is, and the next read says it; a pipe that has no more says so again.
                Err(_) if count > 0 => break,
                Err(obstacle) => return Err(self.met(obstacle)),
            }
        }
        Ok(count)
    }

    /// Hands bytes to the kernel, from the front of what there is. So many have gone; what has not stands at
    /// the front at the next call.
    ///
    /// # Errors
    /// As for [`Socket::read`].
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match &mut self.layer {
            Layer::Plain | Layer::Unwanted | Layer::Accepted(_) => {
                rustix::net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL)
            }
            Layer::Started(session) | Layer::Tls(session) => {
                let written = session.write(&mut Descriptor::of(&self.descriptor), bytes);
                written.map_err(|obstacle| self.met(obstacle))
            }
        }
    }

    /// Hands on what waits from before. A kernel that takes it not shows by an edge when it does, or by a
    /// read why it never will.
    #[inline]
    pub(crate) fn flush(&mut self) {
        match &mut self.layer {
            Layer::Plain | Layer::Unwanted | Layer::Accepted(_) => {}
            Layer::Started(session) | Layer::Tls(session) => {
                let _ = session.push(&mut Descriptor::of(&self.descriptor));
            }
        }
    }

    /// Sends a few bytes at once, in the clear as far as the kernel takes them. Under TLS all are taken, and
    /// before its hand-shake is through they go behind it.
    ///
    /// # Errors
    /// As for [`Socket::read`]; `AGAIN` under TLS: the kernel has not taken all of their records.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match &mut self.layer {
            Layer::Plain | Layer::Unwanted | Layer::Accepted(_) => {
                rustix::net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            }
            Layer::Started(session) | Layer::Tls(session) => {
                let sent = session.send(&mut Descriptor::of(&self.descriptor), bytes);
                sent.map(|()| bytes.len()).map_err(|obstacle| self.met(obstacle))
            }
        }
    }

    /// Sends the first bytes on a socket: a kernel that does not take them whole has lost the connection.
    /// Under TLS they go when its hand-shake is through.
    pub(crate) fn send_first(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let is_kept = matches!(self.layer, Layer::Started(_) | Layer::Tls(_));
        match self.send(bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(CloseReason::Network(ErrorKind::WriteZero)),
            Err(Errno::AGAIN) if is_kept => Ok(()),
            Err(errno) => Err(self.why(errno)),
        }
    }

    /// Tells a peer with which TLS has not started that there is no room, so that it comes again; false:
    /// there is no such peer, or it is past that. One that has said nothing may want no TLS, and learns that
    /// it is spoken here.
    pub(crate) fn turn_away_before_tls(&mut self) -> bool {
        let has_spoken = match &self.layer {
            Layer::Plain | Layer::Unwanted => return false,
            Layer::Accepted(_) => false,
            Layer::Started(session) | Layer::Tls(session) => {
                if !session.is_shaking_hands() {
                    return false;
                }
                session.has_spoken()
            }
        };
        if !has_spoken {
            let alert = [0x15, 3, 3, 0, 2, 2, ALERT_NO_ROOM]; // a fatal one
            let _ = rustix::net::send(&self.descriptor, &alert, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        true
    }

    /// Why a call failed that answered so.
    pub(crate) fn why(&self, errno: Errno) -> CloseReason {
        self.reason.unwrap_or_else(|| CloseReason::network(errno))
    }

    /// An obstacle as the kernel would say it.
    fn met(&mut self, obstacle: Obstacle) -> Errno {
        match obstacle {
            Obstacle::Blocked => Errno::AGAIN,
            Obstacle::Interrupted => Errno::INTR,
            Obstacle::Pipe(kind) => {
                self.reason = Some(CloseReason::Network(kind));
                match kind {
                    ErrorKind::ConnectionReset => Errno::CONNRESET,
                    ErrorKind::BrokenPipe => Errno::PIPE,
                    _ => Errno::IO,
                }
            }
            Obstacle::Tls(failure) => self.failed(CloseReason::Tls(failure)),
        }
    }

    fn failed(&mut self, reason: CloseReason) -> Errno {
        self.reason = Some(reason);
        Errno::PROTO
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A peer that gets a notice of the end distinguishes it from a connection that somebody cut.
impl Drop for Socket {
    fn drop(&mut self) {
        if let Layer::Tls(session) = &mut self.layer {
            session.close(&mut Descriptor::of(&self.descriptor));
        }
    }
}

/// Why a connector goes no further with a peer that answers TLS by this, or by nothing.
fn reason_of_first(first: &[u8]) -> CloseReason {
    let length = first.len().min(MAGIC.len());
    match first {
        [] => CloseReason::Tls(TlsFailure::Unanswered),
        first if first[..length] == MAGIC[..length] => CloseReason::Tls(TlsFailure::PeerPlain),
        first => CloseReason::Stranger(Stranger::guess(first)),
    }
}

/// A socket as what carries records.
struct Descriptor<'a> {
    socket: &'a OwnedFd,
    is_drained: bool,
}

impl Descriptor<'_> {
    fn of(socket: &OwnedFd) -> Descriptor<'_> {
        Descriptor { socket, is_drained: false }
    }
}

impl Pipe for Descriptor<'_> {
    fn is_drained(&self) -> bool {
        self.is_drained
    }
}

impl Read for Descriptor<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.socket, &mut *into) {
                Ok(count) => {
                    self.is_drained = count < into.len();
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Descriptor<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let none = &mut SendAncillaryBuffer::default();
            match rustix::net::sendmsg(self.socket, slices, none, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::tls::test_certificates::Authority;
    use crate::tls::{NodeTls, TlsFiles};

    fn tls() -> NodeTls {
        let folder = Authority::new("one").folder(&["127.0.0.1"]);
        let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.path(name));
        NodeTls::open(TlsFiles { certificate, key, trust: Some(folder.path("ca.pem")) }).unwrap()
    }

    /// Two ends of a connection that do not wait; the first one connected.
    fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        [&one, &other].iter().for_each(|end| end.set_nonblocking(true).unwrap());
        (one, other)
    }

    fn connector(tls: &NodeTls, stream: TcpStream) -> Socket {
        let name = ServerName::IpAddress(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        Socket::connector(stream.into(), tls.trust().client(), name).unwrap()
    }

    /// What a socket reads once the kernel has something.
    fn read(socket: &mut Socket) -> Result<Vec<u8>, CloseReason> {
        let mut into = [0; 64];
        loop {
            match socket.read(&mut [IoSliceMut::new(&mut into)]) {
                Ok(count) => return Ok(into[..count].to_vec()),
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(errno) => return Err(socket.why(errno)),
            }
        }
    }

    /// Lets a socket do what it can without anything to read.
    fn turn(socket: &mut Socket) {
        assert_eq!(socket.read(&mut [IoSliceMut::new(&mut [0; 8])]), Err(Errno::AGAIN));
    }

    #[test]
    fn bytes_go_both_ways_and_the_end_is_reported() {
        let (tls, (one, other)) = (tls(), ends());
        let (mut one, mut other) = (connector(&tls, one), Socket::accepted(other.into(), Some(tls.server())));
        assert!(one.is_shaking_hands() && other.is_shaking_hands());
        one.send_first(b"hello").unwrap();
        while other.is_shaking_hands() {
            turn(&mut one);
            if let Ok(count) = other.read(&mut [IoSliceMut::new(&mut [0; 2])]) {
                assert_eq!(count, 2, "the hello came right behind");
                break;
            }
        }
        assert!(!other.is_shaking_hands());
        let rest = read(&mut other).unwrap();
        assert!([&b"llo"[..], b"hello"].contains(&rest.as_slice()), "{rest:?}");
        assert_eq!(other.write(b"back"), Ok(4));
        assert_eq!(read(&mut one), Ok(b"back".to_vec()));
        assert!(!one.is_over() && !other.has_unsent());
        drop(other);
        assert_eq!(read(&mut one), Ok(Vec::new()));
        assert!(one.is_over());
    }

    #[test]
    fn peer_in_the_clear_is_heard_and_known_to_be_unwanted() {
        let (tls, (mut one, other)) = (tls(), ends());
        let mut other = Socket::accepted(other.into(), Some(tls.server()));
        one.write_all(b"CELLFABR").unwrap();
        assert_eq!(read(&mut other), Ok(b"CELLFABR".to_vec()));
        assert!(other.is_unwanted() && !other.is_shaking_hands());
        assert!(!other.turn_away_before_tls(), "it is sent in the clear");
        other.send_first(b"no").unwrap();
        drop(other);
        one.set_nonblocking(false).unwrap();
        let mut answer = String::new();
        one.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "no");
    }

    #[test]
    fn connector_names_a_peer_that_speaks_something_else() {
        let tls = tls();
        for (said, wanted) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], CloseReason::Stranger(Stranger::Http)),
            (b"CELLFABR\x01\0", CloseReason::Tls(TlsFailure::PeerPlain)),
            (b"", CloseReason::Tls(TlsFailure::Unanswered)),
        ] {
            let (one, mut other) = ends();
            let mut one = connector(&tls, one);
            one.send_first(b"hello").unwrap();
            // Closed with something unread it would be reset, and what it said lost.
            while other.read(&mut [0; 4_096]).is_err() {
                std::thread::yield_now();
            }
            other.write_all(said).unwrap();
            drop(other);
            assert_eq!(read(&mut one), Err(wanted), "{said:?}");
        }
    }

    #[test]
    fn connector_that_finds_no_room_knows_it() {
        let (tls, (one, other)) = (tls(), ends());
        let (mut one, mut other) = (connector(&tls, one), Socket::accepted(other.into(), Some(tls.server())));
        one.send_first(b"hello").unwrap();
        assert!(other.turn_away_before_tls());
        assert_eq!(read(&mut one), Err(CloseReason::Tls(TlsFailure::NoRoom)));
    }
}
