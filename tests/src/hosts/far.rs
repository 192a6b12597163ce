//! Hosts that are far from each other: what is said to a node or to a member of etcd on another host takes
//! its time, each way. Not every kernel can have packets wait (netem), so connections end at a relay on the
//! host where they lead, which passes on what comes once it has waited. Nodes' HTTP is as near as ever.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::wait;

use super::etcd::CLIENT_PORT;
use super::store::NODE_PORT;
use super::{Host, Hosts};

/// Ports that are far: etcd's for clients and for members, and the fabric's.
const PORTS: [u16; 3] = [CLIENT_PORT, 2380, NODE_PORT];
/// A port's relay listens at a port that is so much higher.
const RELAY_OFFSET: u16 = 10_000;
/// What is passed on at once, at most.
const PIECE_BYTES: usize = 64 << 10;

/// Hosts are far as long as this lasts.
pub struct Far(Arc<FarState>);

#[derive(Default)]
struct FarState {
    is_over: AtomicBool,
    /// Pieces that were passed on.
    passed: AtomicU64,
}

impl Hosts {
    /// Has all that is said from now on over a new connection to a node or a member of etcd on another host
    /// take this time, and up to twice as long, each way.
    ///
    /// # Panics
    /// If a host is down, or cannot have a relay.
    pub fn far(&self, by: Duration) -> Far {
        let state = Arc::new(FarState::default());
        for number in self.numbers() {
            redirect(self.host(number));
            for port in PORTS {
                let state = Arc::clone(&state);
                self.host(number).within(|| {
                    let address = (Ipv4Addr::UNSPECIFIED, port + RELAY_OFFSET);
                    let listener = TcpListener::bind(address).expect("nobody listens there");
                    listener.set_nonblocking(true).expect("a listener need not wait");
                    // It is on this host, too.
                    thread::spawn(move || serve(&listener, port, by, &state));
                });
            }
        }
        Far(state)
    }
}

impl Far {
    /// How many pieces were passed on: none of whoever is near.
    pub fn passed(&self) -> u64 {
        self.0.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Has connections from other hosts come to the relays. The host's own are as ever.
fn redirect(host: &Host) {
    let chain = "add table ip far\n\
                 add chain ip far came { type nat hook prerouting priority dstnat; policy accept; }";
    let rule = |port: u16| {
        format!("add rule ip far came iifname eth0 tcp dport {port} redirect to :{}", port + RELAY_OFFSET)
    };
    let rules: Vec<String> = [chain.to_owned()].into_iter().chain(PORTS.map(rule)).collect();
    host.done(["nft", &rules.join("\n")]);
}

/// Relays each connection until it is over.
fn serve(listener: &TcpListener, port: u16, by: Duration, state: &Arc<FarState>) {
    while !state.is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            // Where nobody listens behind it, it ends at once.
            Ok((near, _)) => drop(relay(near, port, by, state)),
            Err(_) => wait::pause(),
        }
    }
}

fn relay(near: TcpStream, port: u16, by: Duration, state: &Arc<FarState>) -> io::Result<()> {
    let behind = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    near.set_nodelay(true)?;
    behind.set_nodelay(true)?;
    for (from, to) in [(near.try_clone()?, behind.try_clone()?), (behind, near)] {
        let state = Arc::clone(state);
        thread::spawn(move || pass_on(from, to, by, &state));
    }
    Ok(())
}

/// Passes on what comes one way, until that ends.
#[allow(clippy::disallowed_methods, reason = "that it takes this time is what it is for")]
fn pass_on(mut from: TcpStream, mut to: TcpStream, by: Duration, state: &FarState) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        thread::sleep(by);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
        state.passed.fetch_add(1, Ordering::Relaxed);
    }
    // They may have ended just now.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
