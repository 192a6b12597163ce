//! An enemy who knows the fabric: connects like a client and sends whatever messages it likes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cell_fabric::{Address, ConnectionId, Endpoint, Event, FabricLimits, TcpEndpoint};
use cell_protocol::{
    Hello, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, Reply, Request, RequestHeader, RequestId, StatusCode,
};

use cell_tests::wait::PATIENCE;

use crate::hostile::wait;

pub(crate) struct Attacker {
    endpoint: TcpEndpoint,
    connection: ConnectionId,
    received: VecDeque<Vec<u8>>,
    closed: bool,
    started: Instant,
}

/// Encodes a request under an id.
pub(crate) fn encoded(request: &Request<'_>, id: u64) -> Vec<u8> {
    let mut message = Vec::new();
    let header = RequestHeader { id: RequestId(id), ..RequestHeader::default() };
    request.encode(header, &mut message).expect("the request fits a message");
    message
}

/// A hello that any server likes.
pub(crate) fn hello() -> Vec<u8> {
    let hello =
        Hello { version: PROTOCOL_VERSION, name: "attacker", token: &[], stream_credit_bytes: 1 << 20 };
    encoded(&Request::Hello(hello), 1)
}

impl Attacker {
    /// A connection of the fabric; no hello of the protocol yet.
    #[allow(clippy::disallowed_methods, reason = "a real socket has real time")]
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let limits = FabricLimits { message_bytes_max: MESSAGE_BYTES_MAX, ..FabricLimits::default() };
        let mut endpoint = TcpEndpoint::client(limits).expect("a socket can be had");
        let connection = endpoint.connect(&Address::Tcp(server)).expect("the server can be reached");
        Self { endpoint, connection, received: VecDeque::new(), closed: false, started: Instant::now() }
    }

    /// A connection that has said hello and was welcomed.
    pub(crate) fn welcomed(server: SocketAddr) -> Self {
        let mut attacker = Self::connect(server);
        attacker.say(&hello());
        let reply = attacker.receive().expect("a good hello is answered");
        assert_eq!(status(&reply), StatusCode::Ok);
        attacker
    }

    /// Sends a message; false if the connection takes none any more.
    pub(crate) fn say(&mut self, message: &[u8]) -> bool {
        let taken = self.endpoint.send(self.connection, message).is_ok();
        self.endpoint.flush();
        taken
    }

    /// Takes in what has come.
    pub(crate) fn step(&mut self) -> usize {
        let (received, closed) = (&mut self.received, &mut self.closed);
        let events = self.endpoint.poll(&mut |event| match event {
            Event::Message { message, .. } => received.push_back(message.to_vec()),
            Event::Closed { .. } => *closed = true,
            _ => {}
        });
        self.endpoint.flush();
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.endpoint.tick(elapsed);
        events
    }

    /// The next message; `None` if the server closed the connection instead.
    #[allow(clippy::disallowed_methods, reason = "a real socket has real time")]
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(message) = self.received.pop_front() {
                return Some(message);
            }
            if self.closed {
                return None;
            }
            assert!(Instant::now() < deadline, "the server neither answers nor closes");
            if self.step() == 0 {
                wait(Duration::from_micros(200));
            }
        }
    }

    /// Sends something and receives the status of the answer; `None` if the server closed the connection.
    pub(crate) fn ask(&mut self, message: &[u8]) -> Option<StatusCode> {
        self.say(message);
        self.receive().map(|reply| status(&reply))
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.step();
        self.closed
    }
}

/// The status of a reply.
pub(crate) fn status(message: &[u8]) -> StatusCode {
    match Reply::decode(message) {
        Ok((_, Reply::Refused(refusal))) => refusal.status(),
        Ok((_, Reply::NotFound)) => StatusCode::NotFound,
        Ok(_) => StatusCode::Ok,
        Err(error) => panic!("the server sent what is no reply: {error}"),
    }
}
