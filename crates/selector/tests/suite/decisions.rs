//! Decisions and their reasons, policy by policy.

use cell_selector::{
    MeganodeId, Obstacle, Policy, Question, Reason, Sample, SearchKind, SearchPath, Selector,
    SelectorSettings,
};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const POINT: SearchKind = SearchKind::Point;

fn selector(settings: SelectorSettings) -> Selector {
    Selector::new(settings, Xoshiro256PlusPlus::seed_from_u64(3))
}

fn of_policy(policy: Policy) -> Selector {
    selector(SelectorSettings { policy, ..SelectorSettings::default() })
}

fn question(now_ns: u64) -> Question {
    Question { now_ns, kind: POINT, meganode: None, one_sided: Ok(()), in_hand: 0 }
}

/// Searches one after another for so long, each of so long; the part that went to the server at the end.
fn share_after(
    selector: &mut Selector,
    now_ns: &mut u64,
    lasts_ns: u64,
    (server_ns, read_ns, reads): (u64, u64, u32),
) -> f64 {
    let until_ns = *now_ns + lasts_ns;
    let mut before = *selector.decisions();
    while *now_ns < until_ns {
        if until_ns - *now_ns > lasts_ns / 2 {
            before = *selector.decisions();
        }
        match selector.decide(&question(*now_ns)).path {
            SearchPath::Server => {
                *now_ns += server_ns;
                selector.on_sample(*now_ns, Sample::Server { kind: POINT, latency_ns: server_ns });
            }
            SearchPath::OneSided if reads == 0 => {
                *now_ns += read_ns;
                selector.on_sample(*now_ns, Sample::InPlace { kind: POINT, latency_ns: read_ns });
            }
            SearchPath::OneSided => {
                for _ in 0..reads {
                    *now_ns += read_ns;
                    selector.on_sample(*now_ns, Sample::Read { kind: POINT, latency_ns: read_ns });
                }
                let latency_ns = read_ns * u64::from(reads);
                let sample = Sample::OneSided { kind: POINT, meganode: None, latency_ns, reads };
                selector.on_sample(*now_ns, sample);
            }
        }
    }
    let after = selector.decisions();
    let server = (after.server - before.server) as f64;
    server / (server + (after.one_sided - before.one_sided) as f64)
}

#[test]
fn first_search_goes_to_the_server_for_want_of_samples() {
    for policy in [Policy::Paper, Policy::Adaptive] {
        let decision = of_policy(policy).decide(&question(1));
        assert_eq!((decision.path, decision.reason), (SearchPath::Server, Reason::NotEnoughSamples));
    }
}

#[test]
fn obstacle_leaves_the_server_alone_and_is_reported() {
    for policy in [Policy::Paper, Policy::Adaptive, Policy::Fixed] {
        let mut selector = of_policy(policy);
        for obstacle in [Obstacle::NotRegistered, Obstacle::NotTrusted, Obstacle::NotPermitted] {
            let decision = selector.decide(&Question { one_sided: Err(obstacle), ..question(1) });
            assert_eq!(decision.path, SearchPath::Server);
            assert_eq!(decision.reason, Reason::OnlyServer(obstacle));
        }
        assert_eq!((selector.decisions().only_server(), selector.decisions().server), (3, 3));
    }
}

#[test]
fn paper_chooses_by_its_inequality() {
    // (l_s - RTT) < m * (l_r - RTT), with l_r = 20 and RTT = 10 by every other read, m = 5: 50 at l_s = 60.
    for (server_ns, path) in [(59_000, SearchPath::Server), (61_000, SearchPath::OneSided)] {
        let settings =
            SelectorSettings { policy: Policy::Paper, exploration: 0.0, ..SelectorSettings::default() };
        let mut selector = selector(settings);
        for at in 0..100 {
            selector.on_sample(at, Sample::Server { kind: POINT, latency_ns: server_ns });
            for latency_ns in [10_000, 30_000] {
                selector.on_sample(at, Sample::Read { kind: POINT, latency_ns });
            }
            let sample = Sample::OneSided { kind: POINT, meganode: None, latency_ns: 100_000, reads: 5 };
            selector.on_sample(at, sample);
        }
        let decision = selector.decide(&question(200));
        assert_eq!((decision.path, decision.reason), (path, Reason::Estimate), "{server_ns}");
    }
}

