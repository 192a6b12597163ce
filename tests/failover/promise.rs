//! What a node promises with each reply: for how long its lease surely holds, and nobody else serves its
//! pairs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cell_fabric::{Address, Endpoint, Event, FabricLimits, TcpEndpoint};
use cell_protocol::{Hello, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, Reply, Request, RequestHeader, RequestId};
use cell_tests::wait::PATIENCE;

#[allow(clippy::disallowed_methods, reason = "leases of real processes are of real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Between two looks at what is waited for.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
pub(crate) fn breathe() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Asks a node that serves; until when nobody else does.
pub(crate) fn promised_until(server: SocketAddr) -> Instant {
    let limits = FabricLimits { message_bytes_max: MESSAGE_BYTES_MAX, ..FabricLimits::default() };
    let mut endpoint = TcpEndpoint::client(limits).expect("a socket can be had");
    let connection = endpoint.connect(&Address::Tcp(server)).expect("the server can be reached");
    let hello = Hello { version: PROTOCOL_VERSION, name: "heir", token: &[], stream_credit_bytes: 1 << 20 };
    let mut promised = None;
    for (request, id) in [(Request::Hello(hello), 1), (Request::Get { key: b"no such key" }, 2)] {
        let mut message = Vec::new();
        let header = RequestHeader { id: RequestId(id), ..RequestHeader::default() };
        request.encode(header, &mut message).expect("the request fits a message");
        let (asked, mut remaining) = (now(), None);
        endpoint.send(connection, &message).expect("the connection takes it");
        while remaining.is_none() {
            endpoint.flush();
            endpoint.poll(&mut |event| {
                if let Event::Message { message, .. } = event {
                    let (header, _) = Reply::decode(message).expect("a reply");
                    remaining = Some(Duration::from_micros(header.trust_us.into()));
                }
            });
            assert!(asked.elapsed() < PATIENCE, "the server does not answer");
            std::thread::yield_now();
        }
        promised = remaining.map(|remaining| asked + remaining);
    }
    promised.expect("two answers came")
}
