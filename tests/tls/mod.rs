//! A cluster that speaks TLS, with real processes: who gets in, who does not and why, and certificates that
//! are replaced under load.

#[path = "../../crates/fabric/src/tls/test_certificates.rs"]
#[allow(dead_code, reason = "not every test wants all of it")]
mod certificates;
#[cfg(feature = "verbs")]
mod rdma;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_client::{Client, ClientError, ClientOptions, Search, Transport};
use cell_fabric::TlsTrust;
use cell_tests::server::Server;
use cell_tests::wait;

use certificates::{Authority, Folder};

/// A cluster whose nodes show the certificate of a folder.
fn start(folder: &Folder) -> Server {
    let files = ["node.pem", "node.key", "ca.pem"].map(|name| folder.path(name).display().to_string());
    let [certificate, key, trust] = &files;
    let flags = ["--tls-certificate-file", certificate, "--tls-key-file", key, "--tls-trust-file", trust];
    let mut server = Server::in_fresh_folder(&flags);
    server.launch();
    wait::until("the server answers over TLS", || cell(&server, folder, &["status"]).0 == Some(0));
    server
}

/// A command that trusts who has signed a folder's certificate: its exit code, and all that it says.
fn cell(server: &Server, folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let ca = folder.path("ca.pem").display().to_string();
    let said = server.cell(&[arguments, &["--transport", "tcp", "--ca", ca.as_str()][..]].concat());
    (said.code, said.out + &said.err)
}

fn options(folder: &Folder) -> ClientOptions {
    let trust = Some(TlsTrust::open(&folder.path("ca.pem")).unwrap());
    ClientOptions { trust, transport: Transport::Tcp, deadline_ms: 60_000, ..ClientOptions::default() }
}

#[test]
fn operations_go_over_tls_and_so_do_one_sided_reads() {
    let folder = Authority::new("one").folder(&["127.0.0.1"]);
    let server = start(&folder);
    assert_eq!(cell(&server, &folder, &["put", "greeting", "hello"]).0, Some(0));
    assert_eq!(cell(&server, &folder, &["get", "greeting"]), (Some(0), "hello\n".to_owned()));
    let (code, lines) = cell(&server, &folder, &["scan", "--prefix", "gree"]);
    assert_eq!((code, lines.contains("greeting\thello")), (Some(0), true), "{lines}");
    let options = ClientOptions { search: Search::Client, ..options(&folder) };
    let mut client = Client::connect(&server.address().to_string(), options).unwrap();
    let long = vec![7; 300_000];
    client.put(b"long", &long).unwrap();
    assert!(client.get(b"long").unwrap().is_some_and(|item| item.value == long));
    wait::until("a read goes past the worker", || {
        assert!(client.get(b"greeting").unwrap().is_some());
        client.one_sided_counters().is_some_and(|counters| counters.done > 0)
    });
}

#[test]
fn who_does_not_speak_as_the_server_does_is_refused_with_what_helps() {
    let authority = Authority::new("one");
    let folder = authority.folder(&["127.0.0.1"]);
    let server = start(&folder);
    let plain = server.cell(&["get", "--transport", "tcp", "greeting"]);
    assert_eq!(plain.code, Some(4), "{plain:?}");
    assert!(plain.err.contains("speaks TLS alone") && plain.err.contains("--ca FILE"), "{plain:?}");
    let (code, said) = cell(&server, &Authority::new("two").folder(&[]), &["get", "greeting"]);
    assert_eq!((code, said.contains("has signed the peer's certificate")), (Some(4), true), "{said}");
    for (other, words) in [
        (authority.folder(&["192.0.2.1"]), "not for the name or address"),
        (authority.folder_until(&["127.0.0.1"], 2_001), "certificate has ended"),
    ] {
        let mut server = Server::in_fresh_folder(&[
            "--tls-certificate-file",
            &other.path("node.pem").display().to_string(),
            "--tls-key-file",
            &other.path("node.key").display().to_string(),
        ]);
        server.launch();
        wait::until(&format!("a command says `{words}`"), || {
            let (code, said) = cell(&server, &folder, &["get", "greeting"]);
            code == Some(4) && said.contains(words)
        });
    }
    let in_the_clear = Server::start();
    let (code, said) = cell(&in_the_clear, &folder, &["get", "greeting"]);
    assert_eq!((code, said.contains("without a word of TLS")), (Some(4), true), "{said}");
}

/// An authority is replaced in three steps while clients write, and while others come and go.
#[test]
fn certificates_are_replaced_under_load_without_a_failed_operation() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = old.folder(&["127.0.0.1"]);
    let server = start(&folder);
    let address = server.address().to_string();
    let (stop, rounds) = (AtomicBool::new(false), [(); 3].map(|()| AtomicU64::new(0)));
    let work = |number: usize, stays: bool| -> Result<(), ClientError> {
        let mut client = Client::connect(&address, options(&folder))?;
        for round in 1_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if !stays {
                client.end_session();
                client = Client::connect(&address, options(&folder))?;
            }
            client.put(format!("key-{number}").as_bytes(), &round.to_le_bytes())?;
            let item = client.get(format!("key-{number}").as_bytes())?;
            assert!(item.is_some_and(|item| item.value == round.to_le_bytes()));
            rounds[number].store(round, Ordering::Relaxed);
        }
        Ok(())
    };
    let work = &work;
    std::thread::scope(|scope| {
        let workers = [true, false, false];
        let workers = [0, 1, 2].map(|number| scope.spawn(move || work(number, workers[number])));
        // Each does some more after each step, and has started the last of it after the step.
        let go_on = || {
            let before = rounds.each_ref().map(|round| round.load(Ordering::Relaxed));
            let is_on = |at: usize| rounds[at].load(Ordering::Relaxed) >= before[at] + 3;
            wait::until("all clients go on", || {
                workers.iter().any(|worker| worker.is_finished()) || (0..3).all(is_on)
            });
        };
        go_on();
        folder.write("ca.pem", &[old.pem.as_str(), &new.pem].concat());
        go_on();
        new.replace(&folder, &["127.0.0.1"]);
        let other = new.folder(&["127.0.0.1"]);
        wait::until("the new certificate is shown", || cell(&server, &other, &["get", "key-0"]).0 == Some(0));
        go_on();
        folder.write("ca.pem", &new.pem);
        go_on();
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap().unwrap());
    });
}
