//! How a connection over `verbs` is made, as far as no device takes part: over TCP, and under TLS where that
//! is spoken, to the queue of the endpoint over `verbs`, and back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::address::Address;
use crate::close::{CloseReason, HelloRefusal, Stranger};
use crate::endpoint::{Endpoint, Event};
use crate::hello::{Hello, WORKER};
use crate::queue_pair_end::QueuePairEnd;
use crate::tcp::{self, HelloBytes, TcpEndpoint, TcpOptions};
use crate::tls::test_certificates::{Authority, Folder};
use crate::tls::{NodeTls, Socket, TlsConnector, TlsFiles, TlsTrust};
use crate::tls_failure::TlsFailure;

use super::handoff::{Handed, HandoffQueue};

const TURNS_MAX: usize = 400_000;
const TOKEN: &[u8] = b"the token of a reader";
const END: QueuePairEnd = QueuePairEnd {
    number: 0x0102_0304,
    packet: 0x0a_0b0c,
    gid: [7; 16],
    lid: 0,
    packet_size: 5,
    reads_at_once: 16,
    slot_bytes: 4_096,
    slots: 16,
};

/// The endpoint that listens, and the queue on which the one over `verbs` finds its sockets.
struct Server {
    endpoint: TcpEndpoint,
    queue: Arc<HandoffQueue>,
    /// Tokens of those who came to this one.
    shown: Vec<Vec<u8>>,
    refused: Vec<CloseReason>,
}

impl Server {
    fn start(tls: Option<NodeTls>) -> Server {
        let options = TcpOptions { tls, ..TcpOptions::default() };
        let mut endpoint = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let acceptor = endpoint.add_verbs().unwrap().unwrap();
        let queue = acceptor.own_queue.unwrap();
        Server { endpoint, queue, shown: Vec::new(), refused: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.endpoint.address().unwrap()
    }

    fn turn(&mut self) {
        let Server { endpoint, shown, refused, .. } = self;
        endpoint.poll(&mut |event| match event {
            Event::Accepted { token, .. } => shown.push(token.to_vec()),
            Event::Refused { reason, .. } => refused.push(reason),
            Event::Closed { .. } => {}
            other => panic!("{other:?}"),
        });
        endpoint.flush();
        std::thread::yield_now();
    }

    /// Turns until there is something.
    fn until<T>(&mut self, mut found: impl FnMut(&mut Server) -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            self.turn();
            if let Some(found) = found(self) {
                return found;
            }
        }
        panic!("what was waited for did not happen");
    }
}

/// One who connects as the endpoint over `verbs` does, or without a queue pair.
struct Connector {
    socket: Socket,
    answer: HelloBytes,
}

impl Connector {
    fn begin(to: SocketAddr, trust: Option<&TlsTrust>, end: Option<QueuePairEnd>) -> Connector {
        let mut tls = TlsConnector::default();
        if let Some(trust) = trust {
            tls.trust(trust.clone());
        }
        let mut socket = tcp::connect(&Address::Verbs(to), &tls).unwrap().socket;
        while !tcp::is_through(socket.descriptor()).unwrap() {
            std::thread::yield_now();
        }
        let hello = Hello { token: TOKEN.into(), ..hello(end) };
        tcp::send_hello(&mut socket, &hello).unwrap();
        Connector { socket, answer: HelloBytes::default() }
    }

    /// What the server has said, or why there is no connection; none so far.
    fn heard(&mut self) -> Option<Result<Hello, CloseReason>> {
        self.answer.read(&mut self.socket, &mut true).transpose()
    }
}

fn hello(end: Option<QueuePairEnd>) -> Hello {
    Hello { queue_pair: end.map(Box::new), ..Hello::of_connector(WORKER, 4_096) }
}

fn tls(folder: &Folder) -> NodeTls {
    let [certificate, key, trust] = ["node.pem", "node.key", "ca.pem"].map(|name| folder.path(name));
    NodeTls::open(TlsFiles { certificate, key, trust: Some(trust) }).unwrap()
}

/// Passes one connection on, and keeps what goes each way.
struct Wiretap {
    address: SocketAddr,
    seen: [Arc<Mutex<Vec<u8>>>; 2],
}

