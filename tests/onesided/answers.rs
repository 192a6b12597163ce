//! What clients find that search a tree of many meganodes themselves is what the server finds in it.

use cell_client::{Condition, Operation, ScanRange, Search, Transport};
use cell_tests::server::Server;

use crate::onesided::clients::{PATIENCE, client, fell_back_within_time};

pub(crate) fn answers_are_the_servers(transports: &[Transport], flags: &[&str], entries: u32) {
    // Small slots: the tree grows over many meganodes and pairs.
    let small = ["--slot-bytes", "1MiB", "--node-region-bytes", "4MiB"];
    let server = Server::start_steady(&[&small[..], flags].concat());
    let mut asking = client(&server, Transport::Tcp, Search::Server);
    for number in 0..entries {
        let key = format!("key-{:06}", number.wrapping_mul(7_919) % entries);
        let value = vec![b'v'; (number % 300) as usize];
        let operation = Operation::Put { key: key.as_bytes(), value: &value, condition: Condition::Always };
        while asking.submit(&operation).is_err() {
            asking.poll(PATIENCE).expect("something completes").outcome.expect("it is written");
        }
    }
    while let Some(completion) = asking.poll(PATIENCE) {
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
                counters.done > u64::from(entries / 600)
                    && fell_back_within_time(&counters) * 10 < counters.started,
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
