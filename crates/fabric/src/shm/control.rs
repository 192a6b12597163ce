//! What goes over the unix socket: packets, some with descriptors. First the hellos, the acceptor's with the
//! connection's memory; then, whenever the connector reads a region that it has not mapped:
//!
//! | request: offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | region key |
//!
//! | answer: offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | region key |
//! | 8 | 4 | status: 0 the region's descriptor comes with this, 1 key unknown |
//! | 12 | 4 | the registration's word in the ledger |
//!
//! and, in either direction, whenever the other end wants to be woken:
//!
//! | bell: offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | 1 |
//!
//! The socket's end is the connection's end.
//!
//! **Why bells are packets.** Whoever writes to what a peer handed over waits as long as the peer likes. An
//! eventfd's flags are shared with the peer, who can make it blocking, and full. A pipe's lock is held while
//! its reader copies, and the reader decides, by the memory that it copies into, how long that takes. A
//! socket's own end is shared with nobody, each call says for itself that it does not wait, and no lock of it
//! is held while a peer's memory is touched.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::remote_access::RegionKey;

/// Descriptors of one packet.
pub(super) const DESCRIPTORS_MAX: usize = 4;
/// The longest packet: a hello.
pub(super) const PACKET_BYTES_MAX: usize = 2_048;

const BELL: [u8; 1] = [1];
const REQUEST_BYTES: usize = 8;
const ANSWER_BYTES: usize = 16;
const SHARED: u32 = 0;
const KEY_UNKNOWN: u32 = 1;

/// What came over the socket.
#[derive(Debug)]
pub(super) enum Received {
    /// The peer has something. It comes with each wake-up, so nothing is allocated for it.
    Bell,
    Packet(Packet),
    /// The peer's end is closed.
    End,
}

/// A packet as it came, which is no bell.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// The acceptor's answer about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionAnswer {
    pub(super) key: RegionKey,
    /// The registration's word in the ledger; none if there is no such registration.
    pub(super) slot: Option<u32>,
}

/// Sends one packet, whole or not at all, without waiting.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "more descriptors than fit");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(|_| ())
}

/// Wakes the peer. A socket that takes no more holds packets that wake it too, once it looks.
pub(super) fn ring(socket: &OwnedFd) {
    let _ = rustix::net::send(socket, &BELL, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// The next packet. Descriptors that are not `wanted` are not taken at all.
pub(super) fn receive(socket: &OwnedFd, wanted: bool) -> Result<Received, Errno> {
    let mut bytes = [0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let space = if wanted { &mut space[..] } else { &mut [] };
    let mut ancillary = RecvAncillaryBuffer::new(space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if got.bytes == 0 {
        return Ok(Received::End);
    }
    // A packet that was cut is none that this version sends: it is read as an empty one, which nothing takes.
    let whole = if got.flags.contains(ReturnFlags::TRUNC) { 0 } else { got.bytes };
    if bytes[..whole] == BELL {
        return Ok(Received::Bell);
    }
    Ok(Received::Packet(Packet { bytes: bytes[..whole].to_vec(), descriptors }))
}

pub(super) fn encode_request(key: RegionKey) -> [u8; REQUEST_BYTES] {
    key.0.to_le_bytes()
}

pub(super) fn decode_request(bytes: &[u8]) -> Option<RegionKey> {
    Some(RegionKey(u64::from_le_bytes(bytes.try_into().ok()?)))
}

pub(super) fn encode_answer(answer: &RegionAnswer) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(&answer.key.0.to_le_bytes());
    let status = if answer.slot.is_some() { SHARED } else { KEY_UNKNOWN };
    bytes[8..12].copy_from_slice(&status.to_le_bytes());
    bytes[12..].copy_from_slice(&answer.slot.unwrap_or(0).to_le_bytes());
    bytes
}

pub(super) fn decode_answer(bytes: &[u8]) -> Option<RegionAnswer> {
    let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().ok()?;
    let (key, rest) = bytes.split_first_chunk::<8>()?;
    let (status, slot) = rest.split_first_chunk::<4>()?;
    let slot = u32::from_le_bytes(slot.try_into().ok()?);
    let slot = match u32::from_le_bytes(*status) {
        SHARED => Some(slot),
        KEY_UNKNOWN if slot == 0 => None,
        _ => return None,
    };
    Some(RegionAnswer { key: RegionKey(u64::from_le_bytes(*key)), slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_and_answer_golden_bytes_round_trip() {
        let key = RegionKey(0x0102_0304_0506_0708);
        assert_eq!(encode_request(key), [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(decode_request(&encode_request(key)), Some(key));
        let shared = RegionAnswer { key, slot: Some(9) };
        assert_eq!(encode_answer(&shared), [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 9, 0, 0, 0]);
        for answer in [shared, RegionAnswer { key, slot: None }] {
            assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
        }
        let mut wrong = encode_answer(&shared);
        wrong[8] = 7;
        assert_eq!(
            (decode_answer(&wrong), decode_answer(&wrong[1..]), decode_request(&[])),
            (None, None, None)
        );
    }

    #[test]
    fn receive_takes_wanted_descriptors_and_leaves_others() {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let kind = rustix::net::SocketType::SEQPACKET;
        let unix = rustix::net::AddressFamily::UNIX;
        let (here, there) = rustix::net::socketpair(unix, kind, flags, None).unwrap();
        use std::os::fd::AsFd;
        let packet = |wanted| match receive(&there, wanted) {
            Ok(Received::Packet(packet)) => packet,
            other => panic!("no packet, but {other:?}"),
        };
        for (wanted, count) in [(true, 2), (false, 0)] {
            send(&here, b"two", &[here.as_fd(), there.as_fd()]).unwrap();
            let packet = packet(wanted);
            assert_eq!((packet.bytes.as_slice(), packet.descriptors.len()), (b"two".as_slice(), count));
        }
        assert_eq!(receive(&there, true).unwrap_err(), Errno::AGAIN);
        send(&here, &[1; PACKET_BYTES_MAX + 1], &[]).unwrap();
        assert_eq!(packet(true).bytes, []);
        ring(&here);
        assert!(matches!(receive(&there, true), Ok(Received::Bell)));
        drop(here);
        assert!(matches!(receive(&there, true), Ok(Received::End)));
    }
}
