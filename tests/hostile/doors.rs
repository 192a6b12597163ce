//! The coordinator's door: for the cluster's own user and root, and what comes through it breaks nothing.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use cell_client::{Client, ClientOptions, Transport};
use cell_cluster::{ClusterError, Coordinator, CoordinatorRefusal, Remote, Transaction};
use cell_tests::server::Server;
use cell_tests::{program, stranger, wait};

fn remote(server: &Server) -> Arc<Remote> {
    Arc::new(Remote::new(server.coordinator(), Duration::from_secs(30)))
}

#[test]
fn coordinator_answers_its_own_user_alone_and_listens_on_no_port() {
    let server = Server::start_steady(&[]);
    assert!(TcpStream::connect(("127.0.0.1", server.port() + 200)).is_err(), "the port is gone");
    let socket = server.coordinator();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let path = socket.to_str().unwrap();
    let said = program::run(&["inspect", "table", "--coordinator", path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // The folder is open, the socket is not; then it is, and the kernel says who asks.
    fs::set_permissions(server.folder().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let asked = || stranger::run(&["inspect", "table", "--coordinator", path]);
    let Some(said) = asked() else { return };
    assert_ne!(said.code, Some(0), "{said:?}");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let said = asked().expect("it could be done before");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("user 65534 may not ask the coordinator"), "{said:?}");
}

#[test]
fn row_of_tuning_that_does_not_read_is_reported_and_no_node_ends() {
    let server = Server::start_steady(&["--nodes", "2", "--allow-drills"]);
    server.wait_healthy();
    let http = server.http_address().to_string();
    let said = program::run(&["tune", "set", "worker_spin_us=7", "--http", &http]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let processes = server.view().processes();
    remote(&server).transact(Transaction::new().put("tuning/current", "garbage")).unwrap();
    wait::until("the row is reported", || {
        let ready = server.http("/readyz?verbose");
        ready.is_some_and(|(status, text)| status == 200 && text.contains("`tuning/current`: cannot read"))
    });
    let said = server.cell(&["put", "key", "value"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // A change mends it; what was in force stays.
    let said = program::run(&["tune", "set", "client_queue_max=9", "--http", &http]);
    assert_eq!(said.code, Some(0), "{said:?}");
    wait::until("the row is whole", || {
        server.http("/readyz?verbose").is_some_and(|(_, text)| !text.contains("cannot read"))
    });
    let row = remote(&server).read("tuning/current").unwrap().expect("it is there").value;
    assert!(row.contains("worker_spin_us") && row.contains("client_queue_max"), "{row}");
    assert_eq!(server.view().processes(), processes, "no node has ended");
}

#[test]
fn client_that_takes_leases_in_a_loop_is_stopped_and_nodes_start() {
    let mut server = Server::start_steady(&[]);
    let greedy = remote(&server);
    let refused = (0..1_000).find_map(|_| greedy.grant(3_600_000).err()).expect("there is a quota");
    assert!(matches!(refused, ClusterError::Refused(CoordinatorRefusal::Quota { .. })), "{refused}");
    server.kill_node();
    server.wait_ready();
    let said = server.cell(&["put", "--timeout", "60s", "key", "value"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// A file with a reader and a writer, by the SHA-256 of "token of the reader" and "token of the writer".
const TOKENS: &str = "\
    reader one e851021739bdc2ea5ed81d5295577a80364cdf77bea03c40fe84f159710c52ac\n\
    writer two 50e2be92967de73f7ec89deb93094046d2ef63ac1b8db1803234d435285f2386\n";

#[test]
fn tokens_are_asked_for_over_tcp_and_their_roles_decide() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("tokens");
    fs::write(&file, TOKENS).unwrap();
    let server = Server::start_steady(&["--tokens-file", file.to_str().unwrap()]);
    let code = |command: &[&str], token: &str| {
        let (name, rest) = command.split_first().unwrap();
        let flags = [&[*name, "--transport", "tcp", "--timeout", "2s"][..], &token_flags(token), rest];
        let said = server.cell(&flags.concat());
        let hint = said.err.contains("--token");
        assert_eq!(said.code == Some(1), hint, "{said:?}");
        said.code
    };
    let (put, get) = (["put", "key", "value"], ["get", "key"]);
    for unknown in ["", "guessed"] {
        assert_eq!((code(&put, unknown), code(&get, unknown)), (Some(1), Some(1)));
    }
    assert_eq!(code(&put, "token of the writer"), Some(0));
    assert_eq!(code(&get, "token of the writer"), Some(0));
    assert_eq!(code(&get, "token of the reader"), Some(0));
    assert_eq!(code(&["get", "--search", "client", "key"], "token of the reader"), Some(0));
    assert_eq!(code(&put, "token of the reader"), Some(1));
    // Over shared memory the kernel says who asks.
    for command in [&put[..], &get, &["status"]] {
        let (name, rest) = command.split_first().unwrap();
        let said = server.cell(&[&[*name, "--transport", "shm"][..], rest].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

fn token_flags(token: &str) -> Vec<&str> {
    if token.is_empty() { Vec::new() } else { vec!["--token", token] }
}

/// A file with a viewer, by the SHA-256 of "token of the viewer".
const VIEWER: &str = "viewer one 0b284366ce1c7437af56420b6e273fec28dc367eb52b928b1b2998f43770abed\n";

/// The node says over the fabric where its HTTP is, to whoever has a token where the kernel names nobody.
#[test]
fn commands_that_find_http_by_the_fabric_give_it_their_token() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("tokens");
    fs::write(&file, VIEWER).unwrap();
    let flags = ["--fabric-shm", "off", "--tokens-file", file.to_str().unwrap()];
    let server = Server::start_steady(&flags);
    let address = server.address().to_string();
    for (token, code) in [("token of the viewer", 0), ("guessed", 1)] {
        let said = program::run(&["node", "ls", "--server", &address, "--token", token]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert_eq!(said.err.contains("give a token"), code == 1, "{said:?}");
    }
}

/// A client goes on where it was; what answers there by now is another cluster.
#[test]
fn client_of_a_cluster_that_is_gone_writes_nothing_to_the_one_in_its_place() {
    let mut server = Server::start_steady(&[]);
    let options = ClientOptions { transport: Transport::Tcp, deadline_ms: 5_000, ..ClientOptions::default() };
    let mut client = Client::connect(&server.address().to_string(), options).expect("the server is there");
    client.put(b"early", b"value").expect("it is served");
    server.kill_all();
    fs::remove_dir_all(server.folder()).unwrap();
    server.resume();
    let error = client.put(b"late", b"value").expect_err("this is another cluster");
    assert!(format!("{error:?}").contains("OtherCluster"), "{error:?}");
    let said = server.cell(&["get", "late"]);
    assert_ne!(said.code, Some(0), "{said:?}");
}

/// Unix sockets have short paths; a data folder need not.
#[test]
fn folder_with_a_long_path_is_served_and_asked_by_it() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = (0..3).fold(temporary.path().to_owned(), |path, _| path.join("x".repeat(60)));
    fs::create_dir_all(&folder).unwrap();
    let mut server = Server::prepared(&folder.join("data"), &["--allow-drills"]);
    server.resume();
    let said = server.cell(&["put", "key", "value"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let socket = server.coordinator();
    let said = program::run(&["inspect", "table", "--coordinator", socket.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = program::run(&["drill", "ls", "--dir", server.folder().to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
