//! The coordinator's door: for the cluster's own user and root, and what comes through it breaks nothing.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use cell_client::{Client, ClientError, ClientOptions, Search, Transport};
use cell_cluster::{ClusterError, Coordinator, CoordinatorRefusal, Remote, Transaction};
use cell_tests::server::Server;
use cell_tests::{program, stranger, wait};
use rustix::process::{Signal, kill_process};

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

/// The table of the coordinator has the secret by which nodes know each other: everybody could read it.
#[test]
fn files_of_a_cluster_are_its_users_alone() {
    let server = Server::start_steady(&["--allow-drills"]);
    let said = server.cell(&["put", "key", "value"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut folders = vec![server.folder().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue }; // it has just been removed
        for entry in entries {
            let path = entry.unwrap().path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue }; // it has just been removed
            let mode = metadata.permissions().mode() & 0o777;
            // A folder can be passed through, for those who may talk to a socket in it, and not looked into.
            let permitted = if metadata.is_dir() { 0o711 } else { 0o600 };
            assert_eq!(mode & !permitted, 0, "{} {mode:o}", path.display());
            files += 1;
            folders.extend(metadata.is_dir().then_some(path));
        }
    }
    assert!(files > 10, "{files}");
    let coordinator = server.folder().join("coordinator");
    assert_eq!(fs::metadata(coordinator).unwrap().permissions().mode() & 0o777, 0o700);
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
        let flags = [&[*name, "--transport", "tcp", "--timeout", "300s"][..], &token_flags(token), rest];
        let said = server.cell(&flags.concat()); // of nothing that is refused the deadline is awaited
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
    let flags =
        ["put", "--transport", "tcp", "--timeout", "300s", "--token", "token of the reader", "a", "b"];
    let said = server.cell(&flags);
    assert!(said.err.contains("needs a token with the role writer"), "{said:?}");
    // Over shared memory the kernel says who asks.
    for command in [&put[..], &get, &["status"]] {
        let (name, rest) = command.split_first().unwrap();
        let said = server.cell(&[&[*name, "--transport", "shm"][..], rest].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

/// A node's own clients had no token to show where there is no shared memory.
#[test]
fn entries_are_read_over_http_without_shared_memory_by_readers_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("tokens");
    fs::write(&file, TOKENS.to_owned() + VIEWER).unwrap();
    let flags = ["--fabric-shm", "off", "--tokens-file", file.to_str().unwrap()];
    let server = Server::start_steady(&flags);
    let put = ["put", "--token", "token of the writer", "a-key", "a-value"];
    let said = server.cell(&put);
    assert_eq!(said.code, Some(0), "{said:?}");
    wait::until("the node's own client is let in", || {
        let answer = server.http_as("token of the reader", "/api/v1/kv/612d6b6579");
        answer.is_some_and(|(status, body)| status == 200 && body.contains("a-value"))
    });
    let refused = server.http_as("token of the viewer", "/api/v1/kv/612d6b6579");
    assert_eq!(refused.map(|(status, _)| status), Some(403));
    assert_eq!(server.http("/api/v1/kv/612d6b6579").map(|(status, _)| status), Some(401));
}

/// A token that is taken back: who is connected is out, over each way, and writes and reads nothing more.
#[test]
fn token_that_is_taken_back_ends_connections_and_one_sided_reads() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("tokens");
    fs::write(&file, TOKENS).unwrap();
    let flags = ["--nodes", "2", "--allow-drills", "--tokens-file", file.to_str().unwrap()];
    let server = Server::start_steady(&flags);
    server.wait_healthy();
    let connect = |token: &str, search| {
        let options = ClientOptions {
            transport: Transport::Tcp,
            token: token.as_bytes().to_vec(),
            deadline_ms: 600_000,
            search,
            ..ClientOptions::default()
        };
        Client::connect(&server.address().to_string(), options).expect("the token is known")
    };
    let [mut writer, mut one_sided] =
        [("token of the writer", Search::Server), ("token of the reader", Search::Client)]
            .map(|(token, search)| connect(token, search));
    let keys: Vec<String> = "0AKagpz".chars().map(|first| format!("{first}-key")).collect();
    for key in &keys {
        writer.put(key.as_bytes(), b"value").expect("the writer may");
        one_sided.get(key.as_bytes()).expect("the reader may");
    }
    fs::write(&file, "reader other 0b284366ce1c7437af56420b6e273fec28dc367eb52b928b1b2998f43770abed\n")
        .unwrap();
    let reload = |node| kill_process(node, Signal::HUP).expect("a node can be signalled");
    server.nodes().into_iter().for_each(reload);
    // It takes a moment; then nothing is answered any more, and none of it is waited for.
    wait::until("nothing is written any more", || {
        keys.iter().all(|key| matches!(writer.put(key.as_bytes(), b"late"), Err(ClientError::Unauthorized)))
    });
    wait::until("nothing is read any more", || {
        keys.iter().all(|key| matches!(one_sided.get(key.as_bytes()), Err(ClientError::Unauthorized)))
    });
}

fn token_flags(token: &str) -> Vec<&str> {
    if token.is_empty() { Vec::new() } else { vec!["--token", token] }
}

/// A file with a viewer, by the SHA-256 of "token of the viewer".
const VIEWER: &str = "viewer three 0b284366ce1c7437af56420b6e273fec28dc367eb52b928b1b2998f43770abed\n";

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
