//! Bytes that are no fabric.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use cell_fabric::{Address, Endpoint, FabricLimits, TcpEndpoint};

use cell_tests::wait::{self, PATIENCE};

use crate::hostile::Siege;

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("the server can be reached");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}

/// Sends bytes and reads whatever comes until the server ends it.
fn throw(server: SocketAddr, bytes: &[u8]) {
    let mut stream = connect(server);
    // The server may close before all of it was written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 4096, "a stranger got {} bytes", answer.len());
}

/// What a client of the fabric says first, recorded.
fn recorded_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let address = listener.local_addr().expect("it has an address");
    let mut endpoint = TcpEndpoint::client(FabricLimits::default()).expect("a socket can be had");
    endpoint.connect(&Address::Tcp(address)).expect("the listener can be reached");
    let (mut stream, _) = listener.accept().expect("the client comes");
    stream.set_nonblocking(true).expect("it need not wait");
    let mut hello = vec![0; 4096];
    let length = wait::until_some("the client speaks first", || {
        endpoint.poll(&mut |_| {});
        endpoint.flush();
        stream.read(&mut hello).ok()
    });
    hello.truncate(length);
    hello
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

#[test]
fn strangers_of_every_tongue_are_sent_away() {
    let mut siege = Siege::begin();
    let server = siege.server.address();
    let tongues: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: cell\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0",
        b"",
    ];
    for tongue in tongues {
        throw(server, tongue);
    }
    for seed in 0..100 {
        throw(server, &noise(seed, usize::try_from(seed * 700).unwrap()));
    }
    siege.assert_unharmed();
}

#[test]
fn hello_cut_at_every_byte_or_with_any_byte_changed_harms_nobody() {
    let mut siege = Siege::begin();
    let server = siege.server.address();
    let hello = recorded_hello();
    assert!(hello.len() >= 8, "the fabric has a hello");
    for end in 0..hello.len() {
        throw(server, &hello[..end]);
        let mut changed = hello.clone();
        changed[end] ^= 0xff;
        throw(server, &changed);
    }
    siege.assert_unharmed();
}

#[test]
fn message_lengths_that_lie_take_no_memory() {
    let mut siege = Siege::begin();
    let server = siege.server.address();
    let hello = recorded_hello();
    let mut held = Vec::new();
    for length in [u32::MAX, u32::MAX / 2, 1 << 30, 65_537, 65_536] {
        for _ in 0..40 {
            let mut stream = connect(server);
            let mut bytes = hello.clone();
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&noise(7, 100));
            let _ = stream.write_all(&bytes);
            held.push(stream);
        }
    }
    siege.assert_unharmed();
}

#[test]
fn silent_connections_by_the_hundred_do_not_keep_others_out() {
    let mut siege = Siege::begin();
    let server = siege.server.address();
    let silent: Vec<TcpStream> = (0..600).map(|_| connect(server)).collect();
    siege.assert_unharmed();
    drop(silent);
    siege.assert_unharmed();
}
