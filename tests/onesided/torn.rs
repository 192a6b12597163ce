//! Reads of a leaf that is written all the time: some catch it half written, and none of those is believed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cell_client::{Client, Condition, Operation, Search, Transport};
use cell_tests::ending::Ending;
use cell_tests::server::Server;

use crate::onesided::clients::{PATIENCE, client};

/// Entries of one leaf.
const KEYS: u64 = 20;
/// Times that one multi-get looks for each of them.
const TIMES: usize = 6;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:02}").into_bytes()
}

/// Writes each key in rounds, round after round; all values of one round are its number.
fn write(mut client: Client, written: &AtomicU64, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        for number in 0..KEYS {
            let (key, value) = (key(number), u64::to_le_bytes(round));
            let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
            client.submit(&put).expect("there is room for a round");
        }
        while let Some(completion) = client.poll(PATIENCE) {
            completion.outcome.expect("it is written");
        }
        written.store(round, Ordering::SeqCst);
    }
}

/// Large tree nodes, so that a read takes its time. Reads go on until one was torn; what is answered is the
/// truth of some moment of the call.
#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
pub(crate) fn torn_reads_are_caught(transport: Transport, flags: &[&str]) {
    let server = Server::start_steady(&[&["--tree-node-bytes", "4KiB"], flags].concat());
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect::<Vec<_>>().repeat(TIMES);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop);
        let writing = client(&server, transport, Search::Server);
        scope.spawn(|| write(writing, &written, &stop));
        let mut reading = client(&server, transport, Search::Client);
        let (began, mut calls) = (Instant::now(), 0_u64);
        loop {
            let least = written.load(Ordering::SeqCst);
            let found = reading.multi_get(&keys).expect("a read");
            let most = written.load(Ordering::SeqCst) + 1; // the round that is being written
            for (key, item) in keys.iter().zip(found) {
                let round = item.map_or(0, |item| {
                    u64::from_le_bytes(item.value.try_into().expect("a value is the number of a round"))
                });
                assert!((least..=most).contains(&round), "{}: {round}", key.escape_ascii());
            }
            calls += 1;
            let counters = reading.one_sided_counters().expect("this client searches itself");
            if counters.torn > 0 && calls >= 20 {
                println!("{transport:?}: {calls} multi-gets beside {} rounds of writes", least);
                println!("    {counters:?}");
                break;
            }
            assert!(began.elapsed() < PATIENCE, "none was torn: the test shows nothing; {counters:?}");
        }
    });
}
