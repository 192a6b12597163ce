//! Data folders that are in use, of another format, damaged, or not whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cell_client::{Client, ClientOptions};
use cell_tests::server::Server;
use cell_tests::traffic::repeated;
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Where a frame's header keeps what these tests change; see `wal/src/frame.rs`. These places hold in every
/// version.
const MAGIC: &[u8] = b"CellFram";
const VERSION_AT: usize = 8;
const CHECK_AT: usize = 120;
const FRAME_ALIGN: usize = 4096;

/// A server with some data that was killed, so that everything is in its logs alone.
fn killed_with_data() -> Server {
    let mut server = Server::start();
    for number in 0..50 {
        let key = format!("key-{number:02}");
        assert_eq!(server.cell(&["put", &key, "value"]).code, Some(0));
    }
    server.kill_all();
    server
}

fn assert_data(server: &Server) {
    let said = server.cell(&["count"]);
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "50"), "{said:?}");
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Log segments, sorted.
fn segments(server: &Server) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&server.folder().join("log"), &mut found);
    // A node that was killed within its trial of the disk has left some that are no log's.
    found.retain(|path| !path.to_string_lossy().contains("/flush-trial-"));
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-")));
    found.sort();
    assert!(found.len() >= 2, "a pair has two logs");
    found
}

/// Starts a server and demands that it ends by itself without ever having served; returns what it said.
#[track_caller]
fn refused(server: &mut Server) -> String {
    let before = server.log().len();
    server.launch();
    let code = server.wait_end();
    let said = server.log()[before..].to_owned();
    assert!(code.is_some_and(|code| code != 0), "exit code {code:?}: {said}");
    assert!(!said.contains("is up"), "it served: {said}");
    said
}

fn crc64(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    digest.write(bytes);
    digest.sum64()
}

/// Gives every frame of a segment another format version.
fn set_version(path: &Path, version: u32) {
    let mut bytes = fs::read(path).expect("a segment can be read");
    for frame in bytes.chunks_mut(FRAME_ALIGN).filter(|frame| frame.starts_with(MAGIC)) {
        frame[VERSION_AT..VERSION_AT + 4].copy_from_slice(&version.to_le_bytes());
        let check = crc64(&frame[..CHECK_AT]);
        frame[CHECK_AT..CHECK_AT + 8].copy_from_slice(&check.to_le_bytes());
    }
    fs::write(path, bytes).expect("a segment can be written");
}

#[test]
fn second_process_on_one_folder_is_refused_and_the_first_goes_on() {
    let first = Server::start_steady(&[]);
    assert_eq!(first.cell(&["put", "k", "v"]).code, Some(0));
    let mut second = Server::prepared(first.folder(), &[]);
    second.log_to(&first.folder().with_file_name("second.server-log"));
    let said = refused(&mut second);
    assert!(said.contains("held") && said.contains("another --dir"), "{said}");
    let got = first.cell(&["get", "k"]);
    assert_eq!((got.code, got.out.trim_end()), (Some(0), "v"));
}

#[test]
fn folder_of_another_log_format_is_refused_by_version_and_kept() {
    let mut server = killed_with_data();
    let segments = segments(&server);
    segments.iter().for_each(|path| set_version(path, 99));
    let said = refused(&mut server);
    assert!(said.contains("version 99"), "{said}");
    // Nothing was changed: with the right version again, everything is there.
    segments.iter().for_each(|path| set_version(path, 1));
    server.resume();
    assert_data(&server);
}

#[test]
fn damage_before_the_tail_is_refused_with_file_and_offset() {
    let mut server = killed_with_data();
    let path = segments(&server)[0].clone();
    let mut bytes = fs::read(&path).expect("a segment can be read");
    // The second frame: a batch that others follow.
    bytes[FRAME_ALIGN + 200] ^= 0x40;
    fs::write(&path, &bytes).expect("a segment can be written");
    let said = refused(&mut server);
    assert!(said.contains("segment-00000000.log") && said.contains("4096"), "{said}");
    assert!(said.contains("cell inspect"), "{said}");
    bytes[FRAME_ALIGN + 200] ^= 0x40;
    fs::write(&path, &bytes).expect("a segment can be written");
    server.resume();
    assert_data(&server);
}

#[test]
fn log_folder_missing_is_reported_never_served_empty() {
    let mut server = killed_with_data();
    let folder = segments(&server)[0].parent().expect("a segment is in a folder").to_owned();
    let aside = server.folder().join("aside");
    fs::rename(&folder, &aside).expect("a folder can be renamed");
    let said = refused(&mut server);
    assert!(said.contains("region-"), "{said}");
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&aside, &folder).expect("a folder can be renamed");
    server.resume();
    assert_data(&server);
}

#[test]
fn logs_without_a_region_table_are_not_taken_for_a_first_start() {
    let mut server = killed_with_data();
    let table = server.folder().join("coordinator");
    let aside = server.folder().with_file_name("table-aside");
    fs::rename(&table, &aside).expect("a folder can be renamed");
    // Once, and with an end: it was started again and again.
    let said = refused(&mut server);
    assert!(said.contains("which the table does not know"), "{said}");
    assert!(said.contains("next: the logs and the coordinator are of two stores"), "{said}");
    assert_eq!(said.matches("node 0 died").count(), 2, "as an event and as the end: {said}");
    let _ = fs::remove_dir_all(&table);
    fs::rename(&aside, &table).expect("a folder can be renamed");
    server.resume();
    assert_data(&server);
}

