//! What goes over the socket of a connection after the hellos. A connector asks what a region key stands for,
//! one key at a time:
//!
//! | question: offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | region key |
//!
//! | answer: offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | region key |
//! | 8 | 4 | status: 0 registered, 1 key unknown |
//! | 12 | 4 | the device's key |
//! | 16 | 8 | where the region begins, as the device counts |
//! | 24 | 8 | bytes of the region |
//! | 32 | 4 | 1 if it may be written to, else 0 |
//! | 36 | 4 | zero |

use std::io::IoSliceMut;

use rustix::io::Errno;

use crate::close::CloseReason;
use crate::remote_access::RegionKey;
use crate::tls::Socket;

use super::memory::RemoteRegion;

pub(super) const QUESTION_BYTES: usize = 8;
pub(super) const ANSWER_BYTES: usize = 40;
const REGISTERED: u32 = 0;
const KEY_UNKNOWN: u32 = 1;

/// The acceptor's answer about a key: none if there is no such registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionAnswer {
    pub(super) key: RegionKey,
    pub(super) region: Option<RemoteRegion>,
}

/// The part of a packet that has come.
#[derive(Debug)]
pub(super) struct Unfinished {
    bytes: [u8; ANSWER_BYTES],
    held: usize,
}

impl Default for Unfinished {
    fn default() -> Unfinished {
        Unfinished { bytes: [0; ANSWER_BYTES], held: 0 }
    }
}

/// What one read of a socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketRead {
    /// A packet, in so many of the first bytes.
    Packet([u8; ANSWER_BYTES]),
    /// Nothing for now.
    Nothing,
    /// Nothing so far, and there may be more: others have their turn first.
    Interrupted,
    /// The peer closed its end.
    End,
}

impl Unfinished {
    /// Reads on towards a packet of so many bytes.
    ///
    /// # Errors
    /// The socket failed.
    pub(super) fn read(&mut self, socket: &mut Socket, bytes: usize) -> Result<SocketRead, CloseReason> {
        loop {
            match socket.read(&mut [IoSliceMut::new(&mut self.bytes[self.held..bytes])]) {
                Ok(0) => return Ok(SocketRead::End),
                Ok(count) => self.held += count,
                Err(Errno::AGAIN) => return Ok(SocketRead::Nothing),
                Err(Errno::INTR) => return Ok(SocketRead::Interrupted),
                // Whoever dies with something unread resets; what came through the queue pair is there.
                Err(Errno::CONNRESET | Errno::PIPE) => return Ok(SocketRead::End),
                Err(errno) => return Err(socket.why(errno)),
            }
            if self.held == bytes {
                self.held = 0;
                return Ok(SocketRead::Packet(self.bytes));
            }
        }
    }
}

/// Sends a packet. They are few and short: a socket that does not take one whole is that of a peer which asks
/// and does not read.
pub(super) fn send(socket: &mut Socket, bytes: &[u8]) -> Result<(), CloseReason> {
    match socket.send(bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        // The socket's end is read after what came through the queue pair.
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(CloseReason::Stalled),
        Err(errno) => Err(socket.why(errno)),
    }
}

pub(super) fn encode_question(key: RegionKey) -> [u8; QUESTION_BYTES] {
    key.0.to_le_bytes()
}

pub(super) fn decode_question(packet: &[u8; ANSWER_BYTES]) -> RegionKey {
    RegionKey(u64_at(packet, 0))
}

pub(super) fn encode_answer(answer: &RegionAnswer) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(&answer.key.0.to_le_bytes());
    match answer.region {
        None => bytes[8..12].copy_from_slice(&KEY_UNKNOWN.to_le_bytes()),
        Some(region) => {
            bytes[8..12].copy_from_slice(&REGISTERED.to_le_bytes());
            bytes[12..16].copy_from_slice(&region.key.to_le_bytes());
            bytes[16..24].copy_from_slice(&region.place.to_le_bytes());
            bytes[24..32].copy_from_slice(&region.bytes.to_le_bytes());
            bytes[32..36].copy_from_slice(&u32::from(region.writable).to_le_bytes());
        }
    }
    bytes
}

/// None for what no acceptor answers.
pub(super) fn decode_answer(packet: &[u8; ANSWER_BYTES]) -> Option<RegionAnswer> {
    let key = RegionKey(u64_at(packet, 0));
    let region = RemoteRegion {
        key: u32_at(packet, 12),
        place: u64_at(packet, 16),
        bytes: u64_at(packet, 24),
        writable: u32_at(packet, 32) == 1,
    };
    let is_sound = u32_at(packet, 32) <= 1
        && u32_at(packet, 36) == 0
        && region.place.checked_add(region.bytes).is_some();
    match u32_at(packet, 8) {
        REGISTERED if is_sound => Some(RegionAnswer { key, region: Some(region) }),
        KEY_UNKNOWN => Some(RegionAnswer { key, region: None }),
        _ => None,
    }
}

