//! Clients of two nodes that both begin anew, or of which one gets the root's pair from the other: they
//! search that memory themselves again, also those that choose for each read.

use std::sync::atomic::{AtomicBool, Ordering};

use cell_client::{Client, ClientOptions, Policy, Search, SelectorSettings, Transport};
use cell_tests::ending::Ending;
use cell_tests::server::Server;
use cell_tests::traffic::put_all;
use cell_tests::wait;

/// Two nodes whose pairs move as a test says alone, by an admin API that is asked as often as it likes.
const FLAGS: [&str; 4] = ["--nodes=2", "--balance=off", "--allow-drills", "--http-changes-per-second=10000"];
/// A key of the first pair, whose node has the root, and one of the second.
const KEYS: [&[u8]; 2] = [b"0", b"zz"];
static VALUE: [u8; 64 << 10] = [7; 64 << 10];
/// More than a client may still do by what it knew before.
const SEARCHES: u64 = 20;

fn start(flags: &[&str]) -> Server {
    let server = Server::start_steady(&[&FLAGS[..], flags].concat());
    server.wait_healthy();
    server
}

/// One that chooses reads where it may choose.
fn client(server: &Server, transport: Transport, search: Search) -> Client {
    let selector =
        SelectorSettings { policy: Policy::Fixed, fixed_share: 0.0, ..SelectorSettings::default() };
    let options =
        ClientOptions { transport, search, selector, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Of each transport one that chooses, and one that does not.
fn clients(server: &Server, transports: &[Transport]) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for transport in transports {
        for search in [Search::Auto, Search::Client] {
            clients.push((format!("{transport}, {search:?}"), client(server, *transport, search)));
        }
    }
    clients
}

fn searched(client: &Client) -> u64 {
    client.one_sided_counters().expect("it may search itself").done
}

/// Waits until each client searches itself what the nodes have now.
fn wait_searched(clients: &mut [(String, Client)], when: &str) {
    for (name, client) in clients {
        // Who has an answer to a write knows that its node is another one, or has no such pair any more.
        for key in KEYS {
            client.put(key, b"value").expect("it is written");
        }
        let before = searched(client);
        wait::until(&format!("{name}: memory is searched {when}"), || {
            for key in KEYS {
                assert_eq!(client.get(key).expect("a get").expect("an entry").value, b"value");
            }
            searched(client) > before + SEARCHES
        });
    }
}

/// Does something to the nodes while each client reads, as long as it takes.
fn amid_reads(clients: &mut [(String, Client)], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (_, client) in clients {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    for key in KEYS {
                        client.get(key).expect("a get within its deadline");
                    }
                    wait::pause();
                }
            });
        }
        let _ending = Ending(&stop);
        work();
    });
}

fn move_pair(server: &Server, pair: u64, to: u64) {
    let (status, answer) = server.ask_move(0, pair, to);
    assert_eq!(status, 200, "{answer}");
    let number = answer["move"]["number"].clone();
    server.wait_move(0, pair, "over", |of| of["number"] == number && !of["outcome"].is_null());
    server.wait_view("served by its target", |view| view.is_served(pair) && view.pair(pair)["node"] == to);
}

/// The node of the root has both pairs, and serves the smaller one first: who asks then which memory there is
/// does not learn of the root's.
pub(crate) fn nodes_begin_anew(transports: &[Transport], flags: &[&str], filling: u64) {
    let mut server = start(flags);
    let mut clients = clients(&server, transports);
    let (_, first) = clients.first_mut().expect("there is one");
    put_all(first, 0..filling, 16, |number| (format!("0-{number}").into_bytes(), VALUE.to_vec()));
    move_pair(&server, 2, 0);
    wait_searched(&mut clients, "at first");
    for _ in 0..2 {
        amid_reads(&mut clients, || {
            server.kill_all();
            server.resume();
            server.wait_healthy();
        });
        wait_searched(&mut clients, "after a kill");
        amid_reads(&mut clients, || {
            assert_eq!(server.stop(), Some(0));
            server.resume();
            server.wait_healthy();
        });
        wait_searched(&mut clients, "after a stop");
    }
}

/// The root's pair goes to a node that its clients know, and back.
pub(crate) fn root_moves(transports: &[Transport], flags: &[&str]) {
    let server = start(flags);
    let mut clients = clients(&server, transports);
    wait_searched(&mut clients, "at first");
    for to in [1, 0] {
        amid_reads(&mut clients, || move_pair(&server, 1, to));
        wait_searched(&mut clients, &format!("once the root is at node {to}"));
    }
}
