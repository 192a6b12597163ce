//! Clients that search a real server's memory themselves, beside writers, over each transport: every key
//! linearizable, scans and multi-gets what the server says they are.

use std::time::{Duration, Instant};

use cell_client::{
    Client, ClientOptions, Condition, OneSidedCounters, Operation, ScanRange, Search, Transport,
};
use cell_tests::linearizability;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

const CLIENTS: u64 = 6;
/// Operations of all clients together, about a fifth of them one-sided reads.
const OPERATIONS: u64 = 10_000;

/// How long so much load may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until there was as much load, however long this machine takes for it.
#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
fn wait_load(traffic: &Traffic, operations: u64) {
    let deadline = Instant::now() + PATIENCE;
    while traffic.recorder.ticks() < 2 * operations {
        assert!(Instant::now() < deadline, "the clients stand still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn client(server: &Server, transport: Transport, search: Search) -> Client {
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

fn meet(transport: Transport) {
    meet_at(transport, &[], OPERATIONS);
}

fn meet_at(transport: Transport, flags: &[&str], least: u64) {
    let server = Server::start_with(flags);
    let traffic = Traffic::new(server.address()).over(transport);
    let mut counters = OneSidedCounters::default();
    std::thread::scope(|scope| {
        let traffic = &traffic;
        let meeting: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || traffic.meet(client, Duration::from_secs(20))))
            .collect();
        let ending = traffic.ending();
        wait_load(traffic, least);
        drop(ending);
        for client in meeting {
            counters.add(&client.join().expect("a client that met others did not panic"));
        }
    });
    assert!(counters.done > least / 20, "{counters:?}");
    assert!(counters.fell_back * 5 < counters.begun, "most are answered one-sided: {counters:?}");
    let mut operations = 0;
    for (key, history) in traffic.recorder.into_history() {
        operations += history.len();
        if let Err(violation) = linearizability::check(&history, None) {
            panic!("{} is not linearizable: {violation:?}\n{history:#?}", key.escape_ascii());
        }
    }
    println!("{transport:?}: {operations} operations checked; {counters:?}");
}

#[test]
fn clients_on_both_paths_over_tcp_are_linearizable() {
    meet(Transport::Tcp);
}

#[test]
fn clients_on_both_paths_over_shared_memory_are_linearizable() {
    meet(Transport::Shm);
}

#[test]
fn one_sided_answers_are_the_servers_answers() {
    answers_are_the_servers(&[Transport::Tcp, Transport::Shm], &[], 30_000);
}

fn answers_are_the_servers(transports: &[Transport], flags: &[&str], entries: u32) {
    // Small slots: the tree grows over many meganodes and pairs.
    let small = ["--slot-bytes", "1MiB", "--node-region-bytes", "4MiB"];
    let server = Server::start_with(&[&small[..], flags].concat());
    let mut asking = client(&server, Transport::Tcp, Search::Server);
    for number in 0..entries {
        let key = format!("key-{:06}", number.wrapping_mul(7_919) % entries);
        let value = vec![b'v'; (number % 300) as usize];
        let operation = Operation::Put { key: key.as_bytes(), value: &value, condition: Condition::Always };
        while asking.submit(&operation).is_err() {
            asking
                .poll(Duration::from_secs(10))
                .expect("something completes")
                .outcome
                .expect("it is written");
        }
    }
    while let Some(completion) = asking.poll(Duration::from_secs(10)) {
        completion.outcome.expect("it is written");
    }
    let long = vec![7; 3 << 20];
    asking.put(b"long", &long).expect("it is written");
    let ways =
        transports.iter().flat_map(|transport| [(*transport, Search::Client), (*transport, Search::Auto)]);
    for (transport, search) in ways {
        let mut reading = client(&server, transport, search);
        assert_eq!(reading.get(b"long").expect("a read").map(|item| item.value), Some(long.clone()));
        for range in [
            ScanRange::default(),
            ScanRange { reverse: true, ..ScanRange::default() },
            ScanRange { keys_only: true, limit: 1_234, ..ScanRange::prefix(b"key-01") },
        ] {
            let own: Vec<_> = reading.scan(range.clone()).map(|entry| entry.expect("an entry")).collect();
            let servers: Vec<_> = asking.scan(range).map(|entry| entry.expect("an entry")).collect();
            assert!(own == servers, "{transport:?}: {} and {} entries", own.len(), servers.len());
        }
        let keys: Vec<String> = (0..2_000).map(|number| format!("key-{:06}", number * 17)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let own = reading.multi_get(&keys).expect("a read");
        assert_eq!(own, asking.multi_get(&keys).expect("a read"));
        let counters = reading.one_sided_counters().copied().expect("this client searches itself");
        match reading.selector_report() {
            None => assert!(
                counters.done > u64::from(entries / 600) && counters.fell_back * 10 < counters.begun,
                "{counters:?}"
            ),
            Some(report) => {
                let decisions = report.decisions;
                assert!(decisions.server > 0 && decisions.one_sided > 0, "{decisions:?}");
                assert!(report.estimates.server_ns.is_some_and(|ns| ns > 0.0), "{report:?}");
            }
        }
    }
}

/// Over RDMA, on a device that the machine has: in `tests/rdma-vm`, or on hardware.
#[cfg(feature = "verbs")]
mod rdma {
    use std::time::{Duration, Instant};

    use cell_client::{ClientOptions, Search, Transport};
    use cell_tests::cluster::signal;
    use cell_tests::server::Server;
    use rustix::process::Signal;

    /// The device takes all of it; an emulated machine takes its time.
    const SMALL: [&str; 4] = ["--extent-region-bytes", "48MiB", "--fabric-verbs", "on"];

    fn is_there() -> bool {
        let there =
            std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
        if !there {
            println!("SKIPPED: no RDMA device");
        }
        there
    }

    #[test]
    fn clients_on_both_paths_over_rdma_are_linearizable() {
        if is_there() {
            let flags = ["--slot-bytes", "4MiB", "--node-region-bytes", "16MiB"];
            super::meet_at(Transport::Verbs, &[&flags[..], &SMALL].concat(), 500);
        }
    }

    #[test]
    fn one_sided_answers_over_rdma_are_the_servers_answers() {
        if is_there() {
            super::answers_are_the_servers(&[Transport::Verbs], &SMALL, 6_000);
        }
    }

    /// Its device goes on answering reads: what they bring is worth nothing once the lease may be over.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "real processes have real time")]
    fn server_that_is_stopped_is_not_believed_past_its_lease() {
        if !is_there() {
            return;
        }
        let flags = ["--slot-bytes", "4MiB", "--node-region-bytes", "16MiB"];
        let server = Server::start_with(&[&flags[..], &SMALL].concat());
        let options = ClientOptions {
            transport: Transport::Verbs,
            search: Search::Client,
            deadline_ms: 3_000,
            ..ClientOptions::default()
        };
        let mut client = cell_client::Client::connect(&server.address().to_string(), options)
            .expect("the server is there");
        client.put(b"key", b"value").expect("it is written");
        for _ in 0..20 {
            assert_eq!(client.get(b"key").expect("a read").map(|item| item.value), Some(b"value".to_vec()));
        }
        let before = client.one_sided_counters().expect("this client searches itself").done;
        assert!(before > 0, "the device was read");
        let node = server.node().expect("the node runs");
        signal(node, Signal::STOP);
        let stopped = Instant::now();
        // Believed for as long as the last reply's lease lasts, and then no more, whatever the device brings.
        while client.get(b"key").is_ok() {
            assert!(stopped.elapsed() < Duration::from_secs(60), "a stopped server is believed for ever");
        }
        let ended = stopped.elapsed();
        assert!(client.get(b"key").is_err(), "and believed again");
        let counters = client.one_sided_counters().copied().expect("this client searches itself");
        signal(node, Signal::CONT);
        println!("a stopped server was not believed any more after {ended:?}; {counters:?}");
    }
}