#[test]
fn paper_explores_its_part_of_the_searches() {
    let mut selector = of_policy(Policy::Paper);
    share_after(&mut selector, &mut 1, 10_000_000_000, (60_000, 10_000, 3));
    let decisions = selector.decisions();
    let part = decisions.exploration as f64 / (decisions.server + decisions.one_sided) as f64;
    assert!((0.007..0.013).contains(&part), "{part}");
}

#[test]
fn adaptive_takes_the_cheaper_path_and_explores_a_part_of_the_time() {
    for (costs, server_side) in
        [((20_000, 15_000, 3), true), ((100_000, 15_000, 3), false), ((10_000, 1_000, 0), false)]
    {
        let mut selector = of_policy(Policy::Adaptive);
        let share = share_after(&mut selector, &mut 1, 2_000_000_000, costs);
        let worse = if server_side { 1.0 - share } else { share };
        assert!(worse < 0.0125, "{costs:?}: {share}");
        assert!(selector.decisions().exploration > 10, "{costs:?}");
    }
}

/// The server takes 4 ms, as where another process has its core, and a search in place 2 us.
#[test]
fn adaptive_spends_a_part_of_the_time_on_a_path_that_is_very_slow_also_across_pauses() {
    let mut selector = of_policy(Policy::Adaptive);
    let mut now_ns = 1;
    share_after(&mut selector, &mut now_ns, 4_000_000_000, (4_000_000, 2_000, 0));
    let (before, mut active_ns) = (selector.decisions().server, 0);
    for _ in 0..40 {
        now_ns += 500_000_000; // another client's turn
        let began_ns = now_ns;
        share_after(&mut selector, &mut now_ns, 40_000_000, (4_000_000, 2_000, 0));
        active_ns += now_ns - began_ns;
    }
    let part = (selector.decisions().server - before) as f64 * 4e6 / active_ns as f64;
    assert!(part > 0.0 && part < 0.03, "{part}");
}

/// Half of the time may be lost: both paths get half of the searches at most.
#[test]
fn adaptive_explores_half_of_the_searches_if_it_is_set_to() {
    let mut selector = selector(SelectorSettings { exploration: 0.5, ..SelectorSettings::default() });
    let share = share_after(&mut selector, &mut 1, 2_000_000_000, (50_000, 22_000, 2));
    assert!((0.4..0.6).contains(&share), "{share}");
}

/// Each one-sided search is started, takes 5 us, and is given to the server, which takes 20 us.
#[test]
fn adaptive_leaves_a_path_whose_searches_all_end_at_the_server() {
    for in_place in [false, true] {
        let mut selector = of_policy(Policy::Adaptive);
        let (mut now_ns, mut one_sided) = (1, 0);
        for at in 0..40_000 {
            if selector.decide(&question(now_ns)).path == SearchPath::OneSided {
                one_sided += u32::from(at >= 20_000); // what was learnt by then
                now_ns += 5_000;
                if in_place {
                    selector.on_sample(now_ns, Sample::InPlace { kind: POINT, latency_ns: 1_000 });
                }
                selector.on_sample(now_ns, Sample::Fallback { kind: POINT, latency_ns: 5_000, in_place });
            }
            now_ns += 20_000;
            selector.on_sample(now_ns, Sample::Server { kind: POINT, latency_ns: 20_000 });
        }
        assert!(one_sided < 1_000, "in place {in_place}: {one_sided} of the later 20,000");
    }
}

/// One search: the server takes so long; in place it takes 1 us and waits so long.
fn search_in_place(selector: &mut Selector, now_ns: &mut u64, server_ns: u64, waited_ns: u64) -> SearchPath {
    let path = selector.decide(&question(*now_ns)).path;
    match path {
        SearchPath::Server => {
            *now_ns += server_ns;
            selector.on_sample(*now_ns, Sample::Server { kind: POINT, latency_ns: server_ns });
        }
        SearchPath::OneSided => {
            *now_ns += 1_000 + waited_ns;
            selector.on_sample(*now_ns, Sample::InPlace { kind: POINT, latency_ns: 1_000 });
            selector.on_sample(*now_ns, Sample::Wait { kind: POINT, waited_ns });
        }
    }
    path
}