impl Wiretap {
    fn before(server: SocketAddr) -> Wiretap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let [there, back] = seen.clone();
        std::thread::spawn(move || {
            let (near, far) = (listener.accept().unwrap().0, TcpStream::connect(server).unwrap());
            let (near_again, far_again) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || pass_on(far_again, near_again, &back));
            pass_on(near, far, &there);
        });
        Wiretap { address, seen }
    }

    fn has_seen(&self, bytes: &[u8]) -> bool {
        let is_in = |seen: &Vec<u8>| seen.windows(bytes.len()).any(|window| window == bytes);
        self.seen.iter().any(|seen| is_in(&seen.lock().unwrap()))
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        seen.lock().unwrap().extend_from_slice(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Both hellos, with the token and both ends of the queue pair, and what is said over the socket later.
#[test]
fn nothing_of_the_set_up_over_verbs_is_seen_on_the_network_where_tls_is_spoken() {
    let own = tls(&Authority::new("one").folder(&["127.0.0.1"]));
    for tls in [None, Some(own)] {
        let mut server = Server::start(tls.clone());
        let network = Wiretap::before(server.address());
        let mut connector = Connector::begin(network.address, tls.as_ref().map(NodeTls::trust), Some(END));
        let handed = server.until(|server| {
            let heard = connector.heard();
            assert!(heard.is_none(), "nobody has answered: {heard:?}");
            server.queue.take().pop()
        });
        let Handed { mut socket, hello: said, .. } = handed;
        assert_eq!((&said.token[..], said.queue_pair.as_deref()), (TOKEN, Some(&END)));
        assert_eq!((server.endpoint.connections(), server.shown.len()), (0, 0), "it is the other endpoint's");
        tcp::send_hello(&mut socket, &hello(Some(END))).unwrap();
        let answer = server.until(|_| connector.heard()).unwrap();
        assert_eq!(answer.queue_pair.as_deref(), Some(&END));
        assert_eq!(connector.socket.send(b"a question about a key"), Ok(22));
        let mut question = [0; 22];
        let read = server.until(|_| socket.read(&mut [std::io::IoSliceMut::new(&mut question)]).ok());
        assert_eq!((&question[..read], read), (&b"a question about a key"[..], 22));
        for bytes in [TOKEN, &END.encode(), &question] {
            assert_eq!(network.has_seen(bytes), tls.is_none(), "{bytes:?}");
        }
    }
}

#[test]
fn connector_over_verbs_in_the_clear_learns_that_tls_is_spoken() {
    let mut server = Server::start(Some(tls(&Authority::new("one").folder(&["127.0.0.1"]))));
    let mut connector = Connector::begin(server.address(), None, Some(END));
    let answer = server.until(|_| connector.heard());
    assert_eq!(answer.map(|answer| answer.refusal), Ok(Some(HelloRefusal::TlsWanted)));
    assert_eq!(server.refused, [CloseReason::TlsWanted]);
    assert!(server.queue.take().is_empty());
}

#[test]
fn connector_over_verbs_under_tls_at_a_server_without_learns_that() {
    let own = tls(&Authority::new("one").folder(&["127.0.0.1"]));
    let mut server = Server::start(None);
    let mut connector = Connector::begin(server.address(), Some(own.trust()), Some(END));
    let answer = server.until(|_| connector.heard());
    assert_eq!(answer, Err(CloseReason::Tls(TlsFailure::Unanswered)));
    assert_eq!(server.refused, [CloseReason::Stranger(Stranger::Tls)]);
    assert!(server.queue.take().is_empty());
}

#[test]
fn server_whose_certificate_does_not_hold_is_shown_no_queue_pair() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let own = tls(&one.folder(&["127.0.0.1"]));
    for (folder, wanted) in [
        (two.folder(&["127.0.0.1"]), TlsFailure::Untrusted),
        (one.folder(&["127.0.0.2", "localhost"]), TlsFailure::WrongName),
    ] {
        let mut server = Server::start(Some(tls(&folder)));
        let mut connector = Connector::begin(server.address(), Some(own.trust()), Some(END));
        assert_eq!(server.until(|_| connector.heard()), Err(CloseReason::Tls(wanted)));
        let refused = server.until(|server| server.refused.pop());
        assert_eq!(refused, CloseReason::Tls(TlsFailure::NotTrustedByPeer));
        assert!(server.queue.take().is_empty());
    }
}

#[test]
fn token_of_a_hello_is_reported_with_its_connection() {
    let mut server = Server::start(None);
    let mut connector = Connector::begin(server.address(), None, None);
    let answer = server.until(|_| connector.heard()).unwrap();
    assert_eq!((answer.refusal, answer.queue_pair), (None, None));
    assert_eq!(server.shown, [TOKEN]);
}