/// Another store's log folder in the place of the own one.
#[test]
fn logs_of_another_store_are_refused_by_the_log_roots_id() {
    let (mut server, mut other) = (killed_with_data(), Server::start());
    other.kill_all();
    let [logs, theirs] = [&server, &other].map(|server| server.folder().join("log"));
    let aside = server.folder().join("aside");
    fs::rename(&logs, &aside).expect("a folder can be renamed");
    fs::rename(&theirs, &logs).expect("a folder can be renamed");
    let said = refused(&mut server);
    assert!(said.contains("does not fit the cluster: the log root's id is "), "{said}");
    assert!(said.contains("next: logs and coordinator are of two stores: "), "{said}");
    fs::rename(&logs, &theirs).expect("a folder can be renamed");
    fs::rename(&aside, &logs).expect("a folder can be renamed");
    server.resume();
    assert_data(&server);
}

/// A node of this cluster that the supervisor does not run, over another log root; what it says as it ends.
#[track_caller]
fn node_over(server: &Server, data: &Path, log_root: &Path) -> (Option<i32>, String) {
    let mut command = server.node_command(1);
    command.arg("--data-dir").arg(data).arg("--log-root").arg(log_root);
    command.arg("--ready-memory-bytes=0").stderr(Stdio::piped());
    let output = command.output().expect("cell can be started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn log_root_that_is_not_the_clusters_is_refused() {
    let server = Server::start_steady(&[]);
    let own = tempfile::tempdir().expect("a temporary folder can be made");
    let (data, others) = (own.path().join("data"), own.path().join("log"));
    fs::create_dir(&others).expect("a folder can be made");
    // Where the cluster's is not mounted there is an empty folder: the next start may find it mounted.
    let (code, said) = node_over(&server, &data, &others);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not fit the cluster: the log root's id is "), "{said}");
    assert!(said.contains("next: logs and coordinator are of two stores: mount"), "{said}");

    let (code, said) = node_over(&server, &data, &own.path().join("missing"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`log_root` cannot be `") && said.contains("it is not there"), "{said}");
    assert!(!own.path().join("missing").exists(), "it is not made");
    // A folder that nobody can write to, root included.
    let (code, said) = node_over(&server, &data, Path::new("/proc"));
    assert!(code.is_some_and(|code| code != 0) && said.contains("/proc"), "{code:?}: {said}");
    assert_eq!(server.cell(&["status"]).code, Some(0), "the cluster has not noticed");
}

/// What `umount -l` does to a path, and a mount.
fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("two folders can change their names");
}

/// The next segments were made in the folder that had the log root's path, and what was acknowledged there
/// was gone when the log root was back.
#[test]
fn log_root_that_is_unmounted_under_its_node_loses_nothing_and_is_served_once_it_is_back() {
    const PUTS: u32 = 400; // far more than there are segments for when the log root goes
    let mut server = Server::start_steady(&["--log-segment-bytes", "4MiB"]);
    let [logs, below] = ["log", "below"].map(|name| server.folder().join(name));
    fs::create_dir(&below).expect("a folder can be made");
    let address = server.address().to_string();
    let connect = |deadline_ms| {
        let options = ClientOptions { deadline_ms, ..ClientOptions::default() };
        Client::connect(&address, options).expect("the server is there")
    };
    let key = |number: u32| format!("key-{number:03}").into_bytes();
    let value = |number: u32| repeated(&format!("{number};"), 100 << 10);
    let mut client = connect(3_000);
    client.put(&key(0), &value(0)).expect("it is served");
    let mut acknowledged = vec![0];
    exchange(&logs, &below);
    for number in 1..PUTS {
        let put = client.put(&key(number), &value(number));
        if put.is_ok() {
            acknowledged.push(number);
        } else if server.log().contains("the log root may have been unmounted") {
            break;
        }
    }
    drop(client);
    assert!(acknowledged.last() < Some(&(PUTS - 1)), "it has got segments elsewhere");
    server.wait_log(0, "nothing is stored here"); // a node that was started again
    let names = fs::read_dir(&logs).expect("it is there").map(|entry| entry.expect("an entry").file_name());
    let stored =
        names.filter(|name| ["region-", "pair-"].iter().any(|of| name.to_string_lossy().starts_with(of)));
    assert_eq!(stored.count(), 0);

    exchange(&logs, &below);
    server.wait_ready();
    let mut client = connect(60_000);
    for number in acknowledged {
        let item = client.get(&key(number)).expect("it is served again, by itself");
        assert!(item.is_some_and(|item| item.value == value(number)), "{number}");
    }
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn geometry_other_than_the_folders_is_refused_with_both() {
    let mut server = killed_with_data();
    server.set_flags(&["--tree-node-bytes", "2KiB"]);
    let said = refused(&mut server);
    assert!(said.contains("tree_node_bytes") && said.contains("1024") && said.contains("2048"), "{said}");
    server.set_flags(&[]);
    server.resume();
    assert_data(&server);
}
