//! Very many at once: sockets that say nothing, and clients that mean it.

use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;

use cell_client::{Client, ClientError, ClientOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has this process open as many descriptors as it may.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// So many connections on which nothing is ever said.
///
/// # Panics
/// If the server cannot be reached.
pub fn silent(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    raise_descriptors();
    (0..count).map(|_| TcpStream::connect(server).expect("the server can be reached")).collect()
}

/// So many clients that connect at once, in `threads` threads; what came of each.
///
/// # Panics
/// If a thread panics.
pub fn clients(
    server: SocketAddr,
    options: &ClientOptions,
    (threads, each): (usize, usize),
) -> Vec<Result<Client, ClientError>> {
    raise_descriptors();
    let begin = Barrier::new(threads);
    let connect = || {
        begin.wait();
        let connect = |_| Client::connect(&server.to_string(), options.clone());
        (0..each).map(connect).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(connect)).collect();
        all.into_iter().flat_map(|thread| thread.join().expect("a client did not panic")).collect()
    })
}
