//! Who searches, where that is decided for each read: what leads to reads, what to the server.

use cell_client::{ClientOptions, LinkId, Operation, Policy, Search, SelectorSettings};
use cell_protocol::{ClientReportReply, Reply, RequestKind, SettingValues};

use crate::onesided::answers::{filled, key, routed_owner, value};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, ReadHarness};

fn options(fixed_share: f64) -> ClientOptions {
    let selector = SelectorSettings { policy: Policy::Fixed, fixed_share, ..SelectorSettings::default() };
    ClientOptions { search: Search::Auto, selector, ..crate::onesided::read_harness::options() }
}

#[test]
fn share_of_none_for_the_server_reads_and_measures() {
    let mut harness = filled(ReadHarness::with(options(0.0), Owner::new(false), true), 20);
    (0..20).for_each(|number| assert_eq!(harness.get(&key(number)), Some(value(number))));
    let report = harness.core.selector_report().unwrap();
    assert_eq!((report.decisions.one_sided, report.decisions.server), (20, 0));
    assert!(report.estimates.rtt_ns.is_some(), "{report:?}");
    assert!(report.estimates.reads < 5.0, "leaf and extent: {:?}", report.estimates);
    assert!(harness.asked.is_empty());
}

#[test]
fn memory_searched_in_place_is_measured_by_the_next_time_that_is_given() {
    let mut harness = filled(ReadHarness::with(options(0.0), Owner::new(false), true), 20);
    harness.owner.map();
    harness.get(&key(1)); // by reads, which is when regions are mapped
    let before = harness.counters();
    for number in 0..10 {
        harness.submit(&Operation::Get { key: &key(number) });
        harness.validate();
        harness.now_ns += 700;
        harness.run();
    }
    assert_eq!(harness.counters().in_place - before.in_place, 10);
    let estimates = harness.core.selector_report().unwrap().estimates;
    assert_eq!(estimates.rtt_ns, Some(0.0), "reads of the harness take no time");
    assert_eq!(estimates.one_sided_ns, Some(700.0));
}

/// One measured time stands for all that began together: each took its part of it.
#[test]
fn searches_that_begin_together_share_the_time_that_they_took() {
    for together in [1, 2, 40] {
        let mut harness = filled(ReadHarness::with(options(0.0), Owner::new(false), true), 20);
        harness.owner.map();
        harness.get(&key(1));
        let before = harness.counters();
        for number in 0..together {
            harness.submit(&Operation::Get { key: &key(number % 20) });
        }
        harness.validate();
        // Those beyond the first sixteen begin when these are returned.
        for started in (0..together).step_by(16) {
            harness.pass(u64::from(together - started).min(16) * 1_000);
            harness.validate();
        }
        assert_eq!(harness.counters().in_place - before.in_place, u64::from(together));
        let estimates = harness.core.selector_report().unwrap().estimates;
        assert_eq!(estimates.one_sided_ns, Some(1_000.0), "{together} together");
    }
}

#[test]
fn share_of_all_asks_the_server_alone() {
    let mut harness = filled(ReadHarness::with(options(1.0), Owner::new(false), true), 5);
    (0..5).for_each(|number| {
        let _ = harness.submit(&Operation::Get { key: &key(number) });
    });
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get; 5]);
    assert_eq!(harness.core.selector_report().unwrap().decisions.server, 5);
}

#[test]
fn lease_that_is_over_leaves_the_server_alone() {
    let mut harness = filled(ReadHarness::with(options(0.0), Owner::new(false), true), 5);
    harness.lease_us = 0;
    harness.pass(3_600_000_000_000);
    harness.submit(&Operation::Get { key: &key(1) });
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get]);
    let decisions = harness.core.selector_report().unwrap().decisions;
    assert_eq!((decisions.only_server(), decisions.one_sided), (1, 0));
}

#[test]
fn meganodes_behind_a_cached_router_are_distinguished() {
    let selector =
        SelectorSettings { policy: Policy::Paper, exploration: 0.0, ..SelectorSettings::default() };
    let options =
        ClientOptions { search: Search::Auto, selector, ..crate::onesided::read_harness::options() };
    let mut harness = ReadHarness::with(options, routed_owner(), true);
    harness.submit(&Operation::Get { key: &key(150) });
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get], "the server first, for want of samples");
}

/// The client reports, and is answered with values of the cluster.
fn tune(harness: &mut ReadHarness, settings_revision: u64, values: &[(&str, &str)]) {
    harness.answers = false;
    harness.pass(1_000 * MS);
    harness.step();
    assert_eq!(harness.kinds.last(), Some(&RequestKind::Report));
    let (id, mut bytes) = (harness.last_request(), Vec::new());
    let values = SettingValues::List(values);
    let reply = Reply::Reported(ClientReportReply { settings_revision, values });
    reply.encode(&harness.header(id), &mut bytes).unwrap();
    harness.core.message(LinkId::BOOTSTRAP, harness.now_ns, &bytes);
    harness.answers = true;
    harness.run();
}

#[test]
fn cluster_says_who_searches_from_then_on() {
    let options = ClientOptions { report_ms: 1_000, ..options(0.0) };
    let mut harness = filled(ReadHarness::with(options, Owner::new(false), true), 20);
    let asked = |harness: &mut ReadHarness| {
        harness.submit(&Operation::Get { key: &key(1) });
        harness.run();
        harness.core.completion().expect("it is complete");
        std::mem::take(&mut harness.asked)
    };
    assert!(asked(&mut harness).is_empty());
    tune(&mut harness, 1, &[("client_selector_fixed_share", "1")]);
    assert_eq!(asked(&mut harness), [RequestKind::Get], "by the share of the server");
    tune(&mut harness, 2, &[]);
    assert!(asked(&mut harness).is_empty(), "as it began");
    tune(&mut harness, 3, &[("client_search", "server")]);
    assert_eq!(asked(&mut harness), [RequestKind::Get]);
}