fn u64_at(bytes: &[u8; ANSWER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}

fn u32_at(bytes: &[u8; ANSWER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    use rustls::pki_types::ServerName;

    use super::*;
    use crate::tls::test_certificates::Authority;
    use crate::tls::{NodeTls, TlsFiles};

    /// Both ends of a connection, under TLS if that is spoken.
    fn ends(tls: Option<&NodeTls>) -> (Socket, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let asks = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let answers = listener.accept().unwrap().0;
        [&asks, &answers].iter().for_each(|end| end.set_nonblocking(true).unwrap());
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        let asks = match tls {
            Some(tls) => Socket::connector(asks.into(), tls.trust().client(), name).unwrap(),
            None => Socket::plain(asks.into()),
        };
        (asks, Socket::accepted(answers.into(), tls.map(NodeTls::server)))
    }

    /// What one end reads, while the other one reads, too: the hand-shake goes on by that.
    fn read((socket, bytes): (&mut Socket, usize), (other, other_bytes): (&mut Socket, usize)) -> SocketRead {
        let (mut here, mut there) = (Unfinished::default(), Unfinished::default());
        for _ in 0..400_000 {
            match here.read(socket, bytes).unwrap() {
                SocketRead::Nothing | SocketRead::Interrupted => std::thread::yield_now(),
                read => return read,
            }
            assert_eq!(there.read(other, other_bytes).unwrap(), SocketRead::Nothing);
        }
        panic!("nothing comes");
    }

    #[test]
    fn question_and_answer_go_under_tls_as_they_do_in_the_clear() {
        let folder = Authority::new("one").folder(&["127.0.0.1"]);
        let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.path(name));
        let files = TlsFiles { certificate, key, trust: Some(folder.path("ca.pem")) };
        let tls = NodeTls::open(files).unwrap();
        let region = RemoteRegion { key: 9, place: 1 << 40, bytes: 1 << 21, writable: false };
        let answer = RegionAnswer { key: RegionKey(7), region: Some(region) };
        for tls in [None, Some(&tls)] {
            let (mut asks, mut answers) = ends(tls);
            send(&mut asks, &encode_question(answer.key)).unwrap();
            let asked = read((&mut answers, QUESTION_BYTES), (&mut asks, ANSWER_BYTES));
            let SocketRead::Packet(packet) = asked else { panic!("{asked:?}") };
            assert_eq!(decode_question(&packet), answer.key);
            send(&mut answers, &encode_answer(&answer)).unwrap();
            let answered = read((&mut asks, ANSWER_BYTES), (&mut answers, QUESTION_BYTES));
            let SocketRead::Packet(packet) = answered else { panic!("{answered:?}") };
            assert_eq!(decode_answer(&packet), Some(answer));
            drop(answers);
            let mut ended = Unfinished::default();
            let end = (0..400_000).find_map(|_| {
                let read = ended.read(&mut asks, ANSWER_BYTES).unwrap();
                std::thread::yield_now();
                (read != SocketRead::Nothing).then_some(read)
            });
            assert_eq!(end, Some(SocketRead::End));
        }
    }

    #[test]
    fn answer_golden_bytes_round_trip() {
        let key = RegionKey(0x0102_0304_0506_0708);
        assert_eq!(encode_question(key), [8, 7, 6, 5, 4, 3, 2, 1]);
        let region = RemoteRegion { key: 0x0a0b_0c0d, place: 1 << 40, bytes: 1 << 21, writable: true };
        let known = RegionAnswer { key, region: Some(region) };
        let mut golden = [0; ANSWER_BYTES];
        golden[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        golden[12..16].copy_from_slice(&[0x0d, 0x0c, 0x0b, 0x0a]);
        (golden[21], golden[26], golden[32]) = (1, 0x20, 1);
        assert_eq!(encode_answer(&known), golden);
        for answer in [known, RegionAnswer { key, region: None }] {
            assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
        }
        assert_eq!(decode_question(&golden), key);
        for (at, value) in [(8, 2), (23, 0xff), (32, 2), (36, 1)] {
            let mut wrong = golden;
            wrong[at] = value;
            let place_is_good = at != 23;
            assert_eq!(decode_answer(&wrong).is_none(), place_is_good, "{at}");
        }
        let mut wrong = golden;
        wrong[16..32].fill(0xff);
        assert_eq!(decode_answer(&wrong), None, "beyond all memory");
    }
}
