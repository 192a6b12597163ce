//! A simulated connection: two ends, and what travels between them.

use std::collections::{BTreeSet, VecDeque};

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::close::HelloRefusal;
use crate::endpoint::ConnectionId;
use crate::greeting::Greeting;
use crate::remote_access::RegionKey;

/// A link's name within the network, never reused.
pub(super) type LinkId = u64;

/// What travels. A stream: each direction delivers in order, whole, or not at all.
#[derive(Debug)]
pub(super) enum Segment {
    Hello { message_bytes_max: usize },
    Welcome { greeting: Greeting, message_bytes_max: usize },
    Refused(HelloRefusal),
    Message(Box<[u8]>),
    End,
    Reset(CloseReason),
}

/// What has come to an end and waits for its endpoint's poll.
#[derive(Debug)]
pub(super) enum Arrival {
    Accepted(PeerAddress),
    Connected(Greeting),
    Message(Box<[u8]>),
    Writable,
    Closed(CloseReason),
}

/// Which end of a link: the connector is 0, the acceptor 1.
pub(super) type Side = usize;
/// The end that did not open the link.
pub(super) const ACCEPTOR: Side = 1;

#[derive(Debug)]
pub(super) struct End {
    pub(super) host: u32,
    /// The endpoint that holds it and its name for it; none before it is accepted and after it is gone.
    pub(super) held: Option<(usize, ConnectionId)>,
    /// Both hellos are through.
    pub(super) open: bool,
    /// A `Closed` arrived or stands in `arrived`: nothing further arrives, nothing is sent.
    pub(super) ended: bool,
    pub(super) message_bytes_max: usize,
    pub(super) output: VecDeque<Box<[u8]>>,
    pub(super) output_bytes: usize,
    /// From this end, in order. One delivery is scheduled for each, except those counted in `stalled`.
    pub(super) travelling: VecDeque<Segment>,
    /// Deliveries that came due while the direction was blocked.
    pub(super) stalled: usize,
    /// Nothing from this end arrives before this time.
    pub(super) stalls_until_ns: u64,
    /// Bytes of messages that left this end and that the other end's endpoint has not polled.
    pub(super) in_flight_bytes: usize,
    pub(super) arrived: VecDeque<Arrival>,
    /// It stands in its endpoint's queue of ends with arrivals.
    pub(super) queued: bool,
    pub(super) dirty: bool,
    pub(super) full: bool,
    /// Reads posted on it that have not ended.
    pub(super) reads: usize,
    /// By which keys it has read: where regions are mapped, they are from then on.
    pub(super) keys_read: BTreeSet<RegionKey>,
    /// By its endpoint's clock, when it last polled something from here.
    pub(super) received_ns: u64,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
}

impl End {
    pub(super) fn new(host: u32, message_bytes_max: usize) -> End {
        End {
            host,
            held: None,
            open: false,
            ended: false,
            message_bytes_max,
            output: VecDeque::new(),
            output_bytes: 0,
            travelling: VecDeque::new(),
            stalled: 0,
            stalls_until_ns: 0,
            in_flight_bytes: 0,
            arrived: VecDeque::new(),
            queued: false,
            dirty: false,
            full: false,
            reads: 0,
            keys_read: BTreeSet::new(),
            received_ns: 0,
        }
    }
}
