//! Who may read one-sided over TCP, where tokens are asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cell_fabric::{
    Address, ConnectionId, FabricLimits, OneSided, ReadFailure, ReadPermission, ReadTag, RegionKey,
    RemoteRead, TcpEndpoint, TcpOptions,
};

use crate::harness::{Peer, Tcp, World, open, region, until};

/// Tokens that may read.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    known: Mutex<Vec<Vec<u8>>>,
    revision: AtomicU64,
}

impl Tokens {
    pub(crate) fn set(&self, known: &[&[u8]]) {
        *self.known.lock().unwrap() = known.iter().map(|token| token.to_vec()).collect();
        self.revision.fetch_add(1, Ordering::Release);
    }
}

impl ReadPermission for Tokens {
    fn permits(&self, token: &[u8]) -> bool {
        self.known.lock().unwrap().iter().any(|known| known == token)
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }
}

fn listen(tokens: &Arc<Tokens>) -> (Peer<TcpEndpoint>, Address) {
    let readers: Arc<dyn ReadPermission> = tokens.clone();
    let options = TcpOptions { one_sided: true, readers: Some(readers), ..TcpOptions::default() };
    let endpoint = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = Address::Tcp(endpoint.address().unwrap());
    (Peer::new(endpoint), address)
}

/// What a read is answered.
fn read(
    client: &mut Peer<TcpEndpoint>,
    server: &mut Peer<TcpEndpoint>,
    here: ConnectionId,
    key: RegionKey,
) -> Result<Vec<u64>, ReadFailure> {
    let known = client.reads(here).len();
    client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(1)).unwrap();
    until(&mut Tcp, &mut [client, server], |peers| peers[0].reads(here).len() > known);
    client.reads(here).pop().unwrap().1
}

/// The key of the region was all that this link asked for.
#[test]
fn read_without_a_token_that_may_is_refused_and_a_token_that_is_taken_back_ends_the_lane() {
    let tokens = Arc::new(Tokens::default());
    tokens.set(&[b"reader", b"other"]);
    let (mut server, address) = listen(&tokens);
    let key = server.endpoint.register(&region().0).unwrap();
    let connect = |server: &mut Peer<TcpEndpoint>, token: &[u8]| {
        let mut client = Tcp.client(FabricLimits::default());
        client.endpoint.set_token(token);
        let (here, _) = open(&mut Tcp, &mut client, server, address);
        (client, here)
    };
    for token in [&b""[..], b"guessed", b"reader and more"] {
        let (mut client, here) = connect(&mut server, token);
        assert_eq!(read(&mut client, &mut server, here, key), Err(ReadFailure::Unsupported));
    }
    let (mut reader, at_reader) = connect(&mut server, b"reader");
    let (mut other, at_other) = connect(&mut server, b"other");
    assert_eq!(read(&mut reader, &mut server, at_reader, key), Ok(vec![1_000]));
    assert_eq!(read(&mut other, &mut server, at_other, key), Ok(vec![1_000]));
    tokens.set(&[b"other"]);
    // What was under way may still be answered; the lane ends before anything that is asked later.
    let mut last = read(&mut reader, &mut server, at_reader, key);
    for _ in 0..1_000 {
        if last == Err(ReadFailure::Unsupported) {
            break;
        }
        std::thread::yield_now();
        last = read(&mut reader, &mut server, at_reader, key);
    }
    assert_eq!(last, Err(ReadFailure::Unsupported));
    assert_eq!(read(&mut other, &mut server, at_other, key), Ok(vec![1_000]), "others read on");
    assert_eq!(reader.closed(at_reader), None, "the connection itself is its worker's affair");
}

#[test]
#[cfg(debug_assertions)]
fn mutants_of_who_may_read_are_caught() {
    use cell_terms::mutant::{Mutant, plant};
    cell_terms::mutant::in_own_process(|| {
        for mutant in [Mutant::ReaderUnjudged, Mutant::RevokedReaderStays] {
            plant(Some(mutant));
            let test = read_without_a_token_that_may_is_refused_and_a_token_that_is_taken_back_ends_the_lane;
            let passed = std::panic::catch_unwind(test).is_ok();
            plant(None);
            assert!(!passed, "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-fabric's readers", mutant.name());
        }
    });
}