/// Each search in place takes 1 us, and after a while waits 90 us for its watermark; the server takes 40 us.
/// One of another kind between them ends what follows a decision.
#[test]
fn adaptive_counts_what_a_search_in_place_waits() {
    for has_other in [false, true] {
        let mut selector = of_policy(Policy::Adaptive);
        let (mut now_ns, mut server, mut one_sided) = (1, 0, 0);
        for search in 0..60_000 {
            let waited_ns = if search < 20_000 { 0 } else { 90_000 };
            match search_in_place(&mut selector, &mut now_ns, 40_000, waited_ns) {
                _ if search < 20_000 => {}
                SearchPath::Server => server += 1,
                SearchPath::OneSided => one_sided += 1,
            }
            if has_other {
                selector.decide(&Question { kind: SearchKind::Scan, ..question(now_ns) });
            }
        }
        assert!(one_sided * 4 < server, "another kind {has_other}: {server}, {one_sided}");
    }
}

/// Each search in place takes 1 us and waits 10 us; the server takes 60 us. Seven of eight follow a decision
/// and are not measured; what they wait is theirs.
#[test]
fn adaptive_counts_what_searches_that_follow_wait_for_each_of_them() {
    let mut selector = of_policy(Policy::Adaptive);
    let (mut now_ns, mut late) = (1, 0);
    for search in 0..200_000 {
        let path = search_in_place(&mut selector, &mut now_ns, 60_000, 10_000);
        late += u32::from(search >= 100_000 && path == SearchPath::Server);
    }
    assert!(late < 450, "{late} of the later 100,000 went to the server");
}

#[test]
fn connection_that_is_new_has_no_history_and_keeps_what_was_decided() {
    for policy in [Policy::Paper, Policy::Adaptive] {
        let mut selector = of_policy(policy);
        let mut now_ns = 1;
        share_after(&mut selector, &mut now_ns, 100_000_000, (20_000, 300, 3));
        let decided = *selector.decisions();
        assert_eq!(selector.estimates().rtt_ns, Some(300.0));
        selector.on_connection();
        let estimates = selector.estimates();
        assert_eq!((estimates.rtt_ns, estimates.server_ns, estimates.read_ns), (None, None, None));
        assert_eq!(*selector.decisions(), decided);
        assert_eq!(selector.decide(&question(now_ns)).reason, Reason::NotEnoughSamples);
    }
}

#[test]
fn estimates_are_those_of_the_kind_that_is_searched_most() {
    for policy in [Policy::Paper, Policy::Adaptive] {
        let mut selector = of_policy(policy);
        for at in 0..1_000_u64 {
            let now_ns = 1 + at * 1_000_000;
            let kind = if at % 10 == 0 { POINT } else { SearchKind::Scan };
            let latency_ns = if kind == POINT { 20_000 } else { 500_000 };
            let path = selector.decide(&Question { kind, ..question(now_ns) }).path;
            selector.on_sample(
                now_ns + 1,
                match path {
                    SearchPath::Server => Sample::Server { kind, latency_ns },
                    SearchPath::OneSided => Sample::OneSided { kind, meganode: None, latency_ns, reads: 3 },
                },
            );
            selector.on_sample(now_ns + 2, Sample::Read { kind, latency_ns: latency_ns / 3 });
        }
        let server_ns = selector.estimates().server_ns.unwrap();
        assert!((450_000.0..=550_000.0).contains(&server_ns), "{policy}: {server_ns}");
    }
}

#[test]
fn adaptive_follows_a_step_within_a_second_also_where_stalls_are_what_changes() {
    let mut selector = of_policy(Policy::Adaptive);
    let mut now_ns = 1;
    assert!(share_after(&mut selector, &mut now_ns, 1_000_000_000, (20_000, 15_000, 3)) > 0.97);
    assert!(share_after(&mut selector, &mut now_ns, 1_000_000_000, (400_000, 15_000, 3)) < 0.03);
    assert!(share_after(&mut selector, &mut now_ns, 1_000_000_000, (20_000, 15_000, 3)) > 0.97);
}

#[test]
fn slow_sample_after_a_pause_does_not_turn_the_adaptive_policy() {
    let mut selector = of_policy(Policy::Adaptive);
    let mut now_ns = 1;
    assert!(share_after(&mut selector, &mut now_ns, 500_000_000, (20_000, 15_000, 3)) > 0.97);
    now_ns += 2_000_000_000;
    selector.on_sample(now_ns, Sample::Server { kind: POINT, latency_ns: 5_000_000 });
    assert!(share_after(&mut selector, &mut now_ns, 100_000_000, (20_000, 15_000, 3)) > 0.9);
}

