//! Over RDMA, on a device that the machine has, in `tests/rdma-vm` or on hardware: connections are made under
//! TLS, and tokens are asked for as over TCP.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use cell_client::{Client, ClientError, ClientOptions, Search, Transport};
use cell_fabric::TlsTrust;
use cell_tests::ports::Ports;
use cell_tests::process::signal;
use cell_tests::program::{self, Said};
use cell_tests::rdma::{SMALL, is_there};
use cell_tests::server::Server;
use cell_tests::wait;
use rustix::process::Signal;

use super::certificates::{Authority, Folder};

const READER: &str = "token of the reader";
const WRITER: &str = "token of the writer";
/// A file with the SHA-256 of both.
const TOKENS: &str = "\
    reader one e851021739bdc2ea5ed81d5295577a80364cdf77bea03c40fe84f159710c52ac\n\
    writer two 50e2be92967de73f7ec89deb93094046d2ef63ac1b8db1803234d435285f2386\n";
/// One with that of "token of the viewer", in place of both.
const OTHERS: &str = "viewer three 0b284366ce1c7437af56420b6e273fec28dc367eb52b928b1b2998f43770abed\n";

/// The files of a node: certificates for these hosts, and tokens.
fn folder(authority: &Authority, hosts: &[&str]) -> Folder {
    let folder = authority.folder(hosts);
    folder.write("tokens", TOKENS);
    folder
}

fn flags(folder: &Folder) -> Vec<String> {
    let files = [
        ("--tls-certificate-file", "node.pem"),
        ("--tls-key-file", "node.key"),
        ("--tls-trust-file", "ca.pem"),
        ("--tokens-file", "tokens"),
    ];
    let flag = |(flag, name): (&str, &str)| [flag.to_owned(), folder.path(name).display().to_string()];
    files.into_iter().flat_map(flag).chain(SMALL.map(str::to_owned)).collect()
}

/// A command's flags of who trusts what has signed a folder's certificate, and has a token.
fn with<'a>(command: &[&'a str], ca: Option<&'a str>, token: &'a str) -> Vec<&'a str> {
    let ca = ca.map(|ca| ["--ca", ca]).into_iter().flatten();
    let token = (!token.is_empty()).then_some(["--token", token]).into_iter().flatten();
    command.iter().copied().chain(ca).chain(token).collect()
}

fn ca(folder: &Folder) -> String {
    folder.path("ca.pem").display().to_string()
}

fn start(folder: &Folder) -> Server {
    let flags = flags(folder);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut server = Server::in_fresh_folder(&flags);
    server.launch();
    let (put, ca) = (["put", "--transport", "tcp", "greeting", "hello"], ca(folder));
    wait::until("a writer is served over TLS", || {
        server.cell(&with(&put, Some(&ca), WRITER)).code == Some(0)
    });
    server
}

fn options(folder: &Folder, token: &str) -> ClientOptions {
    ClientOptions {
        trust: Some(TlsTrust::open(&folder.path("ca.pem")).unwrap()),
        token: token.as_bytes().to_vec(),
        transport: Transport::Verbs,
        search: Search::Client,
        deadline_ms: 60_000,
        ..ClientOptions::default()
    }
}

/// Reads until the device has done it, past the worker.
fn read_one_sided(client: &mut Client, key: &[u8], value: &[u8]) {
    wait::until("a read goes past the worker", || {
        let item = client.get(key).unwrap();
        assert_eq!(item.map(|item| item.value), Some(value.to_vec()));
        client.one_sided_counters().is_some_and(|counters| counters.done > 0)
    });
}

#[test]
fn operations_and_one_sided_reads_over_rdma_are_for_who_trusts_and_has_a_token() {
    if !is_there() {
        return;
    }
    let authority = Authority::new("one");
    let folder = folder(&authority, &["127.0.0.1"]);
    let (server, own) = (start(&folder), ca(&folder));
    let mut writer = Client::connect(&server.address().to_string(), options(&folder, WRITER)).unwrap();
    let long = vec![7; 300_000];
    writer.put(b"long", &long).unwrap();
    assert!(writer.get(b"long").unwrap().is_some_and(|item| item.value == long));
    let mut reader = Client::connect(&server.address().to_string(), options(&folder, READER)).unwrap();
    read_one_sided(&mut reader, b"greeting", b"hello");

    let (get, put) = (["get", "--transport", "verbs", "greeting"], ["put", "--transport", "verbs", "a", "b"]);
    let said: Said = server.cell(&with(&get, Some(&own), READER));
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{said:?}");
    let said = server.cell(&with(&put, Some(&own), READER));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("needs a token with the role writer"), "{said:?}");
    for unknown in ["", "guessed"] {
        let said = server.cell(&with(&get, Some(&own), unknown));
        assert_eq!((said.code, said.err.contains("--token")), (Some(1), true), "{said:?}");
    }
    let said = server.cell(&with(&get, None, READER));
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("speaks TLS alone") && said.err.contains("--ca FILE"), "{said:?}");
    let another = Authority::new("two").folder(&[]);
    let said = server.cell(&with(&get, Some(&ca(&another)), READER));
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("has signed the peer's certificate"), "{said:?}");
}

#[test]
fn token_that_is_taken_back_ends_reads_over_rdma() {
    if !is_there() {
        return;
    }
    let folder = folder(&Authority::new("one"), &["127.0.0.1"]);
    let server = start(&folder);
    let mut reader = Client::connect(&server.address().to_string(), options(&folder, READER)).unwrap();
    read_one_sided(&mut reader, b"greeting", b"hello");
    folder.write("tokens", OTHERS);
    server.nodes().into_iter().for_each(|node| signal(node, Signal::HUP));
    wait::until("nothing is read any more", || {
        matches!(reader.get(b"greeting"), Err(ClientError::Unauthorized))
    });
}

/// A node by itself; it ends with this.
struct Node {
    process: Child,
    log: PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The name is advertised, and others look it up again. The machine of `tests/rdma-vm` has both.
#[test]
fn node_that_listens_at_a_name_or_an_ipv6_address_is_read_over_rdma() {
    if !is_there() {
        return;
    }
    for host in ["rdma-host", "[fd00:9::1]"] {
        if TcpListener::bind(format!("{host}:0")).is_err() {
            println!("SKIPPED: this machine is not {host}");
            continue;
        }
        let folder = folder(&Authority::new("one"), &[host.trim_matches(['[', ']'])]);
        let (ports, data) = (Ports::take(), tempfile::tempdir().unwrap());
        let address = format!("{host}:{}", ports.first);
        let log = data.path().join("node.log");
        let mut command = program::command();
        command.args(["node", "--listen-address", &address, "--data-dir"]).arg(data.path().join("data"));
        command.args(["--http-address", &format!("127.0.0.1:{}", ports.first + 80)]);
        command.args(["--populate-chunk-bytes", "8MiB", "--log-segment-bytes", "8MiB"]).args(flags(&folder));
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let _node = Node { process: command.spawn().unwrap(), log };
        let connect = || Client::connect(&address, options(&folder, WRITER)).ok();
        let mut client = wait::until_some("the node serves over RDMA", connect);
        client.put(b"key", b"value").unwrap();
        read_one_sided(&mut client, b"key", b"value");
        let (get, own) = (["get", "--transport", "verbs", "--server", &address, "key"], ca(&folder));
        let said = program::run(&with(&get, Some(&own), READER));
        assert_eq!((said.code, said.out.as_str()), (Some(0), "value\n"), "{said:?}");
    }
}
