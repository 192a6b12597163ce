//! A client with sixteen searches in hand: those that follow each other on one path share messages, and the
//! first ones after a change of paths take longer than the path does.

use cell_selector::{Policy, Question, Sample, SearchKind, SearchPath, Selector, SelectorSettings};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const KIND: SearchKind = SearchKind::Point;
const IN_HAND: u32 = 16;
/// So many searches after a change take longer.
const CHANGE: u32 = 30;

/// What a search takes while its path is kept, and after a change to it.
#[derive(Clone, Copy)]
struct Path {
    kept_ns: u64,
    changed_ns: u64,
}

impl Path {
    const fn steady(latency_ns: u64) -> Path {
        Path { kept_ns: latency_ns, changed_ns: latency_ns }
    }
}

/// What came of a second half.
#[derive(Debug, Default)]
struct Outcome {
    server: u32,
    one_sided: u32,
    changes: u32,
    server_ns: u64,
    one_sided_ns: u64,
}

/// Works for so long. A search takes its part of the sixteen's latency, and is answered when sixteen others
/// were asked for.
fn work(server: Path, one_sided: Path, lasts_ns: u64) -> Outcome {
    let settings = SelectorSettings { policy: Policy::Adaptive, ..SelectorSettings::default() };
    let mut selector = Selector::new(settings, Xoshiro256PlusPlus::seed_from_u64(5));
    let mut outcome = Outcome::default();
    let (mut now_ns, mut before, mut since) = (1_u64, SearchPath::Server, u32::MAX);
    let mut in_flight = std::collections::VecDeque::new();
    while now_ns < lasts_ns {
        let in_hand = IN_HAND - 1;
        let question = Question { now_ns, kind: KIND, meganode: None, one_sided: Ok(()), in_hand };
        let path = selector.decide(&question).path;
        let is_change = path != before;
        since = if is_change { 0 } else { since.saturating_add(1) };
        before = path;
        let Path { kept_ns, changed_ns } = if path == SearchPath::Server { server } else { one_sided };
        let latency_ns = if since < CHANGE { changed_ns } else { kept_ns };
        let takes_ns = latency_ns / u64::from(IN_HAND);
        now_ns += takes_ns;
        in_flight.push_back((path, latency_ns));
        if in_flight.len() == IN_HAND as usize {
            let answered = in_flight.pop_front();
            match answered.expect("there are sixteen") {
                (SearchPath::Server, latency_ns) => {
                    selector.on_sample(now_ns, Sample::Server { kind: KIND, latency_ns });
                }
                (SearchPath::OneSided, latency_ns) => {
                    selector.on_sample(now_ns, Sample::Read { kind: KIND, latency_ns });
                    let sample = Sample::OneSided { kind: KIND, meganode: None, latency_ns, reads: 1 };
                    selector.on_sample(now_ns, sample);
                }
            }
        }
        if now_ns > lasts_ns / 2 {
            outcome.changes += u32::from(is_change);
            match path {
                SearchPath::Server => (outcome.server += 1, outcome.server_ns += takes_ns),
                SearchPath::OneSided => (outcome.one_sided += 1, outcome.one_sided_ns += takes_ns),
            };
        }
    }
    outcome
}

const SECOND_NS: u64 = 1_000_000_000;

/// As measured over TCP: sixteen reads of leaves are back after 45 us if all are reads, and sixteen answers
/// of the server after 80 us.
#[test]
fn path_that_is_cheap_only_while_it_is_kept_is_found() {
    for changed_ns in [45_000, 150_000, 300_000] {
        let reads = Path { kept_ns: 45_000, changed_ns };
        let outcome = work(Path::steady(80_000), reads, 2 * SECOND_NS);
        assert!(outcome.server_ns * 20 < outcome.one_sided_ns, "{changed_ns}: {outcome:?}");
    }
    let server = Path { kept_ns: 45_000, changed_ns: 150_000 };
    let outcome = work(server, Path::steady(80_000), 2 * SECOND_NS);
    assert!(outcome.one_sided_ns * 20 < outcome.server_ns, "{outcome:?}");
}

#[test]
fn searches_of_one_path_follow_each_other() {
    let outcome = work(Path::steady(60_000), Path::steady(60_000), 2 * SECOND_NS);
    let fewer = outcome.server.min(outcome.one_sided);
    assert!(fewer > 1_000 && outcome.changes * IN_HAND < fewer, "{outcome:?}");
}

/// Scans: what a message costs is little beside them, and drawn one by one they keep both paths at work.
#[test]
fn long_searches_are_drawn_each_for_itself() {
    let outcome = work(Path::steady(480_000), Path::steady(480_000), 4 * SECOND_NS);
    let fewer = outcome.server.min(outcome.one_sided);
    assert!(fewer > 1_000 && outcome.changes > fewer / 4, "{outcome:?}");
}

#[test]
fn path_that_is_very_slow_takes_a_small_part_of_the_time() {
    let outcome = work(Path::steady(4_000_000), Path::steady(60_000), 10 * SECOND_NS);
    assert!(outcome.server > 0 && outcome.server_ns * 50 < outcome.one_sided_ns, "{outcome:?}");
}

/// As measured over shared memory with half of the worker's core taken. A run on the slower path takes a
/// millisecond: taken each 50 ms it would cost twice what exploration may.
#[test]
fn runs_that_explore_cost_little_more_than_a_hundredth_of_the_time() {
    let outcome = work(Path::steady(145_000), Path::steady(16_000), 20 * SECOND_NS);
    let part = outcome.server_ns as f64 / (outcome.server_ns + outcome.one_sided_ns) as f64;
    assert!(outcome.server > 100 && part < 0.018, "{part}, {outcome:?}");
}