#[test]
fn idle_connection_forgets_and_says_so() {
    for policy in [Policy::Paper, Policy::Adaptive] {
        let mut selector = of_policy(policy);
        let mut now_ns = 1;
        share_after(&mut selector, &mut now_ns, 100_000_000, (20_000, 15_000, 3));
        assert!(selector.estimates().server_ns.is_some());
        let decision = selector.decide(&question(now_ns + 3_000_000_000));
        assert_eq!((decision.path, decision.reason), (SearchPath::Server, Reason::IdleReset));
        assert_eq!(selector.estimates().server_ns, None);
    }
}

/// The server's share at the end, with sixteen searches in hand: lowest and usual latency of a read, usual
/// latency of a search by the server and of one by two reads; the server's lowest is 24 us.
fn share_with_sixteen_in_hand(
    settings: SelectorSettings,
    (lowest_ns, read_ns, server_ns, reads_ns): (u64, u64, u64, u64),
) -> f64 {
    let mut selector = selector(settings);
    let (kind, meganode, mut now_ns) = (POINT, None, 1);
    selector.on_sample(now_ns, Sample::Read { kind, latency_ns: lowest_ns });
    selector.on_sample(now_ns, Sample::Server { kind, latency_ns: 24_000 });
    for _ in 0..20_000 {
        let decision = selector.decide(&Question { in_hand: 15, ..question(now_ns) });
        now_ns += 5_000;
        if decision.path == SearchPath::Server {
            selector.on_sample(now_ns, Sample::Server { kind, latency_ns: server_ns });
        } else {
            selector.on_sample(now_ns, Sample::Read { kind, latency_ns: read_ns });
            selector.on_sample(now_ns, Sample::OneSided { kind, meganode, latency_ns: reads_ns, reads: 2 });
        }
    }
    selector.estimates().share.expect("both paths were measured")
}

/// As measured over TCP: the server answers sixteen together after 70 us, one alone after 24 us.
#[test]
fn searches_that_wait_for_those_of_their_own_client_are_no_queue() {
    let share = share_with_sixteen_in_hand(SelectorSettings::default(), (20_000, 40_000, 70_000, 80_000));
    assert!(share > 0.95, "{share}");
    let of_no_cost = SelectorSettings { read_cpu_ns: 0.0, ..SelectorSettings::default() };
    let share = share_with_sixteen_in_hand(of_no_cost, (20_000, 30_000, 70_000, 110_000));
    assert!(share > 0.95, "{share}");
}

#[test]
fn read_of_low_latency_takes_little_of_the_clients_processor() {
    let share = share_with_sixteen_in_hand(SelectorSettings::default(), (2_000, 10_000, 45_000, 20_000));
    assert!(share < 0.05, "{share}");
}

#[test]
fn searches_in_hand_make_reads_by_the_clients_processor_dearer() {
    let share = |in_hand| {
        let mut selector = of_policy(Policy::Adaptive);
        let mut now_ns = 1;
        for at in 0..40_000 {
            let decision = selector.decide(&Question { in_hand, ..question(now_ns) });
            now_ns += 10_000;
            let sample = match decision.path {
                SearchPath::Server => Sample::Server { kind: POINT, latency_ns: 16_000 },
                SearchPath::OneSided => Sample::InPlace { kind: POINT, latency_ns: 1_500 + at % 100 },
            };
            selector.on_sample(now_ns, sample);
        }
        selector.decisions().server_share().unwrap()
    };
    assert!(share(0) < 0.05 && share(31) > 0.9, "{} {}", share(0), share(31));
}

#[test]
fn meganodes_of_fewer_reads_are_read_one_sided_first() {
    let mut selector = of_policy(Policy::Adaptive);
    let (mut now_ns, mut server) = (1, [0_u32; 2]);
    for at in 0..100_000_u64 {
        let deep = at % 2 == 1;
        let (meganode, reads) = (Some(MeganodeId(u64::from(deep) << 26)), if deep { 5 } else { 3 });
        let decision = selector.decide(&Question { meganode, ..question(now_ns) });
        now_ns += 20_000;
        server[usize::from(deep)] += u32::from(at > 50_000 && decision.path == SearchPath::Server);
        match decision.path {
            SearchPath::Server => {
                selector.on_sample(now_ns, Sample::Server { kind: POINT, latency_ns: 42_000 })
            }
            SearchPath::OneSided => {
                selector.on_sample(now_ns, Sample::Read { kind: POINT, latency_ns: 10_000 + at % 500 });
                let latency_ns = 10_000 * u64::from(reads);
                let sample = Sample::OneSided { kind: POINT, meganode, latency_ns, reads };
                selector.on_sample(now_ns, sample);
            }
        }
    }
    assert!(server[0] <= server[1], "{server:?}");
}

