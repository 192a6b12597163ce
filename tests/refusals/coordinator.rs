//! A disk under the coordinator that others fill: leases are kept, what is there is read, and all goes on
//! once there is room, with nobody's help.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cell_client::{Client, ClientOptions};
use cell_cluster::{ClusterError, Coordinator, Embedded, Remote, Sessions, Transaction};
use cell_tests::lease::LONG_LEASE;
use cell_tests::server::Server;
use cell_tests::small_disk::SmallDisk;
use cell_tests::wait;

/// Sessions until the table has grown by two segments: some hundred.
const ROUNDS_MAX: u32 = 6_000;
/// Far more than the coordinator's reserve has room for.
const CHANGES: u32 = 4_000;
const VALUE: usize = 4_000;

fn table_bytes(coordinator: &Path) -> u64 {
    fs::metadata(coordinator.join("table/db")).map_or(0, |about| about.len())
}

/// Writes rows until there is no room for one; how many it took.
fn fill_table(coordinator: &Embedded) -> u32 {
    for row in 0..CHANGES {
        match coordinator.transact(Transaction::new().put(format!("k/{row}"), "x".repeat(VALUE))) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_refused_for_room(), "not tried what could not be done: {error}");
                return row;
            }
        }
    }
    panic!("it never filled");
}

#[test]
fn coordinator_on_a_full_disk_keeps_leases_opens_again_and_goes_on_with_room() {
    let Some(disk) = SmallDisk::new(48) else { return };
    let folder = disk.path().join("coordinator");
    let coordinator = Embedded::open(&folder).expect("there is room for a table");
    let lease = coordinator.grant(3_600_000).expect("there is room for a lease").lease;
    disk.fill();
    let mut rows = fill_table(&coordinator);
    assert!(rows > 20, "{rows} rows fitted into the reserve");
    coordinator.keep_alive(lease).expect("leases are renewed");
    assert_eq!(coordinator.list("k/").expect("rows are read").entries.len() as u64, u64::from(rows));
    // The next process finds the disk as it is.
    drop(coordinator);
    let is_held = |error: &ClusterError| format!("{error:?}").contains("could not acquire lock");
    let coordinator = wait::until_some("sled has let go of its file", || match Embedded::open(&folder) {
        Err(error) if is_held(&error) => None,
        opened => Some(opened.expect("a table is opened on a full disk")),
    });
    coordinator.keep_alive(lease).expect("its leases are there");
    disk.make_room();
    wait::until("changes go on", || {
        let put = coordinator.transact(Transaction::new().put(format!("k/{rows}"), ""));
        put.inspect_err(|error| assert!(error.is_refused_for_room(), "{error}")).is_ok()
    });
    rows += 1;
    assert_eq!(coordinator.list("k/").expect("rows are read").entries.len() as u64, u64::from(rows));
}

/// Of the commands of a shell each opens a session and ends it; the coordinator's file grows by that.
fn short_put(server: &Server, number: u32) -> Result<(), cell_client::ClientError> {
    let options = ClientOptions { deadline_ms: 3_000, retries_max: 3, ..ClientOptions::default() };
    let mut client = Client::connect(&server.address().to_string(), options)?;
    client.put(format!("short-{:03}", number % 50).as_bytes(), &number.to_le_bytes())?;
    client.close();
    Ok(())
}

#[test]
fn disk_filled_by_others_costs_no_node_and_no_session_is_left() {
    let Some(disk) = SmallDisk::new(256) else { return };
    let flags = [&["--nodes", "2", "--allow-drills", "--log-segment-bytes", "4MiB"][..], &LONG_LEASE[..]];
    let mut server = Server::prepared(&disk.path().join("data"), &flags.concat());
    server.resume();
    server.wait_healthy();
    let mut connected = Client::connect(&server.address().to_string(), ClientOptions::default())
        .expect("the server is there");
    for number in 0..50 {
        short_put(&server, number).expect("there is room");
    }
    connected.put(b"kept", b"1").expect("there is room");
    let processes = server.view().processes();
    let remote = Arc::new(Remote::new(server.coordinator(), Duration::from_secs(30)));
    let keeper = remote.grant(3_600_000).expect("there is room").lease;
    let sessions = Sessions::new(remote);
    disk.fill();
    // Two segments of the table's file more than there was room for: it failed at the first.
    let coordinator = server.folder().join("coordinator");
    let (before, mut rounds) = (table_bytes(&coordinator), 0);
    while table_bytes(&coordinator) < before + (1 << 20) {
        assert!(rounds < ROUNDS_MAX, "the table has {} bytes after {before}", table_bytes(&coordinator));
        let session = sessions.open(keeper).expect("sessions are opened out of the reserve");
        sessions.end(session).expect("and ended");
        rounds += 1;
    }
    println!("the table has grown after {rounds} sessions");
    for number in 50..60 {
        short_put(&server, number).expect("the log has room for some");
    }
    assert!(connected.get(b"kept").expect("reads go on").is_some());
    assert!(connected.delete(b"kept").expect("deletes go on"));
    assert_eq!(server.view().processes(), processes, "no node has lost its lease");
    disk.make_room();
    short_put(&server, 60).expect("there is room again");
    // Who is connected still has a session; all others are gone, with their rows.
    assert_eq!(sessions.open_sessions().expect("the coordinator answers").0.len(), 1);
    for number in 11..=60_u32 {
        let found = connected.get(format!("short-{:03}", number % 50).as_bytes()).expect("reads go on");
        assert_eq!(found.expect("it was acknowledged").value, number.to_le_bytes());
    }
    assert_eq!(server.view().processes(), processes);
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    drop(connected);
    server.kill_all();
}

/// Commands that end, by either transport, leave no session behind.
#[test]
fn commands_leave_no_session_behind() {
    let server = Server::start_steady(&[]);
    for transport in ["tcp", "shm", "auto"] {
        for number in 0..10 {
            let key = format!("{transport}-{number}");
            let put = server.cell(&["put", "--transport", transport, &key, "value"]);
            assert_eq!(put.code, Some(0), "{put:?}");
            let deleted = server.cell(&["del", "--transport", transport, &key]);
            assert_eq!(deleted.code, Some(0), "{deleted:?}");
        }
    }
    let sessions = Sessions::new(Arc::new(Remote::new(server.coordinator(), Duration::from_secs(10))));
    assert_eq!(sessions.open_sessions().expect("the coordinator answers").0, []);
}