#[test]
fn fixed_share_is_kept() {
    for fixed_share in [0.0, 0.3, 1.0] {
        let settings = SelectorSettings { policy: Policy::Fixed, fixed_share, ..SelectorSettings::default() };
        let mut selector = selector(settings);
        (0..10_000).for_each(|at| assert_eq!(selector.decide(&question(at)).reason, Reason::FixedShare));
        assert!((selector.decisions().server_share().unwrap() - fixed_share).abs() < 0.02);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_samples_leave_finite_estimates_and_both_paths_alive(
        policy in 0_u8..3,
        steps in proptest::collection::vec((0_u64..4_000_000_000, any::<u64>(), 0_u32..70, 0_u8..3), 0..300),
    ) {
        let policy = [Policy::Paper, Policy::Adaptive, Policy::Fixed][usize::from(policy)];
        let mut selector = of_policy(policy);
        let mut now_ns = 0_u64;
        for (wait_ns, latency_ns, reads, what) in steps {
            now_ns += wait_ns;
            let kind = [POINT, SearchKind::MultiGet, SearchKind::Scan][usize::from(what)];
            let meganode = Some(MeganodeId(latency_ns % 1000));
            let in_hand = reads;
            selector.decide(&Question { now_ns, kind, meganode, one_sided: Ok(()), in_hand });
            selector.on_sample(now_ns, match what {
                0 => Sample::Server { kind, latency_ns },
                1 => Sample::OneSided { kind, meganode, latency_ns, reads },
                _ => Sample::InPlace { kind, latency_ns },
            });
            let estimates = selector.estimates();
            for value in [estimates.server_ns, estimates.read_ns, estimates.one_sided_ns, estimates.share] {
                prop_assert!(value.is_none_or(|value| value.is_finite() && value >= 0.0), "{estimates:?}");
            }
        }
        // Both are as fast, whichever is taken: each is taken now and then.
        let mut is_one_sided = |at: u64| {
            let now_ns = now_ns + at * 100_000;
            let path = selector.decide(&question(now_ns)).path;
            selector.on_sample(now_ns, match path {
                SearchPath::Server => Sample::Server { kind: POINT, latency_ns: 20_000 },
                SearchPath::OneSided => Sample::InPlace { kind: POINT, latency_ns: 20_000 },
            });
            path == SearchPath::OneSided
        };
        let taken = (0..20_000).filter(|at| is_one_sided(*at)).count();
        let alive = taken > 0 && taken < 20_000;
        prop_assert!(alive, "{taken}");
    }
}

#[test]
fn set_settings_keeps_what_was_measured_while_the_policy_stays() {
    let mut selector = of_policy(Policy::Adaptive);
    let mut now_ns = 1;
    share_after(&mut selector, &mut now_ns, 1_000_000_000, (20_000, 15_000, 3));
    let known = selector.estimates();
    assert!(known.share.is_some());
    selector.set_settings(&SelectorSettings { exploration: 0.3, ..SelectorSettings::default() });
    assert_eq!(selector.estimates(), known);
    let share = share_after(&mut selector, &mut now_ns, 1_000_000_000, (20_000, 15_000, 3));
    assert!((0.1..0.4).contains(&(1.0 - share)), "more is explored: {share}");

    let fixed = SelectorSettings { policy: Policy::Fixed, fixed_share: 0.25, ..SelectorSettings::default() };
    selector.set_settings(&fixed);
    let share = share_after(&mut selector, &mut now_ns, 100_000_000, (20_000, 15_000, 3));
    assert!((0.2..0.3).contains(&share), "{share}");
    selector.set_settings(&SelectorSettings::default());
    let decision = selector.decide(&question(now_ns));
    assert_eq!((decision.reason, selector.estimates().share), (Reason::NotEnoughSamples, None));
}
